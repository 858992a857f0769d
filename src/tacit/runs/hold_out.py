"""A private score: a random part of the units is kept from training, and noisy counts say how good the model is on it.

Every unit is held out by a coin of its own, which nobody sees. What is released are two histograms of the units that
were: right and wrong answers of each class, and probabilities in tenths for the first class and the others. A unit lies
in one cell of each (a user with several rows is shared out over the cells of the rows), so both have sensitivity 1.
They are charged on top of training, though a unit is never part of both.

Intervals are for units like those in the table: they hold noise and chance in who was held out. Shares are ratios of
noisy counts, with Fieller's interval; n p (1 - p) is added to the variance of the counts for chance. The area under the
ROC curve has DeLong's variance over tenths, and the noise's to first order.
"""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InputError
from tacit.intervals import Ratio, critical
from tacit.randomness import Randomness
from tacit.runs.folder import RunFolder
from tacit.runs.predictions import Predictor
from tacit.storage.files import read_bytes, replace_file
from tacit.tables import Encoded
from tacit.tables.releases import score_event
from tacit.types import Floats

LEVEL = 0.95
BINS = 10
Score = dict[str, float | str | None]


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
    return _some(data, ~held), _some(data, held)


def release_scores(predictor: Predictor, held: Encoded, noise: float, randomness: Randomness) -> list[Score]:
    """Predict what was held out, count, add noise and read the scores. It has been charged."""
    classes = predictor.problem.classes
    assert classes is not None
    labels, weights = held.targets.astype(np.int64), weights_of(held)
    said = predictor.classes(held.inputs).mean.numpy() if len(labels) else np.zeros((0, len(classes)))
    wrong = (said.argmax(1) != labels).astype(np.int64)
    tenth = np.clip((said[:, 1] * BINS).astype(np.int64), 0, BINS - 1)
    right_noise, bins_noise = (query.noise_stddev for query in score_event(noise).queries)
    right = _counted(2 * labels + wrong, 2 * len(classes), weights, right_noise, randomness)
    bins = _counted(BINS * (labels > 0) + tenth, 2 * BINS, weights, bins_noise, randomness)
    return read_scores(right.reshape(-1, 2), right_noise, bins.reshape(2, BINS), bins_noise, classes)


def read_scores(
    right: Floats, right_noise: float, bins: Floats, bins_noise: float, classes: tuple[str, ...]
) -> list[Score]:
    """Scores with intervals from released counts; post-processing.

    Args:
        right: [classes, 2], how many of each class were answered rightly and wrongly.
        bins: [2, tenths], of two classes, how many of each got which probability of the second.

    Example:
        >>> scores = read_scores(np.array([[900.0, 100], [80, 20]]), 1.0, np.ones((2, 10)), 1.0, ("well", "ill"))
        >>> [(score["query"], score["cell"], round(score["value"], 2)) for score in scores[:2]]
        [('accuracy', '', 0.89), ('accuracy of the most frequent', 'well', 0.91)]
    """
    totals = right.sum(1)
    frequent, rare = int(totals.argmax()), int(totals.argmin())
    every = np.ones_like(right)
    of_frequent, first = np.zeros_like(right), np.zeros_like(right)
    of_frequent[frequent], first[:, 0] = 1.0, 1.0
    found = [
        _share("accuracy", "", right, first, every, right_noise),
        _share("accuracy of the most frequent", classes[frequent], right, of_frequent, every, right_noise),
    ]
    if len(classes) == 2:
        for name, number in (("sensitivity", rare), ("specificity", 1 - rare)):
            inside = np.zeros_like(right)
            inside[number] = 1.0
            found.append(_share(name, classes[number], right, inside * first, inside, right_noise))
        found.append(_auc(bins, bins_noise))
    return found


def _share(name: str, cell: str, counts: Floats, part: Floats, whole: Floats, noise: float) -> Score:
    """A part of the counts over the whole, with noise and chance."""
    a, b = float((part * counts).sum()), float((whole * counts).sum())
    p = min(max(a / b, 0.0), 1.0) if b > 0 else 0.5
    chance = max(b, 0.0) * p * (1 - p)
    variances = np.append(np.full(counts.size, noise**2), chance)
    ratio = Ratio(a, b, np.append(part.ravel(), 1.0), np.append(whole.ravel(), 0.0), variances, 0.0, 1.0)
    return _score(name, cell, ratio.value(), *ratio.interval(LEVEL))


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


def _score(name: str, cell: str, value: float, low: float, high: float) -> Score:
    return {"query": name, "cell": cell, "value": value, "low": low, "high": high, "level": LEVEL}


def _counted(
    places: NDArray[np.int64], cells: int, weights: Floats | None, noise: float, randomness: Randomness
) -> Floats:
    counts = np.bincount(places, weights=weights, minlength=cells).astype(np.float64)
    return np.asarray(counts + noise * randomness.normals(cells).numpy())


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


def _some(data: Encoded, kept: NDArray[np.bool_]) -> Encoded:
    users = None if data.users is None else data.users[kept]
    return replace(data, inputs=data.inputs[kept], targets=data.targets[kept], users=users, rows=data.rows[kept])
