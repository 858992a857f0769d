"""Gauss-Legendre panels up to a cap, where the trapezoid rule would feel the end of the noise.

A panel of half-width r with n nodes errs by at most 64/15 r sup|f| R^(-2n)/(1 - R^-2), the supremum over the ellipse
with foci at its ends and semi-axes r (R +- 1/R)/2. There, with theta = Im x/m^2 below pi and a tilt >= 0,

    |w exp(i y rho)| <= sup w exp(m^2 theta^2/2 + |y| alpha),

the supremum over the real extent of the ellipse and alpha = arg(1 - s + s exp(i theta)) at its upper end, where the
share s is largest: where s is small, panels stay wide however large y is. The bound is evaluated, not assumed.
"""

import math
from dataclasses import dataclass

import numpy as np

from tacit.accountants.pld.steps import loss_at
from tacit.types import Floats

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(20)
_GROWTH = 6.5
_LOG_ERROR = math.log(64 / 15) - 40 * math.log(_GROWTH) - math.log1p(-(_GROWTH**-2))
_ACROSS, _UP = (_GROWTH + 1 / _GROWTH) / 2, (_GROWTH - 1 / _GROWTH) / 2
_ALLOWED = 22.0  # of the exponent above: 40 log R = 74.9 leaves exp(-52)
_MOST_PANELS = 100_000


@dataclass(frozen=True, slots=True)
class Panels:
    """Nodes and weights for one step, and the error of its moments up to a height: of E[exp(a rho)], and of the noise.

    Both are logarithms, in units of m sqrt(2 pi), one for each tilt.
    """

    x: Floats
    weights: Floats
    log_error: Floats


def panels(law: tuple[float, float], tilts: Floats, ends: tuple[float, float], height: float) -> Panels | None:
    """Halve panels until the bound is negligible on each; None where a tilt is negative or they are too many.

    Args:
        law: q and m of the step.
        ends: of the window.
    """
    (q, m), (low, high) = law, ends
    if np.any(tilts < 0):
        return None
    # the widest half of a panel for which the bound can be negligible: theta = 2.5, or m^2 theta^2/2 = 20
    edges = np.linspace(low, high, max(2, math.ceil((high - low) / (2 * min(2 * m, 2.5 * m**2 / _UP)))) + 1)
    left, right = edges[:-1], edges[1:]
    while len(left) < _MOST_PANELS:
        half, centre = (right - left) / 2, (right + left) / 2
        log_weight = tilts[:, None] * loss_at(centre, np.array(q), np.array(m)).value - centre**2 / (2 * m**2)
        exponents = _log_supremum(q, m, tilts, left, right) + (_exponent(q, m, left, right, height) + np.log(half))
        # the integral of w is at least about m times its maximum
        bad = (exponents - log_weight.max(axis=1, keepdims=True)).max(axis=0) > _ALLOWED + math.log(m)
        if not np.any(bad):
            break
        left = np.sort(np.concatenate([left, centre[bad]]))
        right = np.append(left[1:], high)
    else:
        return None
    x = centre[:, None] + half[:, None] * _NODES
    log_error: Floats = np.logaddexp.reduce(exponents, axis=1) + (_LOG_ERROR + 1e-9)
    return Panels(x.ravel(), (half[:, None] * _NODE_WEIGHTS).ravel(), log_error)


def _exponent(q: float, m: float, left: Floats, right: Floats, height: float) -> Floats:
    """m^2 theta^2/2 + |y| alpha at its largest on each ellipse; infinite where that leaves the strip |theta| < pi."""
    half = (right - left) / 2
    theta = half * _UP / m**2
    share = loss_at((left + right) / 2 + half * _ACROSS, np.array(q), np.array(m)).share
    inside = np.minimum(theta, math.pi)
    alpha = np.arctan2(share * np.sin(inside), 1 - share + share * np.cos(inside))
    result: Floats = np.where(theta < 3.0, m**2 * theta**2 / 2 + height * alpha * (1 + 1e-9), math.inf)
    return result


def _log_supremum(q: float, m: float, tilts: Floats, left: Floats, right: Floats) -> Floats:
    """For each tilt an upper bound of log w on the real extent of each ellipse: rho is below its chord, the rest a
    parabola.

    For a tilt of at least 0 also of the noise itself, as w is compared with 1.
    """
    half, centre = (right - left) / 2, (right + left) / 2
    low, high = centre - half * _ACROSS, centre + half * _ACROSS
    at_low, at_high = loss_at(np.stack([low, high]), np.array(q), np.array(m)).value
    chord, tilt = (at_high - at_low) / (high - low), tilts[:, None]
    top = np.clip(m**2 * tilt * chord, low, high)
    by_chord = -(top**2) / (2 * m**2) + tilt * (at_low + chord * (top - low))
    plain = -(np.clip(0.0, low, high) ** 2) / (2 * m**2)
    result: Floats = np.logaddexp(by_chord, plain) + 1e-9
    return result
