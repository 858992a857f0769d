"""Where to evaluate: a window in x that holds all but 1e-21 of the tilted mass, and a step that is fine enough.

The moments of a step are M = E[exp(a rho(x))], x ~ N(0, m^2), with Re a = c + 1 (remove) or -c (add). The weight is
w(x) = exp(-x^2/(2 m^2) + Re(a) rho(x)).
"""

import numpy as np
from scipy.special import expit, logit

from tacit.accountants.pld.loss import loss_at
from tacit.types import Floats

REACH = 10.0  # Phi(-10) = 8e-24
SEGMENTS, FEWER_SEGMENTS = 96, 40  # of one step, and of each of many
_MANY = 64
DROPPED = 1e-22  # of the mass, on each side, each time
_TRIMS = 3
# window (at most 3 times 2e-22) and step (4e-22) together, of M(a) and of the noise itself, relative to M(Re a)
QUADRATURE_ERROR = 2e-21
_EXPONENT = 50.0  # 2 exp(-50) = 4e-22
_THETAS = np.linspace(0.02, 0.98, 49) * np.pi


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
        coarse = np.any(high - low > 2 * REACH * SEGMENTS / 8 * m)
        low, high = _trim(q, m, tilt, width, low, high)
        if not coarse:
            break
    return low, high


def _trim(q: Floats, m: Floats, tilt: Floats, width: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Cut an interval into segments with a proved supremum of w each, and drop segments from both ends while their sum
    stays below ``DROPPED``."""
    segments = SEGMENTS if len(q) <= _MANY else FEWER_SEGMENTS
    edges = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, segments + 1)
    log_weight, supremum = _segment_suprema(edges, q[:, None], m[:, None], tilt[:, None])
    reference = np.log(width) + log_weight.max(axis=1)
    length = (high - low) / segments + m  # m covers a node at a segment's edge
    mass = length[:, None] * np.exp(np.minimum(supremum - reference[:, None], 600.0))
    first = (np.cumsum(mass, axis=1) < DROPPED).sum(axis=1)
    last = segments - (np.cumsum(mass[:, ::-1], axis=1) < DROPPED).sum(axis=1)
    rows = np.arange(len(q))
    return edges[rows, first], edges[rows, last]


def _reach(q: Floats, m: Floats, tilt: Floats, width: Floats) -> tuple[Floats, Floats]:
    """An interval that holds all but about 2 Phi(-10) of the mass of w.

    Because 0 <= rho' <= 1/m^2, w lies between N(0, m^2) and N(a, m^2) in the likelihood-ratio order. For a <= 0,
    moreover, (log w)'' <= -1/m^2, so w falls at least as fast as N(mode, m^2) on both sides of its mode, which
    solves x = a s(x); the peak of w may be narrower than m, which costs a factor m/width.
    """
    low, high = np.minimum(tilt, 0) - REACH * m, np.maximum(tilt, 0) + REACH * m
    if np.all(tilt > -REACH * m):
        return low, high
    left, right, odds = np.minimum(tilt, 0), np.zeros_like(m), logit(q) - 0.5 / m**2
    for _ in range(24):
        middle = (left + right) / 2
        below = middle < tilt * expit(middle / m**2 + odds)
        left, right = np.where(below, middle, left), np.where(below, right, middle)
    reach = m * np.sqrt(REACH**2 + 2 * np.log(m / width))
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
