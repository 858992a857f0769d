"""Where the moments of a step are evaluated: trapezoid points in a window of the noise, and what rounding may do there.

The moments of a step are M = E[exp(a rho(x))], x ~ N(0, m^2), with Re a = c + 1 (remove) or -c (add). The weight is
w(x) = exp(-x^2/(2 m^2) + Re(a) rho(x)). The window holds all but 1e-21 of its mass.

Where E|exp(a rho) - 1| is small, as for rare steps, F = log1p(E[expm1(a rho)]) keeps digits that log E[exp(a rho)]
would lose: a ledger of a million such steps multiplies every error by a million.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from tacit.accountants.pld.contour.panels import panels
from tacit.accountants.pld.steps import UNIT, UnresolvedError, loss_at
from tacit.types import Floats

REACH = 10.0  # Phi(-10) = 8e-24
SEGMENTS, FEWER_SEGMENTS = 96, 40  # of one step, and of each of many
_MANY_STEPS = 64
DROPPED = 1e-22  # of the mass, on each side, each time
_TRIMS = 3
# window (at most 3 times 2e-22) and step (4e-22) together, of M(a) and of the noise itself, relative to M(Re a)
QUADRATURE_ERROR = 2e-21
_EXPONENT = 50.0  # 2 exp(-50) = 4e-22
_THETAS = np.linspace(0.02, 0.98, 49) * np.pi
_MOST_POINTS = 4_000_000
_MOST_REAL_POINTS = 300_000  # on the real axis, which is searched: beyond, K counts as infinite
_MANY_KINDS = 64  # steps of which a ledger is not likely to have many of one kind
_FEW = 16  # kinds of steps for which panels are made one by one
_COVERED = 9.8  # Phi(-9.8) = 6e-23: a window of this reach holds all of the noise itself


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
    segments = SEGMENTS if len(q) <= _MANY_STEPS else FEWER_SEGMENTS
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


@dataclass(frozen=True, slots=True)
class Points:
    """Trapezoid points of several steps, one row for each.

    Args:
        weights: add up to 1.
        losses: rho.
        log_peak: F(tilt).
        peak_error: how far it may be off.
        rounding: the expected rounding of the weights, in units, and the same times |rho|.
        slope: rounding of the losses moves a moment by at most this times the height.
        rest: the error of quadrature and (``end``, a part of it) of the cap.
    """

    weights: Floats
    losses: Floats
    log_peak: Floats
    peak_error: Floats
    rounding: Floats
    rounding_by_loss: Floats
    slope: Floats
    rest: Floats
    end: Floats


def points_for(q: Floats, m: Floats, caps: Floats, tilt: float | Floats, height: float) -> Points:
    """The points for heights up to ``height``; one tilt for all steps, or one for each."""
    tilts = np.broadcast_to(np.asarray(tilt, dtype=np.float64), q.shape)
    rule = _by_panels(q, m, caps, tilts, height) or _by_trapezoid(q, m, caps, tilts, height)
    loss = loss_at(rule.x, q[:, None], m[:, None])
    log_noise = rule.x**2 / (2 * m[:, None] ** 2)
    exponent = tilts[:, None] * loss.value
    log_weight = exponent - log_noise
    shift = log_weight.max(axis=1)
    weights = np.exp(log_weight - shift[:, None]) * rule.widths
    total = weights.sum(axis=1)
    weights /= total[:, None]
    end = _end(q, m, caps, tilts, rule, shift, total)
    rest = QUADRATURE_ERROR + end + np.exp(np.minimum(rule.log_error - shift - np.log(total), 0.0))
    # rounding of the exponent of each weight, in units
    units = 10 * log_noise + 15 * np.abs(tilts)[:, None] * loss.scale + 16
    size = np.abs(loss.value)
    rounding, mean = (weights * units).sum(axis=1), (weights * size).sum(axis=1)
    by_loss = (weights * units * size).sum(axis=1) + rounding * mean
    log_peak = shift + np.log(total) - np.log(m * np.sqrt(2 * np.pi))
    peak_error = UNIT * (rounding + np.abs(log_peak) + 4 * np.log2(rule.x.shape[1]) + 64)
    covered = (rule.low <= -_COVERED * m) & (rule.high >= _COVERED * m)
    if len(q) <= _MANY_KINDS and np.any(covered):
        noise = np.exp(-log_noise) * rule.widths / (m * np.sqrt(2 * np.pi))[:, None]
        growth = np.expm1(np.minimum(exponent, 600.0))
        excess, gross = (noise * growth).sum(axis=1), noise * np.abs(growth)
        small = covered & (gross.sum(axis=1) < 0.1) & (exponent.max(axis=1) < 600)
        units = (gross * (10 * log_noise + 2 * np.log2(rule.x.shape[1]) + 64)).sum(axis=1)
        units += 15 * np.abs(tilts) * (noise * loss.scale * (1 + np.abs(growth))).sum(axis=1)
        log_peak = np.where(small, np.log1p(np.maximum(excess, -0.5)), log_peak)
        peak_error = np.where(small, 1.2 * UNIT * units, peak_error)
    slope = 15 * UNIT * (weights * loss.scale).sum(axis=1)
    return Points(weights, loss.value, log_peak, peak_error + 2 * rest, 2 * rounding, by_loss, slope, rest, end)


@dataclass(frozen=True, slots=True)
class _Rule:
    """Nodes x with weights, between the ends of the window; the log of an error in units of m sqrt(2 pi)."""

    x: Floats
    widths: Floats
    low: Floats
    high: Floats
    log_error: Floats


def _by_trapezoid(q: Floats, m: Floats, caps: Floats, tilts: Floats, height: float) -> _Rule:
    low, high = window(q, m, tilts, caps)
    number = int(np.ceil(((high - low) / step(m, tilts, height)).max()))
    most = _MOST_POINTS if height else _MOST_REAL_POINTS
    if number > most:
        raise UnresolvedError(f"a moment at height {height:g} needs {number} points, more than {most}")
    spacing = ((high - low) / number)[:, None]
    x = low[:, None] + spacing * (np.arange(number) + 0.5)
    return _Rule(x, spacing, low, high, np.full(len(q), -np.inf))


def _by_panels(q: Floats, m: Floats, caps: Floats, tilts: Floats, height: float) -> _Rule | None:
    """Where the noise is cut off, for few kinds of steps; neighbouring rows of one kind share their panels, and shorter
    rows are filled up with nodes of weight 0."""
    if not np.all(np.isfinite(caps)):
        return None
    starts = np.flatnonzero(np.append(True, (np.diff(q) != 0) | (np.diff(m) != 0) | (np.diff(caps) != 0)))
    if len(starts) > _FEW:
        return None
    low, high = window(q, m, tilts, caps)
    low, high = np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)
    laws, groups = _pairs(q[starts], m[starts]), np.split(tilts, starts[1:])
    found = [panels(*row, height) for row in zip(laws, groups, _pairs(low, high), strict=True)]
    rows = [row for row in found if row is not None]
    if len(rows) < len(found):
        return None
    number, repeats = max(len(row.x) for row in rows), [len(group) for group in groups]
    x, widths = np.empty((len(rows), number)), np.zeros((len(rows), number))
    for index, row in enumerate(rows):
        x[index], x[index, : len(row.x)], widths[index, : len(row.x)] = row.x[-1], row.x, row.weights
    log_error = np.concatenate([row.log_error for row in rows])
    x, widths, low, high = (np.repeat(one, repeats, axis=0) for one in (x, widths, low, high))
    return _Rule(x, widths, low, high, log_error)


def _pairs(one: Floats, other: Floats) -> list[tuple[float, float]]:
    return list(zip(one.tolist(), other.tolist(), strict=True))


def _end(q: Floats, m: Floats, caps: Floats, tilts: Floats, rule: _Rule, shift: Floats, total: Floats) -> Floats:
    """The error of the trapezoid rule where the window ends at a cap.

    The vertical ends of the strip add at most pi m^2/20 times w there: the midpoints damp exp(i y rho) upwards by
    exp(-50 theta/theta*).
    """
    if np.isfinite(rule.log_error[0]):
        return np.zeros(len(q))
    at_end = tilts * loss_at(rule.high, q, m).value - rule.high**2 / (2 * m**2) - shift
    result: Floats = 0.16 * m**2 * np.exp(np.minimum(at_end, 0.0)) / total * (rule.high >= caps - 1e-6 * m)
    return result
