"""Bayesian logistic regression on Adult by every method of figure 3; each gives test accuracy in percent.

Settings follow from public numbers by the default rule of `tacit train`, never from a look at accuracy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

import tacit
from tacit.data import TableData, load_adult
from tacit.pate import ConfidentGNMax, assign_teachers, count_votes
from tacit.tables import Facts, Recipe, recipe

DELTA = 1e-5  # the paper has 1e-4, which is above 1/n: it would allow a record to be published whole, and is refused
TEACHERS, QUERIES, ANSWERS = 250, 1_000, 300
COLUMNS = 3  # of one posterior sample
PUBLIC = 8_000  # of the test rows, whose labels are not used: the unlabelled data that PATE needs


def losses(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return binary_cross_entropy_with_logits(model(batch[0])[:, 0], batch[1].float(), reduction="none")


@dataclass(frozen=True)
class Adult:
    """The data, and where runs are kept."""

    data: TableData
    folder: Callable[[str], Path]
    steps: int | None = None

    @property
    def size(self) -> int:
        return len(self.data.train_labels)

    @property
    def features(self) -> int:
        return self.data.train_inputs.shape[1]

    def model(self) -> nn.Linear:
        model = nn.Linear(self.features, 1, bias=False)
        nn.init.zeros_(model.weight)
        return model

    def settings(self, epsilon: float, method: str = "sgld") -> Recipe:
        facts = Facts(self.size, self.features, self.features, 1, "classification", method, "linear", epsilon, DELTA)
        return recipe(facts)

    def plan(self, settings: Recipe, name: str, noise: tacit.GaussianNoise | None) -> tacit.TrainingPlan:
        sampling = tacit.PoissonSampling(settings.probability, settings.probability * self.size)
        clipping, steps = tacit.ClipRecords(settings.clip_norm), self.steps or settings.steps
        ledger = self.folder(name) / "ledger.jsonl"
        return tacit.TrainingPlan(sampling, clipping, noise, steps, ledger, dataset="adult", physical_batch=4096)

    def accuracy(self, model: nn.Module, posterior: object, inputs: Tensor | None = None) -> float:
        inputs = self.data.test_inputs if inputs is None else inputs
        found = tacit.predict(model, posterior, inputs, link="sigmoid")
        return 100 * float((found.classes == self.data.test_labels[-len(inputs) :]).float().mean())


def load(folder: Callable[[str], Path], steps: int | None = None) -> Adult:
    return Adult(load_adult(), folder, steps)


def sgld(adult: Adult, epsilon: float) -> float:
    """DP-SGLD of a tempered posterior: the step is the one that learns, the temperature what the noise makes of it."""
    settings, model = adult.settings(epsilon), adult.model()
    prior = tacit.GaussianPrior(settings.prior_stddev)
    method = tacit.SGLD(
        model, losses, prior, settings.learning_rate / adult.size, dataset_size=adult.size, temperature=None
    )
    plan = adult.plan(settings, "sgld", tacit.GaussianNoise(multiplier=settings.noise_multiplier))
    run = tacit.train(method, (adult.data.train_inputs, adult.data.train_labels), plan, keep_last=min(50, plan.steps))
    return adult.accuracy(model, run.posterior)


def sgld_at_temperature_1(adult: Adult, epsilon: float) -> float:
    """DP-SGLD as the paper means it: the noise of the posterior itself, which forces the step (maths.md 5)."""
    settings, model = adult.settings(epsilon), adult.model()
    step = 2 * (settings.probability / (settings.noise_multiplier * settings.clip_norm)) ** 2
    prior = tacit.GaussianPrior(settings.prior_stddev)
    method = tacit.SGLD(model, losses, prior, step, dataset_size=adult.size, temperature=1.0)
    plan = adult.plan(settings, "sgld-1", None)
    run = tacit.train(method, (adult.data.train_inputs, adult.data.train_labels), plan, keep_last=min(50, plan.steps))
    return adult.accuracy(model, run.posterior)


def dpvi(adult: Adult, epsilon: float) -> float:
    settings, model = adult.settings(epsilon, "vi"), adult.model()
    method = tacit.VariationalInference(
        model, losses, dataset_size=adult.size, prior=tacit.GaussianPrior(settings.prior_stddev),
        descent=tacit.Adam(settings.learning_rate), average=0.99,
    )  # fmt: skip
    plan = adult.plan(settings, "dpvi", tacit.GaussianNoise(multiplier=settings.noise_multiplier))
    run = tacit.train(method, (adult.data.train_inputs, adult.data.train_labels), plan)
    return adult.accuracy(model, run.posterior)


def few_columns(inputs: Tensor) -> Tensor:
    """Columns chosen without the data: an exact posterior sample can be had for few, as its price grows exponentially.

    Constant, married, years of education. Rows have norm 1 and a constant first entry, so that dividing by it gives the
    columns back.
    """
    raw = inputs / inputs[:, :1]
    married, education = 1 + 8 + 16, raw.shape[1] - (12 + 9 + 8 + 11) - 2
    return raw[:, [0, married, education]]


def bounded_posterior() -> tacit.BoundedLogistic:
    return tacit.BoundedLogistic(features=COLUMNS, bound=8.0, prior_stddev=10.0)


def one_posterior_sample(adult: Adult, epsilon: float) -> float:
    posterior = bounded_posterior()
    rows = few_columns(adult.data.train_inputs)
    header = tacit.LedgerHeader(dataset="adult")
    with tacit.LedgerFile(adult.folder("ops") / "ledger.jsonl", header) as ledger:
        point = tacit.one_posterior_sample(posterior, (rows, adult.data.train_labels), ledger, epsilon=epsilon)
    test = few_columns(adult.data.test_inputs)
    scores = test.double() / test.abs().sum(dim=1, keepdim=True) @ point.vectors["weight"][0]
    return 100 * float(((scores > 0).long() == adult.data.test_labels).float().mean())


def hybrid(adult: Adult, epsilon: float) -> float:
    """A posterior sample at a third of epsilon, then a chain at two thirds, on the same columns."""
    rows, test = few_columns(adult.data.train_inputs), few_columns(adult.data.test_inputs)
    scaled = [part / part.abs().sum(dim=1, keepdim=True) for part in (rows, test)]
    facts = Facts(adult.size, COLUMNS, COLUMNS, 1, "classification", "sgld", "linear", 2 * epsilon / 3, DELTA)
    settings, model = recipe(facts), nn.Linear(COLUMNS, 1, bias=False)
    plan = adult.plan(settings, "hybrid", tacit.GaussianNoise(multiplier=settings.noise_multiplier))
    run = tacit.hybrid(
        bounded_posterior(), (rows, adult.data.train_labels), model,
        lambda started: tacit.SGLD(
            started, losses, tacit.GaussianPrior(10.0), settings.learning_rate / adult.size, dataset_size=adult.size,
            temperature=None,
        ),
        (scaled[0], adult.data.train_labels), plan, epsilon=epsilon / 3, keep_last=min(50, plan.steps),
    )  # fmt: skip
    return adult.accuracy(model, run.posterior, scaled[1])


def confident_gnmax(adult: Adult, epsilon: float) -> float:
    """PATE without semi-supervision, as in the paper: 250 teachers, a student on what they agree upon.

    The noise is the least whose data-independent bound is within epsilon; the threshold is 60 % of the teachers.
    """
    inputs, labels = adult.data.train_inputs.numpy(), adult.data.train_labels.numpy()
    public, rest = adult.data.test_inputs[:QUERIES], adult.data.test_inputs[PUBLIC:]
    votes = [_teacher(inputs[rows], labels[rows], public.numpy()) for rows in assign_teachers(adult.size, TEACHERS)]
    mechanism = _calibrated(epsilon)
    with tacit.LedgerFile(adult.folder("gnmax") / "ledger.jsonl", tacit.LedgerHeader(dataset="adult")) as ledger:
        answers = mechanism.answer(count_votes(votes, 2), ledger)
    known, targets = public.numpy()[answers.answered], adult.data.test_labels[PUBLIC:]
    student = _teacher(known, answers.labels[answers.answered], rest.numpy())
    return 100 * float((torch.as_tensor(student) == targets).float().mean())


def _teacher(inputs: np.ndarray, labels: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """A plain logistic regression; one class, or none, if that is all it saw."""
    if len(np.unique(labels)) < 2:
        return np.full(len(asked), labels[0] if len(labels) else 0)
    return LogisticRegression(C=10.0, max_iter=200).fit(inputs, labels).predict(asked)


def _calibrated(epsilon: float) -> ConfidentGNMax:
    def build(noise: float) -> ConfidentGNMax:
        return ConfidentGNMax(0.6 * TEACHERS, 2 * noise, noise, ANSWERS)

    low, high = 1.0, 1e4
    for _ in range(40):
        middle = (low * high) ** 0.5
        [found] = tacit.guarantees(tacit.Ledger.planned(build(middle).charges(QUERIES)), DELTA, only=["pld"])
        low, high = (low, middle) if found.epsilon <= epsilon else (middle, high)
    return build(high)


def non_private(adult: Adult) -> float:
    model = LogisticRegression(C=10.0, max_iter=500).fit(adult.data.train_inputs, adult.data.train_labels)
    return 100 * float(model.score(adult.data.test_inputs, adult.data.test_labels))


METHODS = {
    "DP-SGLD, tempered": sgld,
    "DP-SGLD, temperature 1": sgld_at_temperature_1,
    "DPVI": dpvi,
    "OPS, three columns": one_posterior_sample,
    "hybrid, three columns": hybrid,
    "Confident-GNMax": confident_gnmax,
}
