"""Moments of the likelihood ratio of the Poisson-subsampled Gaussian, vectorised over events and orders.

With x ~ N(0, z^2), u(x) = q (exp((2x - 1) / (2 z^2)) - 1) and 1 + u the ratio of the two output densities,

    moment(a) = E[(1 + u)^a]

is what Renyi accounting needs: a = alpha for the direction "remove" (paper B, theorem 3, L term) and a = 1 - alpha for
"add" (the exact R term). Because E[u] = 0 it equals 1 + E[(1 + u)^a - 1 - a u], whose integrand is never negative
(Bernoulli's inequality), so that nothing cancels however small q is.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from tacit.errors import InputError

Array = NDArray[np.float64]

_CHUNK = 64  # events at a time, so that the tables stay in cache
_TAILS = 11.0  # standard deviations kept beyond the outermost tilted mean
_SMALL = 0.03  # below this |u| the binomial series is used
_FAINT = 0.1  # below this noise multiplier the grid would be too fine, and no guarantee is worth its price
_TERMS = 14  # of that series; (1025 * 0.03) never enters, as large orders are integers


def log_moments(probability: ArrayLike, noise_multiplier: ArrayLike, powers: ArrayLike) -> Array:
    """log E[(1 + u)^a] as an array [events, powers]; every entry is >= 0.

    Args:
        probability: q of each event, in [0, 1].
        noise_multiplier: z of each event, above 0.
        powers: a, any real number outside (0, 1); whole numbers of at least 2 are summed exactly.
    """
    q, z = np.broadcast_arrays(np.atleast_1d(probability), np.atleast_1d(noise_multiplier))
    q, z, a = q.astype(float), z.astype(float), np.atleast_1d(np.asarray(powers, dtype=float))
    whole = (a >= 2) & (a == np.round(a))
    result = np.empty((q.size, a.size))
    inside = (q > 0) & (q < 1)
    result[:, whole] = _by_chunks(_binomial_sums, q, z, a[whole], inside)
    result[:, ~whole] = _by_chunks(_integrals, q, z, a[~whole], inside & (z >= _FAINT))
    above = (a > 1) & ~whole
    result[np.ix_(z < _FAINT, above)] = _by_chunks(_chords, q, z, a[above], inside & (z < _FAINT))[z < _FAINT]
    if (z < _FAINT).any() and (a < 1).any():
        raise InputError(f"noise_multiplier must be at least {_FAINT} for the direction add, found {z.min():g}")
    result[q <= 0] = 0.0
    full = q >= 1
    result[full] = a * (a - 1) / (2 * z[full, None] ** 2)  # the plain Gaussian
    return result


def _by_chunks(formula: Any, q: Array, z: Array, a: Array, inside: NDArray[np.bool_]) -> Array:
    """Apply a formula to events of similar noise at a time; the rest of the rows is left for the caller."""
    result = np.zeros((q.size, a.size))
    order = np.flatnonzero(inside)[np.argsort(z[inside])]
    for start in range(0, order.size if a.size else 0, _CHUNK):
        rows = order[start : start + _CHUNK]
        result[rows] = formula(q[rows], z[rows], a)
    return result


def _binomial_sums(q: Array, z: Array, a: Array) -> Array:
    """log(1 + sum_{k=2}^a binom(a,k) q^k (1-q)^(a-k) (exp((k^2-k)/(2z^2)) - 1)): k = 0, 1 were taken out exactly."""
    k = np.arange(2, int(a.max()) + 1, dtype=float)
    exponent = (k * k - k) / (2 * z[:, None] ** 2)
    log_factorial = gammaln(np.arange(int(a.max()) + 1) + 1.0)
    base = k * _log_odds(q)[:, None] + exponent + np.log(-np.expm1(-exponent)) - log_factorial[2:]
    result = np.empty((q.size, a.size))
    for column, order in enumerate(a):
        used = int(order) - 1
        terms = base[:, :used] - log_factorial[used - 1 :: -1]
        top = terms.max(axis=1)
        terms -= top[:, None]
        excess = np.log(np.exp(terms, out=terms).sum(axis=1)) + top + log_factorial[used + 1] + order * np.log1p(-q)
        result[:, column] = np.logaddexp(0.0, excess)
    return result


def _log_odds(q: Array) -> Array:
    return np.asarray(np.log(q) - np.log1p(-q))


def _integrals(q: Array, z: Array, a: Array) -> Array:
    """log(1 + E[(1+u)^a - 1 - a u]) by the trapezoid rule, which converges geometrically here.

    The integral is that of Mironov et al. 2019, section 3.3; in place of their signed double series (which needs
    thousands of terms near q = 1/2 and cancels for small q) it is summed on a grid. The integrand is analytic in
    |Im x| < pi z^2, so a step of min(z, z^2)/3 leaves a relative error below 1e-15.
    """
    nodes, step = _nodes(z, a)
    log_weight = -0.5 * (nodes / z[:, None]) ** 2 + np.log(step / (z * math.sqrt(2 * math.pi)))[:, None]
    loss = (2 * nodes - 1) / (2 * z[:, None] ** 2)
    log_ratio = np.logaddexp(np.log1p(-q)[:, None], np.log(q)[:, None] + loss)
    small = np.abs(log_ratio) < _SMALL
    weight = np.exp(log_weight)
    u = np.where(small, q[:, None] * np.expm1(np.minimum(loss, 700.0)), 0.0)
    series = np.stack([(weight * u**k).sum(axis=1) for k in range(2, _TERMS)], axis=1) @ _binomials(a)
    return _with_large(np.where(small, -np.inf, log_weight), log_ratio, a, _shift(q, z, a), series)


def _chords(q: Array, z: Array, a: Array) -> Array:
    """An upper bound: the log moment is convex in a and 0 at a = 1."""
    whole = np.arange(1.0, math.ceil(a.max()) + 1)
    moments = np.concatenate([np.zeros((q.size, 1)), _binomial_sums(q, z, whole[1:])], axis=1)
    return np.stack([np.interp(a, whole, row) for row in moments])


def _binomials(a: Array) -> Array:
    """binom(a, k) with its sign, for real a and k = 2 .. _TERMS - 1, as an array [k, a]."""
    k = np.arange(_TERMS - 1)[:, None]
    return np.asarray(np.cumprod((a - k) / (k + 1), axis=0)[1:])


def _nodes(z: Array, a: Array) -> tuple[Array, Array]:
    """A grid per event over all the tilted means between 0 and a."""
    low = min(0.0, float(a.min())) - _TAILS * z
    high = max(1.0, float(a.max())) + _TAILS * z
    count = int(np.ceil(((high - low) / (np.minimum(z, z * z) / 3)).max())) + 1
    return low[:, None] + np.linspace(0, 1, count) * (high - low)[:, None], (high - low) / (count - 1)


def _shift(q: Array, z: Array, a: Array) -> Array:
    """About the logarithm of the largest integrand, taken out so that nothing overflows."""
    tilted = a * np.log(q)[:, None] + a * (a - 1) / (2 * z[:, None] ** 2)  # never above the log moment for a > 1
    return np.asarray(np.where(a > 0, np.maximum(0.0, tilted), 0.0))


def _with_large(log_weight: Array, log_ratio: Array, a: Array, shift: Array, series: Array) -> Array:
    """Add, to the small-u series, the nodes of larger u: sum of w ((1+u)^a - 1 - a u), scaled by exp(-shift)."""
    weight = np.exp(log_weight)
    mass = weight.sum(axis=1)
    first = np.exp(log_weight + log_ratio).sum(axis=1) - mass
    result = np.empty((log_ratio.shape[0], a.size))
    for column, power in enumerate(a):
        down = shift[:, column]
        total = np.exp(log_weight + power * log_ratio - down[:, None]).sum(axis=1)
        excess = total + np.exp(-down) * (series[:, column] - mass - power * first)
        log_excess = np.log(np.maximum(excess, np.finfo(float).tiny))  # rounding alone can make it negative
        result[:, column] = np.logaddexp(0.0, log_excess + down)
    return result
