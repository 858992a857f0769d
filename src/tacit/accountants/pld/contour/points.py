"""Where the moments of a step are evaluated: points in a window of the noise, and what rounding may do there.

Where E|exp(a rho) - 1| is small, as for rare steps, F = log1p(E[expm1(a rho)]) keeps digits that log E[exp(a rho)]
would lose: a ledger of a million such steps multiplies every error by a million.
"""

from dataclasses import dataclass

import numpy as np

from tacit.accountants.pld.loss import loss_at, panels, step, window
from tacit.accountants.pld.steps import UNIT, UnresolvedError
from tacit.types import Floats

# window (at most 3 times 2e-22) and step (4e-22) together, of M(a) and of the noise itself, relative to M(Re a)
_QUADRATURE_ERROR = 2e-21
_MOST_POINTS = 4_000_000
_MOST_REAL_POINTS = 300_000  # on the real axis, which is searched: beyond, K counts as infinite
_MANY_KINDS = 64  # steps of which a ledger is not likely to have many of one kind
_FEW_KINDS = 16  # kinds of steps for which panels are made one by one
_COVERED = 9.8  # Phi(-9.8) = 6e-23: a window of this reach holds all of the noise itself


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
    rest = _QUADRATURE_ERROR + end + np.exp(np.minimum(rule.log_error - shift - np.log(total), 0.0))
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
    if len(starts) > _FEW_KINDS:
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
