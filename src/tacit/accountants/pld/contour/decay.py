"""How fast the moments fall along the line: the proof that the contour may be cut off.

With w the tilted density of a step, three bounds of |E[exp(i y rho)]| hold at once:

- high up, by parts (maths.md 3): 1 - p + V/|y|, p the mass beyond x0, V = g(x0) + the total variation beyond x0 of
  g = w/rho' (the density of the loss), for every x0;
- low down, as cos t <= 1 - t^2/2 + t^4/24: sqrt(1 - y^2 v + y^4 (k + 3 v^2)/12), v and k the second and fourth central
  moments of the loss. Long runs with small q end here, where the first bound is still blind;
- in between: 1 - |E[exp(i y rho)]|^2 = E[1 - cos(y (rho - rho'))] does not rise when mass is left out. With f <= w, of
  raw moments S_k, it is at least y^2 (S0 S2 - S1^2) - y^4 (S0 S4 - 4 S1 S3 + 3 S2^2)/12. Here f is constant in rho
  between neighbouring points and zero beyond x0: rare large losses, whose fourth moment spoils the second bound, are
  left out.
"""

import math
from dataclasses import dataclass

import numpy as np

from tacit.accountants.pld.contour.moments import central_moments
from tacit.accountants.pld.loss import loss_at, window
from tacit.accountants.pld.steps import UNIT, Steps
from tacit.types import Floats

_POINTS = 320
_ROWS = 64
_FEW_STEPS = 8  # steps for which every point is tried


def tails_from_decay(decay: Floats, heights: Floats, square: float, spacing: float) -> Floats:
    """For each height Y the log of a bound of spacing/pi * sum over nodes y > Y of |exp(K(c+iy) - K(c))|/y^2.

    Args:
        decay: log bounds of |exp(K(c+iy) - K(c))| between the heights, and beyond the last.
        heights: increasing; between two of them the bound is constant.
        square: the mu^2 of the Gaussian part (smoothing included), which adds exp(-mu^2 y^2/2).
    """
    following = np.append(heights[1:], math.inf)
    # the nodes of an interval are a sum below the integral of 1/y^2 that starts one spacing early
    length = 1 / heights - 1 / following + spacing / heights**2
    terms = decay - np.minimum(square * heights, 1e200 / heights) * heights / 2 + np.log(length / math.pi)
    result: Floats = np.logaddexp.accumulate(terms[::-1])[::-1] + 1e-12
    return result


def log_decay(steps: Steps, tilt: float, heights: Floats) -> Floats:
    """log |exp(K(c+iy) - K(c))| is at most the i-th value for y between the i-th height and the next."""
    total = np.zeros(len(heights))
    for start in range(0, steps.size, _ROWS):
        rows = slice(start, start + _ROWS)
        law = (steps.probabilities[rows], steps.noise_multipliers[rows], steps.caps[rows])
        cells = _cells(*law, tilt)
        bound = np.minimum(_by_parts(cells, heights), _by_moments(*law, tilt, heights))
        bound = np.minimum(bound, _without_rare_losses(cells, heights))
        total += steps.counts[rows] @ np.log(np.clip(bound, 1e-9, 1.0))
    return total


def _by_moments(q: Floats, m: Floats, caps: Floats, tilt: float, heights: Floats) -> Floats:
    """The quartic bound on each interval; a convex function of y^2 is largest at an end."""
    second, fourth = central_moments(q, m, caps, tilt)
    return _quartic(second, fourth + 3 * second**2, heights)


def _quartic(second: Floats, fourth: Floats, heights: Floats) -> Floats:
    """sqrt(1 - y^2 second + y^4 fourth/12), the larger of both ends of each interval; 1 beyond the last height."""
    square = heights**2
    with np.errstate(over="ignore", invalid="ignore"):
        bound = 1 - square * (second[..., None] - square * fourth[..., None] / 12)
    largest = np.append(np.maximum(bound[..., :-1], bound[..., 1:]), np.ones((*second.shape, 1)), axis=-1)
    # 2e-14 covers rounding, the mass outside the window and (on a line that may be used) the one at a cap
    result: Floats = np.sqrt(np.clip(np.nan_to_num(largest, nan=1.0), 0.0, 1.0)) + 2e-14
    return result


