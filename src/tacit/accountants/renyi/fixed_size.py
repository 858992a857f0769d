"""Renyi moments of a fixed-size sample without replacement, replace-one neighbours.

Replacing one unit moves the sum of a sample that holds it by at most twice the largest contribution, so the unsampled
release is a Gaussian of noise multiplier z/2. With g = size/population, sampling turns its privacy profile d into one
bounded by d'(1 + g (s - 1)) <= g d(s) for every ratio s >= 1 (Balle, Barthe and Gaboardi 2018, sampling without
replacement under substitution; Zhu, Dong and Wang 2022 give the same as a dominating pair). With u = g (exp(loss) - 1)
under x ~ N(0, (z/2)^2) that bound is E[(1 + u - s)_+].

Every moment is an integral of the profile with a positive weight: x^a - 1 - a (x - 1) has the second derivative
a (a - 1) x^(a-2), and because the relation is symmetric the profile at s < 1 is that at 1/s turned round. Hence

    E[(P/Q)^a] <= 1 + E[(F_a(u) + F_{1-a}(u)) 1{u > 0}],    F_a(u) = (1 + u)^a - 1 - a u,

for every real a > 1: both terms are the moments of the subsampled Gaussian, cut at u = 0.
"""

import math
from itertools import pairwise

import numpy as np

from tacit.accountants.renyi.moments import ratio_at
from tacit.types import Floats

_PANEL = np.polynomial.legendre.leggauss(12)
_TAILS = 11.0
_RANGES = (1.0, 11.0, 64.0, 256.0, math.inf)  # orders that share a grid
_PANELS = 2_000  # beyond that many, sampling is not worth computing: the unsampled Gaussian bounds it
_ROUNDING = 1e-12  # relative; against mpmath to order 4096 the panels are good to 4e-14
_SERIES = 1e-4  # below this a u three terms of the series are exact


def fixed_size_log_moments(probability: float, noise_multiplier: float, orders: Floats) -> Floats:
    """Upper bounds of log E[(P/Q)^a], in both directions, for each order a > 1.

    Args:
        probability: size over population.
        noise_multiplier: noise over the largest *contribution* of one unit, as ``FixedSizeSample`` keeps it.
    """
    half = noise_multiplier / 2
    result = np.asarray(orders * (orders - 1) / (2 * half**2))  # without sampling
    if probability >= 1:
        return result
    for low, high in pairwise(_RANGES):
        chosen = (orders > low) & (orders <= min(high, _PANELS * min(half, half**2)))
        if chosen.any():
            result[chosen] = _half_line(probability, half, orders[chosen])
    return result


def _half_line(g: float, z: float, a: Floats) -> Floats:
    """log(1 + E[(F_a + F_{1-a}) 1{u > 0}]) by Gauss-Legendre panels of one standard deviation or less."""
    x, log_weight = _grid(z, float(a.max()))
    u, log_ratio = ratio_at(x, g, z)
    terms = np.logaddexp(_log_excess(u, log_ratio, a[:, None]), _log_excess(u, log_ratio, 1 - a[:, None]))
    terms += log_weight
    top = terms.max(axis=1)
    total = np.log(np.exp(terms - top[:, None]).sum(axis=1)) + top
    return np.asarray(np.logaddexp(0.0, total) * (1 + _ROUNDING))


def _grid(z: float, order: float) -> tuple[Floats, Floats]:
    end = max(1.0, order) + _TAILS * z
    panels = math.ceil((end - 0.5) / min(z, z * z))
    edges = np.linspace(0.5, end, panels + 1)
    width = (edges[1] - edges[0]) / 2
    x = (edges[:-1, None] + width * (1 + _PANEL[0])).ravel()
    weight = np.log(np.tile(width * _PANEL[1], panels))
    return x, np.asarray(weight - 0.5 * (x / z) ** 2 - math.log(z * math.sqrt(2 * math.pi)))


def _log_excess(u: Floats, log_ratio: Floats, a: Floats) -> Floats:
    """log((1 + u)^a - 1 - a u) for u > 0 and a outside [0, 1], without cancellation or overflow."""
    exponent = a * log_ratio
    small = np.abs(a) * u < _SERIES
    tiny = np.where(small, u, 0.0)
    series = np.log(a * (a - 1) / 2) + 2 * np.log(u) + np.log1p((a - 2) * tiny / 3 * (1 + (a - 3) * tiny / 4))
    near = np.where(small, 1.0, np.expm1(np.minimum(exponent, 1.0)) - a * u)
    growth = np.maximum(exponent, 1.0)
    far = growth + np.log1p(-np.where(exponent > 1, (1 + a * u) * np.exp(-growth), 0.0))
    return np.where(small, series, np.where(exponent > 1, far, np.log(np.maximum(near, np.finfo(float).tiny))))
