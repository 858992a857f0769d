"""The privacy loss of one step at a value of its noise, and at which values its moments are to be evaluated.

The moments of a step are M = E[exp(a rho(x))], x ~ N(0, m^2), with Re a = c + 1 (remove) or -c (add). The weight is
w(x) = exp(-x^2/(2 m^2) + Re(a) rho(x)). A window holds all but 1e-21 of its mass, and within it the trapezoid rule is
exact to 4e-22 if its points are as near as ``step`` says.

Where the noise is cut off, the trapezoid rule would feel the end: there are Gauss-Legendre panels. A panel of
half-width r with n nodes errs by at most 64/15 r sup|f| R^(-2n)/(1 - R^-2), the supremum over the ellipse with foci at
its ends and semi-axes r (R +- 1/R)/2. There, with theta = Im x/m^2 below pi and a tilt >= 0,

    |w exp(i y rho)| <= sup w exp(m^2 theta^2/2 + |y| alpha),

the supremum over the real extent of the ellipse and alpha = arg(1 - s + s exp(i theta)) at its upper end, where the
share s is largest: where s is small, panels stay wide however large y is. The bound is evaluated, not assumed.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from tacit.types import Floats

_LARGE = 700.0  # e^700 is still a float
_REACH = 10.0  # Phi(-10) = 8e-24
_SEGMENTS, _FEWER_SEGMENTS = 96, 40  # of one step, and of each of many
_MANY_STEPS = 64
_DROPPED = 1e-22  # of the mass, on each side, each time
_TRIMS = 3
_EXPONENT = 50.0  # 2 exp(-50) = 4e-22
_THETAS = np.linspace(0.02, 0.98, 49) * np.pi
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(20)
_GROWTH = 6.5
_LOG_ERROR = math.log(64 / 15) - 40 * math.log(_GROWTH) - math.log1p(-(_GROWTH**-2))
_ACROSS, _UP = (_GROWTH + 1 / _GROWTH) / 2, (_GROWTH - 1 / _GROWTH) / 2
_ALLOWED = 22.0  # of the exponent above: 40 log R = 74.9 leaves exp(-52)
_MOST_PANELS = 100_000


@dataclass(frozen=True, slots=True)
class Loss:
    """rho(x) = log(1 - q + q exp((2x-1)/(2 m^2))), the log ratio of (1-q) N(0, m^2) + q N(1, m^2) to N(0, m^2).

    Args:
        value: rho.
        share: s = m^2 rho'(x) in (0, 1), the posterior probability that the record took part; rho is convex in x.
        scale: rho is exact to within 12 UNIT times this.
    """

    value: Floats
    share: Floats
    scale: Floats


def loss_at(x: Floats, probability: Floats, noise_multiplier: Floats) -> Loss:
    """rho and rho' at the points x; the arguments broadcast."""
    q, square = probability, noise_multiplier**2
    exponent = (x - 0.5) / square
    value = _log_ratio(exponent, q)
    share = expit(exponent + logit(q))
    # errors of the exponent enter with weight s, of the logarithm with |rho|; near q = 1 the argument of the
    # logarithm is a sum of two rounded terms, which costs an absolute unit
    scale = share * (np.abs(exponent) + 1 / square + 1) + np.abs(value) + (q > 0.5)
    return Loss(value, share, scale)


def _log_ratio(exponent: Floats, q: Floats) -> Floats:
    """log(1 - q + q e^t), in the form that keeps most digits for each q and t; q e^t may be tiny at a large t."""
    small = np.minimum(exponent, _LARGE)
    moderate = np.where(q > 0.5, np.log((1 - q) + q * np.exp(small)), np.log1p(np.minimum(q, 0.5) * np.expm1(small)))
    large = exponent + np.log(q) + np.log1p((1 - q) / q * np.exp(-np.maximum(exponent, _LARGE)))
    result: Floats = np.where(exponent > _LARGE, large, moderate)
    return result


def window(q: Floats, m: Floats, tilt: Floats, caps: Floats) -> tuple[Floats, Floats]:
    """For each step an interval outside of which the integral of w, and any trapezoid sum of it, is negligible.

    A first interval (``_reach``) is trimmed, again if it was so long that its segments were coarse. Where the noise is
    cut off at a cap, the window ends there.
    """
    # (log w)'' >= -1/width^2, so M >= width w(x) at every x well below the cap
    width = 1 / np.sqrt(1 / m**2 + np.maximum(-tilt, 0) / (4 * m**4))
    low, high = _reach(q, m, tilt, width)
    high = np.minimum(high, caps)
    for _ in range(_TRIMS):
        coarse = np.any(high - low > 2 * _REACH * _SEGMENTS / 8 * m)
        low, high = _trim(q, m, tilt, width, low, high)
        if not coarse:
            break
    return low, high


