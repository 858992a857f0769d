"""Are draws, one row for each release, standard normal and independent? A p-value for each way they could fail."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtr, chdtrc, kolmogorov, ndtr
from scipy.stats import binom

from tacit.audit.finding import Trial, smallest, two_sided

Table = NDArray[np.float64]

_SORTED = 500_000  # draws that are sorted, for the shape and for repeated values
_LAGS = (1, 2, 3, 4, 8, 16, 64)
_BOUNDS = (3.0, 4.0, 4.5, 5.0)
_REPEATS = 3  # equal draws: with 2^53 values, five million draws hold so many with probability 5e-10


def normality_trials(draws: Table) -> list[Trial]:
    """Scale, mean, shape, tails, single coordinates, single releases, and dependence of every simple kind."""
    flat = draws.ravel()
    if not np.isfinite(flat).all():
        return [Trial("finite", 0.0, f"{int((~np.isfinite(flat)).sum())} draws are not finite")]
    ordered = np.sort(flat[:_SORTED])
    return [
        _scale(flat),
        _mean(flat),
        _shape(ordered),
        _resolution(ordered),
        *(_tail(flat, bound) for bound in _BOUNDS),
        _single("scale of single coordinates", (draws**2).sum(0), len(draws)),
        _single("scale of single releases", (draws**2).sum(1), draws.shape[1]),
        # a part that all coordinates, or all releases, have in common shows in their sums
        _single("sum over coordinates", draws.sum(1) ** 2 / draws.shape[1], 1),
        _single("sum over releases", draws.sum(0) ** 2 / len(draws), 1),
        _spread("spread of sums over coordinates", draws.sum(1) / math.sqrt(draws.shape[1])),
        _spread("spread of sums over releases", draws.sum(0) / math.sqrt(len(draws))),
        *(_lag(f"lag {lag} within a release", draws[:, :-lag], draws[:, lag:]) for lag in _LAGS if lag < len(draws.T)),
        *(_lag(f"lag {lag} between releases", draws[:-lag], draws[lag:]) for lag in _LAGS if lag < len(draws)),
    ]


def scale_of(draws: Table) -> float:
    return math.sqrt(float(np.mean(draws**2)))


def _scale(flat: Table) -> Trial:
    """The sum of squares is chi-square distributed."""
    return Trial("scale", _chi_square(float((flat**2).sum()), flat.size), f"{scale_of(flat):.5f} of the claim")


def _mean(flat: Table) -> Trial:
    z = float(flat.mean()) * math.sqrt(flat.size)
    return Trial("mean", two_sided(z), f"{z:.2f} standard errors from zero")


def _shape(ordered: Table) -> Trial:
    """Kolmogorov and Smirnov: the largest distance from the normal distribution function."""
    count = ordered.size
    right, steps = ndtr(ordered), np.arange(count + 1) / count
    distance = max(float((steps[1:] - right).max()), float((right - steps[:-1]).max()))
    return Trial("shape", float(kolmogorov(distance * math.sqrt(count))), f"distribution off by {distance:.2g}")


def _resolution(ordered: Table) -> Trial:
    """Draws made in single precision repeat themselves, because there are few of them."""
    equal = int((np.diff(ordered) == 0).sum())
    return Trial("resolution", 0.0 if equal >= _REPEATS else 1.0, f"{equal} equal draws among {ordered.size}")


def _tail(flat: Table, bound: float) -> Trial:
    expected = 2 * float(ndtr(-bound))
    beyond = int((np.abs(flat) > bound).sum())
    p = 2 * min(float(binom.cdf(beyond, flat.size, expected)), float(binom.sf(beyond - 1, flat.size, expected)))
    return Trial(f"beyond {bound:g}", p, f"{beyond} draws, {flat.size * expected:.1f} expected")


def _single(name: str, squares: Table, degrees: int) -> Trial:
    """Each of many sums of squares is chi-square distributed; the strangest of them decides."""
    low, high = chdtr(degrees, squares), chdtrc(degrees, squares)
    p = high if degrees == 1 else 2 * np.minimum(low, high)
    worst = int(np.argmin(p))
    return Trial(name, smallest(p), f"number {worst} has {squares[worst] / degrees:.4g} of what is claimed")


def _spread(name: str, sums: Table) -> Trial:
    total = float((sums**2).sum())
    return Trial(name, _chi_square(total, sums.size), f"variance {total / sums.size:.4f} of the claim")


def _lag(name: str, one: Table, other: Table) -> Trial:
    z = float((one * other).sum()) / math.sqrt(one.size)
    return Trial(name, two_sided(z), f"correlation {z / math.sqrt(one.size):.2g}")


def _chi_square(value: float, degrees: int) -> float:
    return float(min(1.0, 2 * min(chdtr(degrees, value), chdtrc(degrees, value))))
