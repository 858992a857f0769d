"""A linear model on scattering features that private statistics have whitened: our best on small pictures.

Everything that sees data is in one ledger: the two statistics, released once on the full batch, and the steps. The
features are private (they are kept in a cache readable by its owner alone), and the pictures' scaling is public.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import tacit
from tacit.features import (
    Scattering,
    Statistics,
    StatisticsPlan,
    Whitening,
    cached_features,
    deskew,
    normalise_groups,
    private_statistics,
    unit_rows,
)

GROUPS = 27  # of three channels each


@dataclass(frozen=True)
class Recipe:
    """All settings of a run, fixed before it; the noise of the steps follows from the budget."""

    epsilon: float
    delta: float
    size: int
    batch: int
    steps: int
    mean_noise: float
    moment_noise: float
    ridge: float
    learning_rate: float
    keep_last: int  # iterates whose predictions are averaged, for nothing
    clip_norm: float = 0.05
    prior: float = 10.0


@dataclass(frozen=True)
class Task:
    """Rows [n, channels, positions] of norm 1, and labels."""

    train_rows: Tensor
    train_labels: Tensor
    test_rows: Tensor
    test_labels: Tensor


@dataclass(frozen=True)
class Outcome:
    accuracy: float
    ece: float
    epsilon: float


def scattered(images: Tensor, *, upright: bool = False, window: tuple[float, float] | None = None) -> Tensor:
    """Unit rows [n, 81, positions] of byte pictures; the mean over colours is taken first, writing is set upright.

    ``window`` lets what is in the middle count more: the spread of a Gaussian over rows and columns of positions.
    """
    scattering = Scattering(*images.shape[2:])

    def compute(pictures: Tensor) -> Tensor:
        parts = [part.float().mean(1, keepdim=True) / 255 for part in torch.split(pictures, 2048)]
        parts = [deskew(part) for part in parts] if upright else parts
        return torch.cat([normalise_groups(scattering(part), GROUPS) for part in parts])

    how = f"grey {'upright ' if upright else ''}{scattering}, {GROUPS} groups, 1"
    found = cached_features(images, how, compute)
    if window is not None:
        rows, columns = (bump(side, spread) for side, spread in zip(found.shape[2:], window, strict=True))
        found *= rows[:, None] * columns
    return unit_rows(found).flatten(2)


def bump(side: int, spread: float) -> Tensor:
    away = torch.arange(side) - (side - 1) / 2
    return torch.exp(-away.square() / (2 * spread**2))


def losses(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return cross_entropy(model(batch[0]), batch[1].long(), reduction="none")


def train_privately(recipe: Recipe, task: Task, folder: Path) -> Outcome:
    """One run with fresh noise and its own ledger."""
    statistics = StatisticsPlan(recipe.mean_noise, recipe.moment_noise)
    charge = tacit.ledger.Charge(statistics.event(*task.train_rows.shape[1:]), 1)
    sampling = tacit.PoissonSampling.of(batch_size=recipe.batch, dataset_size=recipe.size)
    found = tacit.calibrate_noise(
        recipe.epsilon, recipe.delta, probability=sampling.probability, steps=recipe.steps, beside=[charge]
    )
    plan = tacit.TrainingPlan(
        sampling, tacit.ClipRecords(recipe.clip_norm), tacit.GaussianNoise(found.noise_multiplier), recipe.steps,
        folder / "ledger.jsonl", budget=tacit.Budget(recipe.epsilon, recipe.delta), dataset_size=recipe.size,
        physical_batch=1024,
    )  # fmt: skip
    randomness = tacit.Randomness()
    released = private_statistics(
        task.train_rows, statistics, ledger=plan.ledger, header=plan.header(randomness), randomness=randomness
    )
    whitening = Whitening.of(released, ridge=recipe.ridge)
    rows = whitening.apply_(task.train_rows.clone()).flatten(1)
    method = tacit.SGD(
        linear(rows), losses, recipe.learning_rate, tacit.GaussianPrior(recipe.prior), dataset_size=recipe.size
    )
    run = tacit.train(method, (rows, task.train_labels), plan, keep_last=recipe.keep_last, randomness=randomness)
    test = whitening.apply_(task.test_rows.clone()).flatten(1)
    reliability = tacit.reliability(tacit.predict(method.model, run.posterior, test).mean, task.test_labels.long())
    [guarantee] = tacit.guarantees(run.ledger, recipe.delta, only=["pld"])
    return Outcome(100 * reliability.accuracy, reliability.ece, guarantee.epsilon)


def train_openly(task: Task, epochs: int, rate: float = 100.0) -> float:
    """The same linear model on the same features, whitened and trained without noise: what they can do."""
    wide = task.train_rows.transpose(0, 1).flatten(1)
    exact = Statistics(task.train_rows.mean(0), wide @ wide.T / len(task.train_rows))
    whitening = Whitening.of(exact, ridge=1.0)
    rows, labels = whitening.apply_(task.train_rows.clone()).flatten(1), task.train_labels.long()
    model = linear(rows)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for epoch in range(epochs):
        for part in torch.split(torch.randperm(len(rows)), 500):
            optimizer.param_groups[0]["lr"] = rate * (1 - epoch / epochs)
            optimizer.zero_grad()
            cross_entropy(model(rows[part]), labels[part]).backward()
            optimizer.step()
    with torch.no_grad():
        right = model(whitening.apply_(task.test_rows.clone()).flatten(1)).argmax(1) == task.test_labels
    return 100 * float(right.float().mean())


def linear(rows: Tensor) -> nn.Linear:
    """Ten classes, starting at 0."""
    model = nn.Linear(rows.shape[1], 10)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return model
