"""Scores of class probabilities on public data: what is right, how sure, and how honestly sure."""

import math
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from tacit.errors import InputError, check_inside
from tacit.evaluation.calibration import check_probabilities, reliability

_LEAST = 1e-12  # a probability of zero for what happened would make the whole score infinite


@dataclass(frozen=True, slots=True)
class Scores:
    """Accuracy, and scores that are better when smaller.

    Args:
        nll: mean negative log-likelihood, in nats.
        brier: mean squared distance of the probabilities from the truth, summed over the classes as Brier has it, in
            [0, 2]; with two classes it is twice what is often called so.
        ece, mce: expected and maximal calibration error over equal bins; the latter over bins of 25 records or more,
            None if there are none.
        adaptive_ece: the expected calibration error over bins of equally many records.
    """

    accuracy: float
    nll: float
    brier: float
    ece: float
    mce: float | None
    adaptive_ece: float

    def to_json(self) -> dict[str, float | None]:
        return asdict(self)


def majority_share(labels: Tensor) -> float:
    """How often who always says the most frequent class is right: what an accuracy has to be compared with.

    Example:
        >>> majority_share(torch.tensor([0, 0, 0, 1]))
        0.75
    """
    if not len(labels):
        raise InputError("labels must hold at least one class, found none")
    return float(torch.bincount(labels.long()).max()) / len(labels)


@dataclass(frozen=True, slots=True)
class Detection:
    """How well the rarer of two classes is found.

    Args:
        rare: the number of that class.
        auc: the chance that one of it gets a higher probability of it than one of the other class; 0.5 if by chance.
        sensitivity: the share of it that is called so.
        specificity: the share of the other class that is called so.
    """

    rare: int
    auc: float
    sensitivity: float
    specificity: float


def detection(probabilities: Tensor, labels: Tensor) -> Detection | None:
    """Of two classes, the rarer one among the labels; None for more classes, or if one of them never occurs.

    Example:
        >>> sure = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
        >>> found = detection(sure, torch.tensor([0, 0, 0, 1]))
        >>> found.rare, found.auc, found.sensitivity, found.specificity
        (1, 1.0, 0.0, 1.0)
    """
    check_probabilities(probabilities, labels)
    if probabilities.shape[1] != 2 or bool((labels == labels[0]).all()):
        return None
    rare = int(2 * int((labels == 1).sum()) <= len(labels))
    inside, called = labels == rare, probabilities.argmax(1) == rare
    return Detection(
        rare,
        separation(probabilities[~inside, rare], probabilities[inside, rare]),
        float(called[inside].double().mean()),
        float((~called[~inside]).double().mean()),
    )


def scores(probabilities: Tensor, labels: Tensor, *, bins: int = 15) -> Scores:
    """Score class probabilities [records, classes] against labels.

    Example:
        >>> certain = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> scores(certain, torch.tensor([0, 1])).accuracy
        1.0
    """
    check_probabilities(probabilities, labels)
    labels = labels.long()
    diagram = reliability(probabilities, labels, bins=bins)
    chosen = probabilities.gather(1, labels[:, None])[:, 0].double()
    truth = torch.nn.functional.one_hot(labels, probabilities.shape[1]).double()
    return Scores(
        accuracy=float((probabilities.argmax(1) == labels).double().mean()),
        nll=float(-chosen.clamp(min=_LEAST).log().mean()),
        brier=float((probabilities.double() - truth).square().sum(1).mean()),
        ece=diagram.ece,
        mce=diagram.mce_of_filled_bins,
        adaptive_ece=adaptive_calibration_error(probabilities, labels, bins=bins),
    )


def adaptive_calibration_error(probabilities: Tensor, labels: Tensor, *, bins: int = 15) -> float:
    """ECE over bins that hold equally many records (Nguyen and O'Connor 2015): no bin is empty, none is crowded."""
    confidence, predicted = probabilities.double().max(1)
    order = confidence.argsort()
    right = (predicted == labels)[order].double()
    parts = zip(right.tensor_split(bins), confidence[order].tensor_split(bins), strict=True)
    return sum(len(hit) * abs(float(hit.mean() - sure.mean())) for hit, sure in parts if len(hit)) / len(labels)


def separation(known: Tensor, unknown: Tensor) -> float:
    """How well an uncertainty tells unknown inputs from known ones: the area under the ROC curve, 0.5 if not at all.

    Args:
        known, unknown: an uncertainty (entropy, mutual information) of inputs like the data and of others.
    """
    if not (len(known) and len(unknown)):
        raise InputError("separation needs known and unknown inputs, found none of one of them")
    values = torch.cat([known, unknown]).double()
    if not bool(torch.isfinite(values).all()):
        raise InputError("separation needs finite uncertainties of known and unknown inputs")
    _, inverse, counts = torch.unique(values, return_inverse=True, return_counts=True)
    ranks = (counts.cumsum(0) - (counts - 1) / 2)[inverse]  # ties share their mean rank
    total = float(ranks[len(known) :].sum()) - len(unknown) * (len(unknown) + 1) / 2
    return total / (len(known) * len(unknown))


@dataclass(frozen=True, slots=True)
class Coverage:
    """How often intervals of each nominal level hold the truth."""

    levels: tuple[float, ...]
    covered: tuple[float, ...]

    @property
    def error(self) -> float:
        """The mean distance between nominal and actual coverage."""
        gaps = [abs(level - share) for level, share in zip(self.levels, self.covered, strict=True)]
        return sum(gaps) / len(gaps)


def coverage(cumulative: Tensor, levels: tuple[float, ...] = (0.5, 0.8, 0.9, 0.95, 0.99)) -> Coverage:
    """Coverage of central predictive intervals, from the predictive distribution function at each true value.

    A central interval of level p holds the truth exactly if |F(y) - 1/2| <= p/2.

    Example:
        >>> coverage(torch.tensor([0.5, 0.5, 0.99, 0.6])).covered[0]
        0.75
    """
    if not len(cumulative) or not bool(((cumulative >= 0) & (cumulative <= 1)).all()):
        raise InputError("cumulative must hold values of a distribution function, in [0, 1]")
    if not levels:
        raise InputError("levels must hold at least one level, found none")
    for level in levels:
        check_inside("levels", level)
    distance = (cumulative.double() - 0.5).abs()
    return Coverage(levels, tuple(round(float((distance <= p / 2 + 1e-12).double().mean()), 12) for p in levels))


def gaussian_nll(mean: Tensor, variance: Tensor, targets: Tensor) -> float:
    """Mean negative log-density of the targets under independent normal predictions, in nats."""
    if not bool((variance > 0).all()):
        raise InputError("a normal prediction needs variances above 0")
    each = 0.5 * ((targets - mean).square() / variance + variance.log() + math.log(2 * math.pi))
    return float(each.double().mean())
