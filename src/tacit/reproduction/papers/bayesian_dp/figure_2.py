"""Paper B, figure 2: distances between gradients of members and of held-out records, after training, and two tests.

The paper sees no difference, at p-values above .05. Under the hypothesis of no difference a p-value is any number in
[0, 1], so what is expected is that none is found at the 1 % level. A network that has learnt few records by heart,
without privacy, shows that the tests can find one. That none is found is no guarantee.
"""

import textwrap
from dataclasses import replace

import matplotlib.pyplot as plt
import torch
from bayesian_dp.adult_rows import load_table
from bayesian_dp.mnist_rows import train_digits
from dp_bnn.mnist import STEPS, build_network, losses
from logistic import losses as income_losses

import tacit
from tacit.data import load_mnist
from tacit.evaluation import LeakageCheck, draw_leakage
from tacit.gradients import gradient_distances
from tacit.losses import ModelLosses
from tacit.reproduction import Work

PAIRS, FEW, EPSILON = 1_000, 2_000, 0.5


def reproduce(work: Work) -> None:
    kinds = {"MNIST": digits, "Adult": incomes, "MNIST, learnt by heart": by_heart}
    checks = {name: check(work) for name, check in kinds.items() if work.wants(name)}
    if not checks:
        return
    figure, axes = plt.subplots(1, len(checks), figsize=(6 * len(checks), 4), squeeze=False)
    for panel, (name, check) in zip(axes[0], checks.items(), strict=True):
        work.measure(f"{name}: p of equal means (Welch)", check.welch)
        work.measure(f"{name}: p of equal spreads (Levene)", check.levene)
        work.measure(f"{name}: a difference is found", float(check.differs()))
        work.measure(f"{name}: mean distance of members over held-out", check.members.mean() / check.held_out.mean())
        draw_leakage(panel, check)
        panel.set(title="\n".join([name, *textwrap.wrap(check.sentence(), 60)]))
        panel.title.set_fontsize(8)
    work.picture(figure)
    plt.close(figure)


def digits(work: Work) -> LeakageCheck:
    """The private CNN of table 1."""
    data = load_mnist()
    model, run = train_digits(data, work.folder("mnist"), 4 if work.quick else STEPS, work.seed)
    [params] = run.posterior
    return compare(
        ModelLosses(model, losses), params, (data.train_images, data.train_labels),
        (data.test_images, data.test_labels), 100 if work.quick else PAIRS,
    )  # fmt: skip


def incomes(work: Work) -> LeakageCheck:
    """The private model of table 1 at epsilon 0.5; the last draw."""
    table = replace(load_table(work), steps=10 if work.quick else None)
    settings, model = table.settings(EPSILON), table.model()
    *_, params = table.train(table.sgld(settings, model), settings, "adult").posterior
    data = table.data
    members, held_out = (data.train_inputs, data.train_labels), (data.test_inputs, data.test_labels)
    return compare(ModelLosses(model, income_losses), params, members, held_out, PAIRS)


def by_heart(work: Work) -> LeakageCheck:
    """A network that sees 2,000 digits again and again, without privacy."""
    data, few = load_mnist(), 500 if work.quick else FEW
    torch.manual_seed(work.seed)
    members, model = (data.train_images[:few], data.train_labels[:few]), build_network("cnn")
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(30):
        for rows in torch.randperm(few).split(100):
            optimizer.zero_grad()
            losses(model, (members[0][rows], members[1][rows])).mean().backward()
            optimizer.step()
    params = {name: value.detach() for name, value in model.named_parameters()}
    held_out = (data.test_images, data.test_labels)
    return compare(ModelLosses(model, losses), params, members, held_out, few // 2)


def compare(each: ModelLosses, params: object, members: object, held_out: object, pairs: int) -> LeakageCheck:
    one, other = (gradient_distances(each, params, batch, pairs=pairs) for batch in (members, held_out))
    return tacit.evaluation.leakage_check(one, other)
