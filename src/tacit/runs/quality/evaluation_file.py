"""evaluation.json: what predictions were worth on data that was declared public, as numbers that can be drawn."""

import itertools
import math
from dataclasses import dataclass

from tacit.errors import InputError
from tacit.storage.json_files import Fields


@dataclass(frozen=True, slots=True)
class Classification:
    """Scores of class probabilities, and three pictures as numbers: reliability, entropy, selective accuracy."""

    data: str
    records: int
    accuracy: float
    accuracy_of_the_most_frequent: float | None
    rare: str
    auc: float | None
    sensitivity: float | None
    specificity: float | None
    nll: float | None
    brier: float | None
    ece: float | None
    mce: float | None
    edges: tuple[float, ...]
    confidence: tuple[float, ...]
    observed: tuple[float, ...]
    count: tuple[float, ...]
    entropy_edges: tuple[float, ...]
    entropy_right: tuple[float, ...]
    entropy_wrong: tuple[float, ...]
    kept: tuple[float, ...]
    kept_accuracy: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Regression:
    """Scores of predicted numbers, and how often intervals held the truth."""

    data: str
    records: int
    rmse: float
    rmse_of_a_constant: float | None
    nll: float | None
    level: tuple[float, ...]
    held: tuple[float, ...]


Evaluation = Classification | Regression


def parse_evaluation(given: Fields) -> Evaluation:
    """A file with an accuracy is about classes, one with an rmse about numbers."""
    return _regression(given) if given.value("rmse") is not None else _classification(given)


def _classification(given: Fields) -> Classification:
    bins, entropy, selective = (_part(given, name) for name in ("reliability", "entropy", "selective"))
    rare = _part(given, "detection")
    found = Classification(
        data=given.text("data", "test data"),
        records=_records(given),
        accuracy=given.needed("accuracy"),
        accuracy_of_the_most_frequent=given.number("accuracy_of_the_most_frequent"),
        rare=rare.text("rare", "the rarer class"),
        auc=rare.number("auc"),
        sensitivity=rare.number("sensitivity"),
        specificity=rare.number("specificity"),
        nll=given.number("nll"),
        brier=given.number("brier"),
        ece=given.number("ece"),
        mce=given.number("mce"),
        edges=bins.numbers("edges"),
        confidence=bins.numbers("confidence"),
        observed=bins.numbers("accuracy"),
        count=bins.numbers("count"),
        entropy_edges=entropy.numbers("edges"),
        entropy_right=entropy.numbers("right"),
        entropy_wrong=entropy.numbers("wrong"),
        kept=selective.numbers("kept"),
        kept_accuracy=selective.numbers("accuracy"),
    )
    _check_bins("reliability", found.edges, found.confidence, found.observed, found.count)
    _check_bins("entropy", found.entropy_edges, found.entropy_right, found.entropy_wrong)
    _check_pairs("selective", found.kept, found.kept_accuracy)
    _check_shares((found.accuracy,), found.confidence, found.observed, found.kept, found.kept_accuracy)
    rates = (found.accuracy_of_the_most_frequent, found.auc, found.sensitivity, found.specificity)
    _check_shares(tuple(rate for rate in rates if rate is not None))
    if min((*found.count, *found.entropy_right, *found.entropy_wrong), default=0.0) < 0:
        raise InputError("evaluation.json: a count must not be below 0")
    return found


def _regression(given: Fields) -> Regression:
    intervals = _part(given, "coverage")
    level, held = intervals.numbers("level"), intervals.numbers("held")
    _check_pairs("coverage", level, held)
    _check_shares(level, held)
    return Regression(
        data=given.text("data", "test data"),
        records=_records(given),
        rmse=given.needed("rmse"),
        rmse_of_a_constant=given.number("rmse_of_a_constant"),
        nll=given.number("nll"),
        level=level,
        held=held,
    )


def _records(given: Fields) -> int:
    found = given.count("records")
    if not found:
        raise InputError(f"{given.where}: records must be a whole number of at least 1, found {found!r}")
    return found


def _part(given: Fields, name: str) -> Fields:
    return given.part(name) or Fields(f"{given.where}: {name}", {})


def _check_bins(name: str, edges: tuple[float, ...], *values: tuple[float, ...]) -> None:
    if not edges and not any(values):
        return
    lengths = {len(item) for item in values}
    rising = all(before < after for before, after in itertools.pairwise(edges))  # NaN fails too
    if lengths != {len(edges) - 1} or not lengths or len(edges) < 2 or not rising:
        raise InputError(f"evaluation.json: {name} needs rising edges, one more than values, found {len(edges)} edges")


def _check_pairs(name: str, x: tuple[float, ...], y: tuple[float, ...]) -> None:
    if len(x) != len(y) or any(math.isnan(value) for value in (*x, *y)):
        raise InputError(
            f"evaluation.json: {name} needs two lists of numbers of one length, found {len(x)} and {len(y)}"
        )


def _check_shares(*values: tuple[float, ...]) -> None:
    for value in (item for items in values for item in items):
        if value < 0 or value > 1:
            raise InputError(f"evaluation.json: a share must lie between 0 and 1, found {value!r}")
