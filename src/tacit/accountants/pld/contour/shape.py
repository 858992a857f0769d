"""How many nodes, how far apart, and how much smoothing: the smallest contour that meets a tolerance."""

import math

import numpy as np

from tacit.accountants.pld.contour.decay import log_decay, tails_from_decay
from tacit.accountants.pld.contour.integral import Shape
from tacit.accountants.pld.contour.points import step, window
from tacit.accountants.pld.contour.saddle import Cumulants, RealAxis, tilt_of
from tacit.accountants.pld.steps import Steps, tolerance
from tacit.types import Floats

MOST_POINTS = 1.5e6  # of one step
MOST_WORK = 1e9  # multiplications of one contour: about 0.15 seconds
SOME_WORK, LITTLE_WORK = 2e8, 6e6  # where a lattice may, or will, do as well
_POINT_WORK, _NODE_WORK = 1000.0, 6000.0  # of a transform, in the same unit
_FAR = (2.0, 4.0)  # further points above c, that bound far aliases
_LOWER = 3  # lines below c that are compared
_RATIO = 1.16  # of neighbouring lines that are compared: each is a point above those below it

_LADDER: Floats = 1.12 ** np.arange(-40, 200, dtype=np.float64)


def period(axis: RealAxis, epsilon: float, log_delta: float) -> tuple[float, float]:
    """About the period of a plan for this epsilon, a measure of its cost, and one that would be short."""
    peak, log_share = axis.for_delta(log_delta), math.log(1e-6) + log_delta
    return _period(peak, _above(axis, peak), epsilon, log_share), 1.5 * (1 - log_share) / peak.c


def plan(axis: RealAxis, peak: Cumulants, epsilon: float, log_delta: float) -> Shape:
    """Choose the nodes for epsilons around one whose delta is about exp(log_delta).

    Tolerances are relative to delta: an error of c * t in log delta moves epsilon by about t.
    """
    width = tolerance(epsilon)
    relative = min(max(peak.c * width, 1e-11), 1e-3)
    axis.look([peak.c * factor for factor in _FAR] + [peak.c * _RATIO**power for power in range(-_LOWER, 3)])
    log_share = math.log(0.02 * relative) + log_delta
    peak, length = _best_line(axis, peak, epsilon, log_delta, log_share)
    room = log_share - (peak.value - peak.c * epsilon)
    spacing = 2 * math.pi / length
    top, tau, log_tail, work = _top(axis.steps, peak, tilt_of(axis.direction, peak.c), room, width, spacing)
    return Shape(peak, _above(axis, peak), spacing, math.ceil(top / spacing) + 2, tau, log_tail, work)


def _best_line(
    axis: RealAxis, peak: Cumulants, epsilon: float, log_delta: float, log_share: float
) -> tuple[Cumulants, float]:
    """The line with the smallest period, among c and somewhat below, where the tilted loss may be much narrower.

    Not too far below: there exp(K(c) - c eps) exceeds delta, and rounding with it.
    """
    lines = [peak] + [axis.at(peak.c * _RATIO**-power) for power in range(1, _LOWER + 1)]
    best, least = peak, _period(peak, _above(axis, peak), epsilon, log_share)
    for line in lines[1:]:
        found = _period(line, _above(axis, line), epsilon, log_share)
        if found < least and line.value - line.c * epsilon - log_delta < 12:
            best, least = line, found
    return best, least


def _above(axis: RealAxis, peak: Cumulants) -> tuple[Cumulants, ...]:
    """Some points above c, near and far; those that the search has seen come for nothing."""
    axis.look([peak.c * _RATIO**power for power in (1, 2)])
    return tuple(point for point in axis.seen() if point.c > 1.02 * peak.c and math.isfinite(point.value))


def _period(peak: Cumulants, beyond: tuple[Cumulants, ...], epsilon: float, log_share: float) -> float:
    """The smallest period U that makes the aliases below and above negligible."""
    below = (1 - log_share) / peak.c
    above = min(
        (point.value + point.error - point.c * epsilon + 1 - log_share) / (point.c - peak.c) for point in beyond
    )
    return max(below, above)


def _top(
    steps: Steps, peak: Cumulants, tilt: float, room: float, width: float, spacing: float
) -> tuple[float, float, float, float]:
    """The height of the last node, tau, the log of the tail above it (at most ``room``), and how much work that is.

    Smoothing moves epsilon by about 3.4 tau^2 (c+1)/2; it is used only if it saves half of the nodes.
    """
    heights: Floats = peak.c * _LADDER
    decay = log_decay(steps, tilt, heights) if steps.size else np.zeros(len(heights))

    def first(square: float) -> tuple[int, float]:
        tails = tails_from_decay(decay, heights, steps.gaussian_square + square, spacing)
        index = int(np.argmax(tails <= room)) if np.any(tails <= room) else len(heights) - 1
        return index, float(tails[index])

    tau = math.sqrt(0.5 * width / (1.7 * (peak.c + 1)))
    natural, smoothed = first(0.0), first(tau**2)
    if natural[1] <= room and heights[natural[0]] < 2 * heights[smoothed[0]]:
        tau, smoothed = 0.0, natural
    tilts = np.full(steps.size, tilt)
    low, high = (
        window(steps.probabilities, steps.noise_multipliers, tilts, steps.caps) if steps.size else (tilts, tilts)
    )
    work = _work(steps, tilts, high - low, float(heights[smoothed[0]]), spacing)
    asked = work
    while tau < 1 and work > MOST_WORK:
        tau = max(1.3 * tau, 0.1 * width)  # a wider bracket rather than no answer
        smoothed = first(tau**2)
        work = _work(steps, tilts, high - low, float(heights[smoothed[0]]), spacing)
    return float(heights[smoothed[0]]), tau, smoothed[1], asked


def _work(steps: Steps, tilts: Floats, lengths: Floats, top: float, spacing: float) -> float:
    """Nodes times trapezoid points over all steps, or what transforms cost instead; infinite if the points of one are
    too many to hold."""
    if not steps.size:
        return 0.0
    points, nodes = lengths / step(steps.noise_multipliers, tilts, top), top / spacing
    if points.max() >= MOST_POINTS:
        return math.inf
    return min(float(points.sum()) * nodes, float((_POINT_WORK * points + _NODE_WORK * nodes).sum()))
