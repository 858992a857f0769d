"""A private score: a random part of the units is kept from training, and noisy sums say how good the model is on it.

Every unit is held out by a coin of its own, which nobody sees. What is released are sums over the units that were:
right and wrong answers of each class, probabilities in tenths, losses, errors (``scores`` reads them). No unit adds
more than 1 to any of them (a user with several rows is shared out over the rows), so each has sensitivity 1. They are
charged on top of training, though a unit is never part of both.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InputError
from tacit.randomness import Randomness
from tacit.runs.folder import RunFolder
from tacit.runs.predictions import Predictor
from tacit.runs.quality.scores import BINS, LOSS_CUT, Released, Score, class_scores, number_scores
from tacit.storage.files import read_bytes, replace_file
from tacit.tables import Encoded, target_scale
from tacit.tables.settings import score_event
from tacit.types import Floats


def split_off(
    data: Encoded, share: float, folder: RunFolder, randomness: Randomness, *, resume: bool
) -> tuple[Encoded, Encoded]:
    """The records to train on and those that are held out; a run that goes on keeps to its first split."""
    if not resume:
        units, place = _units(data)
        coins = randomness.words("sampling", units) < np.uint64(share * 2**64)
        replace_file(folder.hold_out, np.packbits(coins[place]).tobytes())
        folder.hold_out.chmod(0o600)
    found = read_bytes(folder.hold_out)
    if found is None or len(found) != math.ceil(len(data.rows) / 8):
        raise InputError(f"{folder.hold_out} is not that of this table: which records were held out is not known")
    held = np.unpackbits(np.frombuffer(found, np.uint8), count=len(data.rows)).astype(bool)
    return data.at(~held), data.at(held)


def release_scores(predictor: Predictor, held: Encoded, noise: float, randomness: Randomness) -> list[Score]:
    """Predict what was held out, add up, add noise and read the scores. It has been charged."""
    problem, weights = predictor.problem, weights_of(held)
    numbers = problem.classes is None
    parts = _of_numbers(predictor, held) if numbers else _of_classes(predictor, held)
    stddevs = {query.group: query.noise_stddev for query in score_event(noise, numbers=numbers).queries}
    sums = {name: _summed(part, weights, stddevs[name], randomness) for name, part in parts.items()}
    found = Released(sums, stddevs)
    if problem.classes is None:
        return number_scores(found, target_scale(problem.schema, problem.target)[1])
    return class_scores(found, problem.classes)


@dataclass(frozen=True, slots=True)
class _Part:
    """What each record adds, of size at most 1, and to which cell of which shape. Private."""

    places: NDArray[np.int64]
    values: Floats
    shape: tuple[int, ...] = (1,)


def _of_classes(predictor: Predictor, held: Encoded) -> dict[str, _Part]:
    """A record lies in one cell of each histogram, and adds a number from 0 to 1 (calibration: -1 to 1) to each sum."""
    classes = predictor.problem.classes
    assert classes is not None
    labels = held.targets.astype(np.int64)
    said = predictor.classes(held.inputs).mean.double().numpy() if len(labels) else np.zeros((0, len(classes)))
    said = np.nan_to_num(said)
    wrong, ones = (said.argmax(1) != labels).astype(np.int64), np.ones(len(labels))
    tenth = np.clip((said[:, 1] * BINS).astype(np.int64), 0, BINS - 1)
    true = said[np.arange(len(labels)), labels]
    loss = np.minimum(-np.log(np.clip(true, math.exp(-LOSS_CUT), 1.0)), LOSS_CUT) / LOSS_CUT
    brier = np.clip(np.square(said - np.eye(len(classes))[labels]).sum(1) / 2, 0.0, 1.0)
    return {
        "right and wrong": _Part(2 * labels + wrong, ones, (len(classes), 2)),
        "probabilities": _Part(BINS * (labels > 0) + tenth, ones, (2, BINS)),
        "log-loss": _sum(loss),
        "squared log-loss": _sum(loss**2),
        "calibration": _sum(np.clip(said[:, 1] - (labels == 1), -1.0, 1.0)),
        "Brier": _sum(brier),
    }


def _of_numbers(predictor: Predictor, held: Encoded) -> dict[str, _Part]:
    """Errors and targets in units of half the declared range; an error beyond it counts as that."""
    targets = np.clip(np.nan_to_num(held.targets.astype(np.float64)), -1.0, 1.0)
    middle, half = target_scale(predictor.problem.schema, predictor.problem.target)
    said = predictor.numbers(held.inputs).mean.double().numpy() if len(targets) else np.zeros(0)
    squares = np.clip(np.nan_to_num(np.square((said - middle) / half - targets), nan=1.0), 0.0, 1.0)
    return {
        "units": _sum(np.ones(len(targets))),
        "squared errors": _sum(squares),
        "fourth powers": _sum(squares**2),
        "targets": _sum(targets),
        "squared targets": _sum(targets**2),
    }


def _sum(values: Floats) -> _Part:
    return _Part(np.zeros(len(values), dtype=np.int64), np.asarray(values, dtype=np.float64))


def _summed(part: _Part, weights: Floats | None, noise: float, randomness: Randomness) -> Floats:
    cells = math.prod(part.shape)
    values = part.values if weights is None else part.values * weights
    sums = np.bincount(part.places, weights=values, minlength=cells).astype(np.float64)
    return np.asarray(sums + noise * randomness.normals(cells).numpy()).reshape(part.shape)


def _units(data: Encoded) -> tuple[int, NDArray[np.int64]]:
    """How many units there are, and whose each record is."""
    if data.users is None:
        return len(data.rows), np.arange(len(data.rows))
    names, place = np.unique(data.users.astype(str), return_inverse=True)
    return len(names), place.astype(np.int64)


def weights_of(data: Encoded) -> Floats | None:
    """Of records: one over how many their owner has; None where records are the units."""
    if data.users is None:
        return None
    units, place = _units(data)
    return np.asarray(1.0 / np.bincount(place, minlength=units)[place])