def _without_rare_losses(cells: "_Cells", heights: Floats) -> Floats:
    """The quartic bound from the losses below x0 only, x0 the best of some points."""
    width = np.maximum(np.diff(cells.loss, axis=1) - cells.loss_error, 0.0)
    mass = width * np.minimum(cells.density[:, :-1], cells.density[:, 1:]) * cells.below
    places = np.arange(_POINTS // 8, _POINTS - 1, 8 if len(mass) <= _FEW_STEPS else 32)
    u = (cells.loss[:, :-1] + cells.loss[:, 1:]) / 2 - cells.loss[:, [_POINTS // 2]]
    powers = (
        np.ones_like(u),
        u,
        u**2 + width**2 / 12,
        u**3 + u * width**2 / 4,
        u**4 + (u * width) ** 2 / 2 + width**4 / 80,
    )
    s0, s1, s2, s3, s4 = (np.cumsum(mass * power, axis=1)[:, places] for power in powers)
    second = (1 - 1e-6) * (s0 * s2 - s1**2) - 1e-12 * s0 * s2
    fourth = (1 + 1e-6) * (s0 * s4 - 4 * s1 * s3 + 3 * s2**2) + 1e-12 * (s0 * s4 + 4 * np.abs(s1 * s3) + 3 * s2**2)
    result: Floats = _quartic(second, fourth, heights).min(axis=1)
    return result


def _by_parts(cells: "_Cells", heights: Floats) -> Floats:
    """min over x0 of 1 - p + V/y, which falls with y; 1e-9 keeps its rounding on the safe side."""
    stride = 1 if len(cells.mass) <= _FEW_STEPS else 4
    missing, variation = 1 - cells.mass[:, ::stride], cells.variation[:, ::stride]
    result: Floats = (missing[:, None] + variation[:, None] / heights[:, None]).min(axis=2) + 1e-9
    return result


@dataclass(frozen=True, slots=True)
class _Cells:
    """Each step's noise between neighbouring points x, one row for each step.

    Args:
        loss: rho at the points, and how far its differences may be off.
        mass: a lower bound of p beyond each point.
        variation: an upper bound of V there.
        density: not above the density of the loss at the points, relative to the whole mass.
        below: between two points the density is at least this times the smaller one.
    """

    loss: Floats
    loss_error: Floats
    mass: Floats
    variation: Floats
    density: Floats
    below: Floats


def _cells(q: Floats, m: Floats, caps: Floats, tilt: float) -> _Cells:
    """All within the window, from points of a grid."""
    low, high = window(q, m, np.full(len(q), tilt), caps)
    spacing = ((high - low) / (_POINTS - 1))[:, None]
    x = low[:, None] + spacing * np.arange(_POINTS)
    noise = m[:, None]
    loss = loss_at(x, q[:, None], noise)
    log_weight = tilt * loss.value - x**2 / (2 * noise**2)
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    # Between two points log w and log g leave their chords by at most curvature * spacing^2/8, upwards and downwards:
    # -peak <= (log w)'', (log g)'' <= dip, as rho'' = s(1-s)/m^4 <= 1/(4 m^4)
    peak = 1 / noise**2 + max(-tilt, 0.0) / (4 * noise**4)
    dip = np.maximum((max(tilt, 0.0) + 1) / (4 * noise**4) - 1 / noise**2, 0)
    above, below = np.exp(np.minimum(peak * spacing**2 / 8, 600.0)), np.exp(-dip * spacing**2 / 8)
    whole = spacing * above * np.maximum(weight[:, :-1], weight[:, 1:]).sum(axis=1, keepdims=True) * (1 + 1e-12)
    cells = spacing * below * np.minimum(weight[:, :-1], weight[:, 1:])
    mass = _beyond(cells) / whole
    # g is divided by something not above the true integral of w
    least = np.maximum(cells.sum(axis=1, keepdims=True), 1e-290)
    density = weight * noise**2 / (np.maximum(loss.share, 1e-290) * least)
    # (log g)' = (-x - 1 + (a + 1) s)/m^2 has at most three zeros: at most two maxima and one minimum between points;
    # 1e-15 covers what lies outside the window, the last density the jump to 0 where the window ends at a cap
    largest = np.maximum.accumulate(density[:, ::-1], axis=1)[:, ::-1]
    outside = 1e-15 * noise**2 / (loss.share[:, -1:] * least)
    hidden = largest * (4 * (above - 1) + 2 * (1 - below)) + outside + density[:, -1:]
    variation = density + _beyond(np.abs(np.diff(density, axis=1))) + hidden
    doubt = 24 * UNIT * (loss.scale[:, :-1] + loss.scale[:, 1:])
    lowest = (1 - 1e-9) * density * least / whole
    return _Cells(loss.value, doubt, mass, variation, lowest, below)


def _beyond(cells: Floats) -> Floats:
    """Sums of the cells to the right of each point; zero at the last one."""
    result = np.zeros((len(cells), cells.shape[1] + 1))
    result[:, :-1] = np.cumsum(cells[:, ::-1], axis=1)[:, ::-1]
    return result
