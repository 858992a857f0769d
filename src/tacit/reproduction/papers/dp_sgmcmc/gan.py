"""Paper M, section 4.3, "Application to GAN training": 100 labels of MNIST, SGHMC against DP-SGD at epsilon .2.

The paper gives two accuracies, 98.3 % and 90.8 %, and (.2, 1e-5); neither networks, batch and steps, nor what is
private. Here the 100 labelled pictures are public; the other 59,900 are private and have no labels, and neighbours
differ by one of them. (In the rows "labels private too" all 60,000 are private, labels included.)

A discriminator with ten outputs (Salimans et al. 2016: D(x) = Z / (1 + Z), Z the sum of their exponentials) gets one
release a step by ``tacit.PrivateGradient``: a clipped noisy mean of the gradients of -log D on private pictures, and
beside it a mean of their features, a group of its own. Labelled and generated pictures need no noise. The generator
matches the released mean of features: it sees releases only, so that it and its pictures are post-processing.

SGHMC and DP-SGD get releases at the same epsilon and differ in what they make of them: SGHMC keeps a velocity, has the
step at which the privacy noise is that of the posterior, and averages the predictions of its last iterates.

What the private pictures add shows beside "the game on the 100 pictures alone", in which the public ones stand in for
them: nothing is private there, and nothing is charged.

Reduced so that all runs take minutes on one core: 14 x 14 pixels, small networks, few steps. Clip norms, rates and
steps were chosen, for each method apart, in runs where 5,000 training pictures stood in for the test set; that choice
is not charged.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

import matplotlib.pyplot as plt
import torch
from gan_game import UNKNOWN, Discriminator, Game, Pictures, pictures, private_losses, step_of
from pate_rows import PENALTY, linear, percent
from scattered import scattered
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import tacit
from tacit.data import ImageData, load_mnist
from tacit.mechanisms import VectorGroup
from tacit.reproduction import Work

EPSILON, DELTA, BATCH, RUNS = 0.2, 1e-5, 512, 3
FEATURE_NORM = 5.0
FRICTION, SGD_RATE, KEPT = 0.1, 0.6, 50
OPEN_RATE, OPEN_BATCH, OPEN_STEPS = 3e-3, 128, 3_000


def sghmc(model: nn.Module, size: int, on_sum: float) -> tacit.inference.SGHMC:
    """At the posterior's own temperature, 1: its noise is the privacy noise, so that the budget decides the step."""
    step = 2 * FRICTION * (BATCH / (size * on_sum)) ** 2
    prior = tacit.GaussianPrior(1.0)
    return tacit.inference.SGHMC(
        model, private_losses, prior, step, dataset_size=size, temperature=None, friction=FRICTION
    )


def dp_sgd(model: nn.Module, size: int, on_sum: float) -> tacit.SGD:
    return tacit.SGD(model, private_losses, SGD_RATE, tacit.GaussianPrior(1.0), dataset_size=size)


@dataclass(frozen=True)
class Way:
    """A method and its settings."""

    method: Callable[[nn.Module, int, float], tacit.inference.SGHMC | tacit.SGD]
    clip_norm: float
    steps: int
    keep: int  # iterates whose predictions are averaged


WAYS = {"SGHMC": Way(sghmc, 0.9, 200, KEPT), "DP-SGD": Way(dp_sgd, 0.1, 400, 1)}


@dataclass(frozen=True)
class Outcome:
    accuracy: float
    epsilon: float
    temperature: float


def private_gan(way: Way, game: Game, folder: Path) -> Outcome:
    data, steps = (game.pictures.private, game.pictures.private_labels), way.steps
    size = len(data[0])
    sampling = tacit.PoissonSampling.of(batch_size=BATCH, dataset_size=size)
    noise = tacit.calibrate_noise(EPSILON, DELTA, probability=sampling.probability, steps=steps).noise_multiplier
    names = tuple(name for name, _ in game.model.named_parameters() if name != "probe.weight")
    clipping = tacit.ClipGroups([VectorGroup(names, way.clip_norm), VectorGroup(("probe.weight",), FEATURE_NORM)])
    private = tacit.PrivateGradient(
        game.model, private_losses, sampling, clipping, tacit.GaussianNoise(noise), ledger=folder / "ledger.jsonl",
        budget=tacit.Budget(EPSILON, DELTA), dataset="mnist", dataset_size=size,
    )  # fmt: skip

    def released() -> Iterator[None]:
        for sample in private.samples(data, steps):
            game.model.zero_grad()
            private.backward(sample)
            yield

    on_sum = noise * math.sqrt(2) * way.clip_norm  # of two groups, each has sqrt(2) z S
    method = way.method(game.model, size, on_sum)
    with private:
        accuracy = game.play(released(), step_of(method, game.model), steps, min(way.keep, steps))
        warmth = method.effective_temperature(on_sum, BATCH) if isinstance(method, tacit.inference.SGHMC) else math.nan
        return Outcome(accuracy, private.epsilon(DELTA), warmth)