def _trim(q: Floats, m: Floats, tilt: Floats, width: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Cut an interval into segments with a proved supremum of w each, and drop segments from both ends while their sum
    stays below ``_DROPPED``."""
    segments = _SEGMENTS if len(q) <= _MANY_STEPS else _FEWER_SEGMENTS
    edges = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, segments + 1)
    log_weight, supremum = _segment_suprema(edges, q[:, None], m[:, None], tilt[:, None])
    reference = np.log(width) + log_weight.max(axis=1)
    length = (high - low) / segments + m  # m covers a node at a segment's edge
    mass = length[:, None] * np.exp(np.minimum(supremum - reference[:, None], 600.0))
    first = (np.cumsum(mass, axis=1) < _DROPPED).sum(axis=1)
    last = segments - (np.cumsum(mass[:, ::-1], axis=1) < _DROPPED).sum(axis=1)
    rows = np.arange(len(q))
    return edges[rows, first], edges[rows, last]


def _reach(q: Floats, m: Floats, tilt: Floats, width: Floats) -> tuple[Floats, Floats]:
    """An interval that holds all but about 2 Phi(-10) of the mass of w.

    Because 0 <= rho' <= 1/m^2, w lies between N(0, m^2) and N(a, m^2) in the likelihood-ratio order. For a <= 0,
    moreover, (log w)'' <= -1/m^2, so w falls at least as fast as N(mode, m^2) on both sides of its mode, which
    solves x = a s(x); the peak of w may be narrower than m, which costs a factor m/width.
    """
    low, high = np.minimum(tilt, 0) - _REACH * m, np.maximum(tilt, 0) + _REACH * m
    if np.all(tilt > -_REACH * m):
        return low, high
    left, right, odds = np.minimum(tilt, 0), np.zeros_like(m), logit(q) - 0.5 / m**2
    for _ in range(24):
        middle = (left + right) / 2
        below = middle < tilt * expit(middle / m**2 + odds)
        left, right = np.where(below, middle, left), np.where(below, right, middle)
    reach = m * np.sqrt(_REACH**2 + 2 * np.log(m / width))
    return np.maximum(low, left - reach), np.minimum(high, right + reach)


def _segment_suprema(edges: Floats, q: Floats, m: Floats, tilt: Floats) -> tuple[Floats, Floats]:
    """log w at the edges, and an upper bound of log w on each segment.

    tilt > 0: rho is convex, hence below its chord, and what remains is a concave parabola. tilt <= 0: log w is
    concave, hence below its tangent at either edge.
    """
    loss = loss_at(edges, q, m)
    log_weight = -(edges**2) / (2 * m**2) + tilt * loss.value
    left, right = edges[:, :-1], edges[:, 1:]
    chord = np.diff(loss.value, axis=1) / (right - left)
    top = np.clip(m**2 * tilt * chord, left, right)
    by_chord = -(top**2) / (2 * m**2) + tilt * (loss.value[:, :-1] + chord * (top - left))
    slope = (-edges + tilt * loss.share) / m**2
    rise = log_weight[:, :-1] + np.maximum(slope[:, :-1], 0) * (right - left)
    fall = log_weight[:, 1:] + np.maximum(-slope[:, 1:], 0) * (right - left)
    return log_weight, np.where(tilt > 0, by_chord, np.minimum(rise, fall))


def step(m: Floats, tilt: Floats, height: float) -> Floats:
    """The largest trapezoid step whose relative error is below 2 exp(-50) for |Im a| <= height.

    w exp(i y rho) is analytic for |Im x| < pi m^2, and on Im x = m^2 theta its modulus is at most
    w exp(m^2 theta^2/2 + |y| theta) cos(theta/2)^min(Re a, 0), because |arg(1-q+q r e^(i theta))| <= theta and its
    modulus lies between cos(theta/2) and 1 times that at theta = 0. The trapezoid rule then errs by at most
    2 exp(m^2 theta^2/2 + |y| theta - 2 pi m^2 theta/h) cos(..)^.. M(Re a); solved for h, best theta of a grid and of
    the small one at which the second-order terms of the exponent equal 50.
    """
    square, negative = (m**2)[:, None], np.maximum(-tilt, 0)[:, None]
    small = np.sqrt(_EXPONENT / (square / 2 + negative / 8))
    theta = np.append(np.broadcast_to(_THETAS, (len(m), len(_THETAS))), np.minimum(small, _THETAS[-1]), axis=1)
    excess = _EXPONENT + square * theta**2 / 2 - negative * np.log(np.cos(theta / 2))
    wave = (excess / (square * theta)).min(axis=1) + height / m**2
    result: Floats = 2 * np.pi / wave
    return result


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
