"""How far numbers lie from their predictions: a noisy histogram of residuals, charged like every other release.

Learning mean and spread together under a clip makes the spread too small, because surprising records are cut off
(docs/appendix/laboratory.md). So the mean is learned first, by a clipped squared error, and the residuals of the
released mean are then counted in fixed bins, half an octave each. A record lies in one bin: sensitivity 1
whatever the target's scale. Fitting a normal distribution, or a mixture of two where the counts clearly ask for it, is
post-processing.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from tacit.accountants.budget import charge_within
from tacit.ledger import Charge, LedgerFile
from tacit.randomness import Randomness
from tacit.runs.facts import Spread
from tacit.tables.settings import spread_event
from tacit.training import TrainingPlan
from tacit.types import Floats

EDGES: Floats = np.concatenate([[0.0], 2.0 * 2.0 ** (-np.arange(20, 0, -1) / 2), [np.inf]])  # |target| is at most 1
_STDDEVS: Floats = np.geomspace(0.002, 1.5, 54)
_CLEARLY = 6.0  # by how much chi square must fall before two normals are believed


@dataclass(frozen=True, slots=True)
class Histogram:
    """How far a run came with its histogram: what it released, or that it began to and may have been cut off.

    ``begin`` notes durably that noise is about to be drawn, ``keep`` what came of it; between the two there is little
    else. Counts that a crash took away there may have been seen before, so that they are paid for again; without the
    note nobody could tell.
    """

    spread: Spread | None = None
    begun: bool = False
    begin: Callable[[], None] = lambda: None
    keep: Callable[[Spread], None] = lambda _: None


def charge_spread(plan: TrainingPlan, noise: float, randomness: Randomness) -> None:
    """Charge another histogram to the ledger of a run that was trained; the first is charged before its steps."""
    charges = [Charge(spread_event(noise), 1)]
    with LedgerFile(plan.ledger, plan.header(randomness), create=False) as file:
        charge_within(plan.budget, file, charges)


def release_spread(
    residuals: Floats, users: NDArray[np.int64] | None, plan: TrainingPlan, noise: float, randomness: Randomness
) -> Spread:
    """Count, add noise and fit. It has been charged."""
    counts = _histogram(np.abs(residuals), users) + noise * randomness.normals(len(EDGES) - 1).numpy()
    units = plan.dataset_size or round(plan.sampling.implied_size)
    return fit_spread(counts, units, noise)


def _histogram(distances: Floats, users: NDArray[np.int64] | None) -> Floats:
    """How many units lie in each bin; a user with many rows counts once, shared out over the bins of the rows."""
    finite = np.isfinite(distances)
    place = np.clip(np.digitize(distances[finite], EDGES) - 1, 0, len(EDGES) - 2)
    if users is None:
        weights = None
    else:
        rows = np.bincount(users)
        weights = 1.0 / rows[users[finite]]
    return np.bincount(place, weights=weights, minlength=len(EDGES) - 1).astype(np.float64)


def fit_spread(counts: Floats, units: int, noise: float) -> Spread:
    """One normal, or two if that explains the noisy counts clearly better (least squares over a grid).

    Example:
        >>> shares = 2 * (ndtr(EDGES[1:] / 0.1) - ndtr(EDGES[:-1] / 0.1))
        >>> fit = fit_spread(1000 * shares, 1000, noise=10.0)
        >>> len(fit.stddevs), bool(abs(fit.stddevs[0] - 0.1) < 0.01)
        (1, True)
    """
    shares = np.array([2 * (ndtr(EDGES[1:] / s) - ndtr(EDGES[:-1] / s)) for s in _STDDEVS])
    found, variance = counts / units, (noise / units) ** 2 + 0.05 / units  # noise, and chance in counts of about n / 20
    single = ((found - shares) ** 2).sum(1)
    between = shares[:, None] - shares
    weight = ((found - shares) * between).sum(2) / np.maximum((between**2).sum(2), 1e-12)
    weight = np.clip(weight, 0.0, 1.0)
    double = ((found - weight[..., None] * shares[:, None] - (1 - weight[..., None]) * shares) ** 2).sum(2)
    first, second = np.unravel_index(int(double.argmin()), double.shape)
    best = int(single.argmin())
    if single[best] - double[first, second] <= _CLEARLY * variance:
        return Spread((float(_STDDEVS[best]),), (1.0,))
    share = float(weight[first, second])
    return Spread((float(_STDDEVS[first]), float(_STDDEVS[second])), (share, 1 - share))
