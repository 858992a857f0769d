"""Which engine answers: the grid where few cells will do, else the contour, and the grid again where that stays wide."""

import math

import numpy as np

from tacit.accountants.pld.events import Bracket, Floats, Steps
from tacit.accountants.pld.rare import MOST, Found, Rare
from tacit.accountants.pld.saddle import Direction
from tacit.accountants.pld.shape import tolerance
from tacit.accountants.pld.solve import OneDirection
from tacit.accountants.pld.solve import curve_bounds as contour_curve
from tacit.errors import RefusedError

_DROPPED = 1e-9  # the share of delta spent on noise too large to follow
_TINY = 1e-22
_WIDE = 1e-3  # a relative width of delta that is worth a second try


def epsilon_bounds(steps: Steps, direction: Direction, delta: float, floor: float = 0.0) -> Bracket:
    """A bracket of max(floor, epsilon(delta)) of one direction."""
    first: Found | None = None
    if Rare.serves(steps):
        rare = Rare(steps, direction)
        first = rare.epsilon(delta, Bracket(floor, math.inf))
        if first.narrow:
            return first.bracket
    found = _contour_epsilon(steps, direction, delta, floor, first is not None and first.cells <= MOST // 4)
    if first is None:
        return found
    found = _both(found, first.bracket)
    if found.upper - found.lower > 3 * tolerance(found.lower):
        found = rare.epsilon(delta, found, MOST, min(first.cells, 2**14)).bracket
    return found


def _contour_epsilon(steps: Steps, direction: Direction, delta: float, floor: float, light: bool = False) -> Bracket:
    side = OneDirection(steps, direction)
    if direction == "add":
        if side.surely_within(floor, delta) or side.delta(floor, light).upper <= delta:
            return Bracket(floor, floor)
    else:
        # with the largest noise cut off if that helps: where large moments come from noise that no run meets
        cost, little = side.cost(delta)
        if cost > little:
            cut_off = OneDirection(steps, direction, min(_DROPPED * delta, _TINY))
            side = cut_off if cut_off.cost(delta)[0] < cost else side
    found = side.epsilon(delta, light)
    return Bracket(max(floor, found.lower), max(floor, found.upper))


def delta_bounds(steps: Steps, direction: Direction, epsilon: float, floor: float = 0.0) -> Bracket:
    """A bracket of max(floor, delta(epsilon)) of one direction."""
    if direction == "add" and not Rare.serves(steps) and OneDirection(steps, direction).surely_within(epsilon, floor):
        return Bracket(floor, floor)
    lower, upper = curve_bounds(steps, direction, np.array([float(epsilon)]))
    return Bracket(max(floor, float(lower[0])), max(floor, float(upper[0])))


def curve_bounds(steps: Steps, direction: Direction, epsilons: Floats) -> tuple[Floats, Floats]:
    """Bounds of delta of one direction at each epsilon."""
    lower, upper = np.zeros(len(epsilons)), np.ones(len(epsilons))
    waiting = np.arange(len(epsilons))
    if Rare.serves(steps):
        rare = Rare(steps, direction)
        lower, upper, _ = rare.curve(epsilons)
        waiting = np.flatnonzero(upper - lower > _WIDE * upper)
    for dropped in (0.0, _TINY) if direction == "remove" else (0.0,):
        if len(waiting):
            low, high = contour_curve(OneDirection(steps, direction, dropped), epsilons[waiting])
            lower[waiting], upper[waiting] = np.maximum(lower[waiting], low), np.minimum(upper[waiting], high)
        waiting = waiting[(upper - lower > _WIDE * upper)[waiting]]
    if Rare.serves(steps) and len(waiting):
        low, high, _ = rare.curve(epsilons[waiting], MOST)
        lower[waiting], upper[waiting] = np.maximum(lower[waiting], low), np.minimum(upper[waiting], high)
    if np.any(lower > upper):
        raise RefusedError("two bounds of delta contradict each other; please report this ledger")
    return lower, upper


def _both(one: Bracket, other: Bracket) -> Bracket:
    """Both hold, so the tighter ends do."""
    lower, upper = max(one.lower, other.lower), min(one.upper, other.upper)
    if lower > upper or math.isnan(lower + upper):
        raise RefusedError("two bounds contradict each other; please report this ledger")
    return Bracket(lower, upper)
