"""What noisy sums over units that were held out say about a model: scores with intervals. Post-processing.

Intervals are for units like those in the table: they hold noise and chance in who was held out. Shares are ratios of
noisy counts, with Fieller's interval, to which chance is added as Wilson does; means are ratios of sums, whose chance
follows from sums of squares. The area under the ROC curve has DeLong's variance over tenths, and the noise's to first
order.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tacit.intervals import Ratio, critical
from tacit.types import Floats

LEVEL = 0.95
BINS = 10
LOSS_CUT = 3.0  # nats: a probability of .05; what is less likely counts as that
Score = dict[str, float | str | None]


@dataclass(frozen=True, slots=True)
class Released:
    """Sums over the units that were held out, and the standard deviation of the noise on each. Public."""

    sums: dict[str, Floats]
    noise: dict[str, float]

    def total(self, name: str) -> float:
        return float(self.sums[name].sum())


def class_scores(found: Released, classes: tuple[str, ...]) -> list[Score]:
    """Accuracy and its baseline, log-loss and its own, Brier score; of two classes also how each is found.

    Example:
        >>> sums = {"right and wrong": np.array([[900.0, 100], [80, 20]]), "probabilities": np.ones((2, 10)),
        ...         "log-loss": np.array([130.0]), "squared log-loss": np.array([40.0]), "Brier": np.array([90.0]),
        ...         "calibration": np.array([2.0])}
        >>> scores = class_scores(Released(sums, dict.fromkeys(sums, 1.0)), ("well", "ill"))
        >>> [(score["query"], score["cell"], round(score["value"], 2)) for score in scores[:2]]
        [('accuracy', '', 0.89), ('accuracy of the most frequent', 'well', 0.91)]
    """
    return list(_class_scores(found, classes))


def _class_scores(found: Released, classes: tuple[str, ...]) -> Iterator[Score]:
    right, noise = found.sums["right and wrong"], found.noise["right and wrong"]
    totals = right.sum(1)
    frequent, rare = int(totals.argmax()), int(totals.argmin())
    every = np.ones_like(right)
    of_frequent, first = np.zeros_like(right), np.zeros_like(right)
    of_frequent[frequent], first[:, 0] = 1.0, 1.0
    yield _share("accuracy", "", right, first, every, noise)
    baseline = _share("accuracy of the most frequent", classes[frequent], right, of_frequent, every, noise)
    yield baseline
    if len(classes) == 2:
        for name, number in (("sensitivity", rare), ("specificity", 1 - rare)):
            inside = np.zeros_like(right)
            inside[number] = 1.0
            yield _share(name, classes[number], right, inside * first, inside, noise)
        yield _auc(found.sums["probabilities"], found.noise["probabilities"])
    units = float(right.sum()), noise * math.sqrt(right.size)
    yield _scaled(_mean("log-loss", "", found, "log-loss", "squared log-loss", units), LOSS_CUT)
    if len(classes) == 2:
        yield _entropy(baseline)
    yield _mean("Brier score", "", found, "Brier", None, units)
    if len(classes) == 2:
        yield _mean("mean probability minus share", classes[1], found, "calibration", "Brier", units, low=-1.0)


def number_scores(found: Released, half: float) -> list[Score]:
    """The typical error and that of always saying the mean, on the target's own scale.

    Args:
        half: half the declared range, in which errors and targets are counted.

    Example:
        >>> sums = {"units": 400.0, "squared errors": 4.0, "fourth powers": 0.1, "targets": 40.0}
        >>> sums["squared targets"] = 20.0
        >>> found = Released({name: np.array([one]) for name, one in sums.items()}, dict.fromkeys(sums, 0.1))
        >>> [(score["query"], round(score["value"], 2)) for score in number_scores(found, 50.0)]
        [('RMSE', 5.0), ('RMSE of the mean', 10.0)]
    """
    units = found.total("units"), found.noise["units"]
    return [
        _rooted(_mean("RMSE", "", found, "squared errors", "fourth powers", units), half),
        _rooted(_variance("RMSE of the mean", found, units), half),
    ]


def _share(name: str, cell: str, counts: Floats, part: Floats, whole: Floats, noise: float) -> Score:
    """A part of the counts over the whole, with noise and chance."""
    a, b = float((part * counts).sum()), float((whole * counts).sum())
    variances = np.full(counts.size, noise**2)
    ratio = Ratio(a, b, part.ravel(), whole.ravel(), variances, 0.0, 1.0, drawn=True)
    return _score(name, cell, ratio.value(), *ratio.interval(LEVEL))


def _mean(
    name: str, cell: str, found: Released, sums: str, squares: str | None, units: tuple[float, float], low: float = 0.0
) -> Score:
    """A sum over the number of units; without a sum of squares chance is as large as numbers up to 1 allow."""
    (b, noise_b), a = units, found.total(sums)
    mean = min(max(a / b, low), 1.0) if b > 0 else 0.0
    square = abs(mean) if squares is None or b <= 0 else max(found.total(squares) / b, mean**2)
    variances = np.array([found.noise[sums] ** 2, noise_b**2, max(b, 0.0) * (min(square, 1.0) - mean**2)])
    ratio = Ratio(a, b, np.array([1.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0]), variances, low, 1.0)
    return _score(name, cell, ratio.value(), *ratio.interval(LEVEL))


def _variance(name: str, found: Released, units: tuple[float, float]) -> Score:
    """Of the targets: to first order in the noise, with the most chance that a target in [-1, 1] can have."""
    (n, noise_n), first, second = units, found.total("targets"), found.total("squared targets")
    if n <= 2 * noise_n:
        return _score(name, "", 0.5, 0.0, 1.0)  # the noise may be all there is
    mean = min(max(first / n, -1.0), 1.0)
    value = min(max(second / n - mean**2, 0.0), 1.0)
    noise = [found.noise["squared targets"], 2 * mean * found.noise["targets"], (second / n - 2 * mean**2) * noise_n]
    chance = value * max((1 + abs(mean)) ** 2 - value, 0.0) / n
    reach = critical(LEVEL) * math.sqrt(sum((one / n) ** 2 for one in noise) + chance)
    return _score(name, "", value, max(0.0, value - reach), min(1.0, value + reach))


def _auc(bins: Floats, noise: float) -> Score:
    others, ones = bins
    many, few = float(others.sum()), float(ones.sum())
    if many <= 2 * noise * math.sqrt(BINS) or few <= 2 * noise * math.sqrt(BINS):
        return _score("AUC", "", 0.5, 0.0, 1.0)  # the noise may be all there is
    below = (np.cumsum(others) - others / 2) / many  # of the other class, for one in each tenth
    above = 1 - (np.cumsum(ones) - ones / 2) / few
    area = float(ones @ below / few)
    sizes = np.array([(below - area) / few, (above - area) / many])
    chance = float((np.maximum(np.array([ones, others]), 0) * sizes**2).sum())
    reach = critical(LEVEL) * math.sqrt(chance + noise**2 * float((sizes**2).sum()))
    return _score("AUC", "", min(max(area, 0.0), 1.0), max(0.0, area - reach), min(1.0, area + reach))


def _entropy(baseline: Score) -> Score:
    """The log-loss of always saying how frequent two classes are; it falls as the larger share grows from a half."""

    def loss(share: float) -> float:
        share = min(max(share, 0.5), 1.0)
        return -sum(one * math.log(one) for one in (share, 1 - share) if one > 0)

    value, low, high = (float(baseline[name] or 0.0) for name in ("value", "high", "low"))
    return _score("log-loss of the shares", "", loss(value), loss(low), loss(high))


def _scaled(score: Score, factor: float) -> Score:
    return score | {name: factor * float(score[name] or 0.0) for name in ("value", "low", "high")}


def _rooted(score: Score, half: float) -> Score:
    return score | {name: half * math.sqrt(max(float(score[name] or 0.0), 0.0)) for name in ("value", "low", "high")}


def _score(name: str, cell: str, value: float, low: float, high: float) -> Score:
    return {"query": name, "cell": cell, "value": value, "low": low, "high": high, "level": LEVEL}
