"""What discrete Gaussian noise on an integer grid costs (Canonne, Kamath and Steinke 2020), sampled or not.

Let P and Q be the outputs without and with a unit, at a shift of whole steps. For a *whole* order k the sum over the
grid can be shifted by k whole steps, so that E_P[(Q/P)^k] = exp((k^2 - k) / (2 z^2)) holds exactly as for the Gaussian,
for every coordinate and hence for their product, whatever its scales.

- Without sampling their proposition 5 gives a (a - 1) / (2 z^2) for every real order a, in both directions.
- Poisson sampling, direction "remove": the binomial expansion of E_P[((1-q) + q Q/P)^k] for whole k has nothing but
  these moments, so that it equals that of the sampled Gaussian. Mixing over the other units' samples only lowers it.
- Direction "add" is the smaller one: Mironov et al. 2019, theorem 5, asks for an involution of the outputs that swaps
  P and Q, here x -> shift - x, which maps the grid onto itself and keeps its counting measure.
- Between whole orders the log moment is convex and 0 at order 1: the chord is an upper bound.

Privacy loss distributions follow by another way (docs/maths.md, section 12). A Gaussian *rounded* to whole steps
commutes with whole shifts, so sums with that noise are a function of sums with Gaussian noise and cost no more. The
discrete Gaussian is so near to the rounded one that nobody tells whole runs of them apart: ``rounding_gap``.
"""

import math
from collections.abc import Mapping

import numpy as np

from tacit.accountants.renyi.moments import chords
from tacit.ledger import DiscretePoissonSample
from tacit.types import Floats

_COORDINATES = 2.0**40  # of one release, at most: eight bytes each would fill eight terabytes
_FEWEST_STEPS = 2.0**20
_DEVIATIONS = 100.0  # what is further out has probability exp(-2500)


def discrete_log_moments(probability: float, noise_multiplier: float, orders: Floats) -> Floats:
    """(a - 1) times the Renyi divergence of order a > 1, in both directions: an upper bound.

    Example:
        >>> discrete_log_moments(1.0, 2.0, np.array([2.0, 2.5])).tolist()
        [0.25, 0.46875]
        >>> round(float(discrete_log_moments(0.01, 1.0, np.array([2.0]))[0]), 9)
        0.000171813
    """
    a = np.asarray(orders, dtype=float)
    if probability >= 1:
        return np.asarray(a * (a - 1) / (2 * noise_multiplier**2))
    return np.asarray(chords(np.array([float(probability)]), np.array([float(noise_multiplier)]), a)[0])


def rounding_gap(events: Mapping[DiscretePoissonSample, int]) -> float:
    """tau such that P(S) <= e^tau R(S) + e^-2400 and R(S) <= e^tau P(S) + e^-2400 for all S.

    P is this run, R the same with rounded Gaussian noise. The log moment of order a of the ratio of one coordinate is
    at most 0.05 a^2/s^4, s the noise in steps. Infinite where that is less than 2^20.
    """
    total = 0.0
    for event, count in events.items():
        width = min(query.noise_stddev / (query.grid or math.inf) for query in event.queries)
        total += count * 0.05 * _COORDINATES / width**4 if width >= _FEWEST_STEPS else math.inf
    return _DEVIATIONS * math.sqrt(total)