def open_gan(game: Game, steps: int) -> float:
    """The twin without privacy: the same game with plain gradients and Adam."""
    data = (game.pictures.private, game.pictures.private_labels)
    optimizer = torch.optim.Adam(game.model.parameters(), lr=OPEN_RATE, betas=(0.5, 0.999))

    def released() -> Iterator[None]:
        for _ in range(steps):
            rows = torch.randint(len(data[0]), (OPEN_BATCH,))
            game.model.zero_grad()
            private_losses(game.model, (data[0][rows], data[1][rows])).mean().backward()
            yield

    return game.play(released(), lambda: optimizer.step() and None, steps, min(KEPT, steps))


def supervised(pictures: Pictures, steps: int) -> float:
    """The same network on the 100 labels alone."""
    model = Discriminator()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        cross_entropy(model(pictures.labelled), pictures.labels).backward()
        optimizer.step()
    return percent(model.chances(pictures.test).argmax(1) == pictures.test_labels)


def linear_on_scattering(pictures: Pictures, data: ImageData) -> float:
    """What fixed features of the public pictures do without any private one."""
    rows, test = (
        scattered(part, upright=True).flatten(1) for part in (data.train_images[pictures.chosen], data.test_images)
    )
    model = linear(rows - rows.mean(0), pictures.labels, PENALTY)
    return percent(model(test - rows.mean(0)).argmax(1) == pictures.test_labels)


def reproduce(work: Work) -> None:
    data = load_mnist()
    if work.quick:
        data = ImageData(
            data.train_images[:6000], data.train_labels[:6000], data.test_images[:500], data.test_labels[:500]
        )
    found: dict[str, list[float]] = {}
    shown: dict[str, Tensor] = {}
    for run in range(1 if work.quick else RUNS):
        torch.manual_seed(work.seed + run)
        one_run(work, data, found, shown)
    for row, values in found.items():
        work.measure(row, max(values) if row.endswith("epsilon") else mean(values))
    gap = mean(found["SGHMC: accuracy"]) - mean(found["DP-SGD: accuracy"])
    work.measure("SGHMC above DP-SGD", gap)
    for row in ("SGHMC: accuracy", "DP-SGD: accuracy"):
        work.note(f"{row} of each run {', '.join(f'{value:.2f}' for value in found[row])}")
    work.note(
        "reduced: 14 x 14 pixels, 34,000 weights, a few hundred private steps; mean of three choices of 100 labels"
    )
    show(work, shown)


def one_run(work: Work, data: ImageData, found: dict[str, list[float]], shown: dict[str, Tensor]) -> None:
    """Every row once, on one choice of the labelled pictures."""

    def keep(row: str, value: float) -> None:
        found.setdefault(row, []).append(value)

    public, secret = pictures(data, private_labels=False), pictures(data, private_labels=True)
    steps = 20 if work.quick else OPEN_STEPS
    keep("the 100 labels alone", supervised(public, min(300, steps)))
    keep("the 100 labels alone, linear on scattering features", linear_on_scattering(public, data))
    alone = replace(public, private=public.labelled, private_labels=torch.full_like(public.labels, UNKNOWN))
    keep("the game on the 100 pictures alone", open_gan(Game(alone), steps))
    twin = Game(public)
    keep("non-private", open_gan(twin, steps))
    shown["non-private"] = twin.generate(20)
    for name, way in WAYS.items():
        way = replace(way, steps=steps) if work.quick else way
        game, hidden = Game(public), Game(secret)
        outcome = private_gan(way, game, work.folder(name))
        keep(f"{name}: accuracy", outcome.accuracy)
        keep(f"{name}: epsilon", outcome.epsilon)
        if name == "SGHMC":
            keep("SGHMC: effective temperature", outcome.temperature)
        shown[name] = game.generate(20)
        keep(f"{name}, labels private too: accuracy", private_gan(way, hidden, work.folder(f"{name}-labels")).accuracy)


def show(work: Work, shown: dict[str, Tensor]) -> None:
    figure, axes = plt.subplots(len(shown), 1, figsize=(10, 1.3 * len(shown)))
    for axis, (name, generated) in zip(axes, shown.items(), strict=True):
        axis.imshow(torch.cat(list(generated.detach().reshape(-1, 14, 14)), dim=1).numpy(), cmap="gray_r")
        axis.set(title=name, xticks=[], yticks=[])
    work.picture(figure)
    plt.close(figure)
