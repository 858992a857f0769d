"""Moments of the likelihood ratio of the Poisson-subsampled Gaussian, vectorised over events and orders.

With x ~ N(0, z^2), u(x) = q (exp((2x - 1) / (2 z^2)) - 1) and 1 + u the ratio of the two output densities,

    moment(a) = E[(1 + u)^a]

is what Renyi accounting needs: a = alpha for the direction "remove" (Triastcyn and Faltings, theorem 3, L term) and a =
1 - alpha for "add" (the exact R term). Because E[u] = 0 it equals 1 + E[(1 + u)^a - 1 - a u], whose integrand is never
negative (Bernoulli's inequality), so that nothing cancels however small q is.

Every number is an upper bound: rounding is added, and where the integral would take too many points a bound that needs
none is taken: above a = 1 the chord between whole orders, below 0 the logarithm of the largest ratio.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from tacit.accountants.pld.loss import step, window
from tacit.accountants.pld.steps import UNIT
from tacit.errors import InputError
from tacit.types import Floats

_Formula = Callable[[Floats, Floats, Floats], Floats]

LARGEST_ORDER = 100_000.0
_CHUNK = 64  # events at a time, so that the tables stay in cache
_TAILS = 11.0  # standard deviations kept beyond the outermost tilted mean
_MOST_POINTS = 60_000  # of one event's integral
_TABLE = 1_000_000  # points of several events together
_SIZES = (0.0, 11.0, 64.0, 512.0, 4096.0, math.inf)  # of orders |a| that share a grid and a series
_SMALL = 0.33  # below this |a u| the binomial series is used
_TERMS = 14  # of that series: 0.36^14 / 14! is below half a unit of the first one
_NARROW = 0.005  # noise multipliers below which an integral takes too many points anyway
_FAINT, _LOUD = 1e-150, 1e70  # noise multipliers beyond which powers leave floating point
_AT_ONCE = 4096  # events

_FINE_ORDERS = np.round(np.arange(1.1, 10.95, 0.1), 1)  # fractional orders matter for few and for loud releases
_FAR_ORDERS = np.unique(np.round(np.geomspace(64, 1024, 20)))  # and large ones for faint releases
ORDERS: tuple[float, ...] = tuple(float(order) for order in (*_FINE_ORDERS, *range(11, 64), *_FAR_ORDERS))


def poisson_log_moments(rows: Sequence[tuple[float, float, int]], a: Floats) -> Floats:
    """The sum over (probability, noise multiplier, steps) of what the steps cost at each order."""
    total = np.zeros(a.size)
    for start in range(0, len(rows), _AT_ONCE):  # the moments of all of them at once need not fit into memory
        q, z, count = np.asarray(rows[start : start + _AT_ONCE], dtype=float).T
        with np.errstate(over="ignore"):  # an honest infinity
            total += count @ log_moments(q, z, a)
    return total


def checked_orders(orders: Floats) -> Floats:
    if orders.size == 0 or not (np.isfinite(orders).all() and (orders > 1).all()):
        raise InputError("orders must be finite numbers above 1")
    return orders


def log_moments(probability: ArrayLike, noise_multiplier: ArrayLike, powers: ArrayLike) -> Floats:
    """Upper bounds of log E[(1 + u)^a], tight to about 1e-10 where an integral or a sum is used: [events, powers].

    Args:
        probability: q of each event, in [0, 1].
        noise_multiplier: z of each event, above 0.
        powers: a, any real number outside (0, 1) of at most ``LARGEST_ORDER``; whole ones from 2 on are summed.
    """
    q, z = np.broadcast_arrays(np.atleast_1d(probability), np.atleast_1d(noise_multiplier))
    q, z, a = q.astype(float), np.minimum(z.astype(float), _LOUD), np.atleast_1d(np.asarray(powers, dtype=float))
    _check_powers(a)
    whole = (a >= 2) & (a == np.round(a))
    result = np.zeros((q.size, a.size))
    inside = (q > 0) & (q < 1) & (z > _FAINT)
    result[:, whole] = _by_chunks(_binomial_sums, q, z, a[whole], inside)
    for chosen in _same_size(a, ~whole):
        result[:, chosen] = _by_chunks(_fractional, q, z, a[chosen], inside)
    result[inside] = result[inside] * (1 + 4 * UNIT) + np.finfo(float).tiny
    below = a < 0
    result[:, below] = np.minimum(result[:, below], _largest_ratio(q, a[below]))
    full = (q >= 1) & (z > _FAINT)
    result[full] = a * (a - 1) / (2 * z[full, None] ** 2) * (1 + 8 * UNIT)  # the plain Gaussian
    result[np.ix_((q > 0) & (z <= _FAINT), (a > 1) | below)] = math.inf
    return result


def _check_powers(a: Floats) -> None:
    bad = a[~((np.abs(a) <= LARGEST_ORDER) & ((a >= 1) | (a <= 0)))]
    if bad.size:
        raise InputError(
            f"moments are bounded for orders from 1 to {LARGEST_ORDER:g} (and for powers from 0 down to "
            f"-{LARGEST_ORDER:g}), found {bad[0]:g}; smaller orders give a tighter epsilon"
        )


def _same_size(a: Floats, wanted: NDArray[np.bool_]) -> Iterator[NDArray[np.bool_]]:
    """Orders of one sign and of similar size."""
    for sign in (1.0, -1.0):
        for low, high in pairwise(_SIZES):
            chosen = wanted & (sign * a > low) & (sign * a <= high) & (a != 1)
            if chosen.any():
                yield chosen


def _by_chunks(formula: _Formula, q: Floats, z: Floats, a: Floats, inside: NDArray[np.bool_]) -> Floats:
    """Apply a formula to events of similar noise at a time; the rest of the rows is left for the caller."""
    result = np.zeros((q.size, a.size))
    order = np.flatnonzero(inside)[np.argsort(z[inside])]
    for start in range(0, order.size if a.size else 0, _CHUNK):
        rows = order[start : start + _CHUNK]
        result[rows] = formula(q[rows], z[rows], a)
    return result


def _binomial_sums(q: Floats, z: Floats, a: Floats) -> Floats:
    """log(1 + sum_{k=2}^a binom(a,k) q^k (1-q)^(a-k) (exp((k^2-k)/(2z^2)) - 1)): k = 0, 1 were taken out exactly.

    A term is the exponential of logarithms, each rounded in units of itself: their sizes bound the error of the sum.
    """
    k = np.arange(2, int(a.max()) + 1, dtype=float)
    exponent = (k * k - k) / (2 * z[:, None] ** 2)
    log_factorial = gammaln(np.arange(int(a.max()) + 1) + 1.0)
    odds = np.log(q) - np.log1p(-q)
    base = k * odds[:, None] + exponent + np.log(-np.expm1(-exponent)) - log_factorial[2:]
    result = np.empty((q.size, a.size))
    for column, order in enumerate(a):
        used = int(order) - 1
        terms = base[:, :used] - log_factorial[used - 1 :: -1]
        top = terms.max(axis=1)
        terms -= top[:, None]
        excess = np.log(np.exp(terms, out=terms).sum(axis=1)) + top + log_factorial[used + 1] + order * np.log1p(-q)
        sizes = (
            order * np.abs(odds) + exponent[:, used - 1] + log_factorial[used + 1] - np.log(exponent[:, 0]).clip(max=0)
        )
        result[:, column] = np.logaddexp(0.0, excess + 8 * UNIT * (sizes + order + 16))
    return result


def chords(q: Floats, z: Floats, a: Floats) -> Floats:
    """An upper bound for a > 1 from whole orders alone: the log moment is convex in a and 0 at a = 1."""
    whole = np.unique(np.concatenate([np.floor(a), np.ceil(a)]))
    whole = whole[whole >= 2]
    moments = np.pad(log_moments(q, z, whole), ((0, 0), (1, 0)))
    return np.stack([np.interp(a, np.append(1.0, whole), row) for row in moments])


def _largest_ratio(q: Floats, a: Floats) -> Floats:
    """log (1-q)^a for a < 0, as 1 + u is at least 1 - q: what is reached where noise hides nothing."""
    with np.errstate(divide="ignore"):
        return np.asarray(a * np.log1p(-np.minimum(q, 1.0))[:, None] * (1 + 8 * UNIT))


def _fractional(q: Floats, z: Floats, a: Floats) -> Floats:
    """Integrals where they are not too long, else the bound that needs none (orders of one sign and similar size)."""
    largest = float(a[np.argmax(np.abs(a))])
    wide = np.maximum(z, _NARROW)
    (low, high), width = _ends(q, wide, largest), step(wide, np.full(q.size, largest), 0.0)
    points = np.where(z > _NARROW, (high - low) / width, math.inf)
    short = points < _MOST_POINTS
    result = _largest_ratio(q, a) if largest < 0 else np.empty((q.size, a.size))
    if largest > 0 and not short.all():
        result[~short] = chords(q[~short], z[~short], a)
    rows = np.flatnonzero(short)
    while rows.size:
        count = int(points[rows].max()) + 2
        now, rows = rows[: max(1, _TABLE // count)], rows[max(1, _TABLE // count) :]
        nodes = low[now, None] + np.linspace(0, 1, count) * (high - low)[now, None]
        result[now] = _integrals(q[now], z[now], a, nodes)
    return result


def _ends(q: Floats, z: Floats, largest: float) -> tuple[Floats, Floats]:
    """An interval that holds all the tilted means between 0 (or the lowest mode) and max(1, a)."""
    low, high = -_TAILS * z, max(1.0, largest) + _TAILS * z
    if largest < 0:
        low = np.minimum(low, window(q, z, np.full(q.size, largest), np.full(q.size, np.inf))[0])
    return low, high


def _integrals(q: Floats, z: Floats, a: Floats, nodes: Floats) -> Floats:
    """log(1 + E[(1+u)^a - 1 - a u]) by the trapezoid rule, which converges geometrically here.

    The integral is that of Mironov et al. 2019, section 3.3; in place of their signed double series (which needs
    thousands of terms near q = 1/2 and cancels for small q) it is summed on a grid, whose step leaves a relative error
    below 1e-21 (``step`` of the contour engine).
    """
    width = (nodes[:, -1] - nodes[:, 0]) / (nodes.shape[1] - 1)
    log_weight = -0.5 * (nodes / z[:, None]) ** 2 + np.log(width / (z * math.sqrt(2 * math.pi)))[:, None]
    u, log_ratio = ratio_at(nodes, q[:, None], z[:, None])
    small = np.abs(log_ratio) * max(11.0, float(np.abs(a).max())) < _SMALL
    weight, near = np.exp(log_weight), np.where(small, u, 0.0)
    sums = np.stack([(weight * near**k).sum(axis=1) for k in range(2, _TERMS)], axis=1)
    series = sums @ _binomials(a) + 64 * UNIT * sums[:, :1] * np.abs(a * (a - 1))
    return _with_large(np.where(small, -np.inf, log_weight), log_ratio, a, series)


def ratio_at(x: Floats, q: Floats | float, z: Floats | float) -> tuple[Floats, Floats]:
    """u (no larger than e^600 q) and log(1 + u) at the outputs x."""
    loss = (2 * x - 1) / (2 * z**2)
    u = q * np.expm1(np.minimum(loss, 600.0))
    large = np.log(q) + loss + np.log1p((1 / q - 1) * np.exp(-np.maximum(loss, 600.0)))
    return u, np.where(loss < 600.0, np.log1p(u), large)


def _binomials(a: Floats) -> Floats:
    """binom(a, k) with its sign, for real a and k = 2 .. _TERMS - 1, as an array [k, a]."""
    k = np.arange(_TERMS - 1)[:, None]
    return np.asarray(np.cumprod((a - k) / (k + 1), axis=0)[1:])


def _with_large(log_weight: Floats, log_ratio: Floats, a: Floats, series: Floats) -> Floats:
    """Add, to the small-u series, the nodes of larger u: sum of w ((1+u)^a - 1 - a u), and its rounding.

    All is scaled by exp(-down), down the largest exponent, so that nothing overflows.
    """
    result = np.empty((log_ratio.shape[0], a.size))
    kept = np.isfinite(log_weight)
    sizes = np.where(kept, np.abs(log_weight), 0.0).max(axis=1)
    losses = np.where(kept, np.abs(log_ratio), 0.0).max(axis=1)
    lead = log_weight + log_ratio
    first_down = np.maximum(lead.max(axis=1), 0.0)
    mass, first = np.exp(log_weight).sum(axis=1), np.exp(lead - first_down[:, None]).sum(axis=1)
    for column, power in enumerate(a):
        exponents = log_weight + power * log_ratio
        down = np.maximum(exponents.max(axis=1), first_down)
        total = np.exp(exponents - down[:, None]).sum(axis=1)
        linear, level = power * np.exp(first_down - down) * first, (power - 1) * np.exp(-down) * mass
        excess = np.exp(-down) * series[:, column] + total - linear + level
        units = 16 + 4 * (sizes + abs(power) * losses + down) + math.sqrt(log_ratio.shape[1])
        excess += UNIT * units * (total + np.abs(linear) + np.abs(level))
        result[:, column] = np.logaddexp(0.0, np.log(np.maximum(excess, np.finfo(float).tiny)) + down)
    return result
