"""Which engine answers: the grid where few cells will do, else the contour, else a larger grid."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from tacit.accountants.pld.events import Bracket, Floats, Steps
from tacit.accountants.pld.rare import MOST, Found, Rare
from tacit.accountants.pld.saddle import Direction
from tacit.accountants.pld.shape import enough
from tacit.accountants.pld.solve import OneDirection
from tacit.accountants.pld.solve import curve_bounds as contour_curve
from tacit.errors import RefusedError

_DROPPED = 1e-6  # the share of delta spent on noise too large to follow
_TINY = 1e-22
_WIDE, _VERY_WIDE = 1e-3, 0.1  # relative widths of delta that are worth a second and a third try


def epsilon_bounds(steps: Steps, direction: Direction, delta: float, floor: float = 0.0) -> Bracket:
    """A bracket of max(floor, epsilon(delta)) of one direction."""
    side = OneDirection(steps, direction)
    if direction == "add" and floor > 0 and side.surely_within(floor, delta):
        return Bracket(floor, floor)
    first: Found | None = None
    if Rare.serves(steps):
        rare = Rare(steps, direction)
        first = rare.epsilon(delta, Bracket(floor, math.inf))
        if first.narrow:
            return first.bracket
    found = _contour_epsilon(side, delta, floor, first is not None and first.cells <= MOST // 4)
    if first is None:
        return found
    found = _both(found, first.bracket)
    if found.upper - found.lower > enough(found.lower):
        found = rare.epsilon(delta, found, 2 * MOST, min(first.cells, 2**14)).bracket
    return found


def _contour_epsilon(side: OneDirection, delta: float, floor: float, light: bool = False) -> Bracket:
    if side.direction == "add":
        if side.delta(floor, light).upper <= delta:
            return Bracket(floor, floor)
    else:
        # with the largest noise cut off if that helps: where large moments come from noise that no run meets
        cost, little = side.cost(delta)
        if cost > little:
            start = 1.5 * side.axis.for_delta(math.log(delta)).c
            cut_off = OneDirection(side.steps, side.direction, _DROPPED * delta, start)
            side = cut_off if cut_off.cost(delta)[0] < cost else side
    found = side.epsilon(delta, light)
    return Bracket(max(floor, found.lower), max(floor, found.upper))


def delta_bounds(steps: Steps, direction: Direction, epsilon: float, floor: float = 0.0) -> Bracket:
    """A bracket of max(floor, delta(epsilon)) of one direction."""
    lower, upper = curve_bounds(steps, direction, np.array([float(epsilon)]), np.array([floor]))
    return Bracket(float(lower[0]), float(upper[0]))


def curve_bounds(steps: Steps, direction: Direction, epsilons: Floats, floors: Floats) -> tuple[Floats, Floats]:
    """Bounds of max(floor, delta(epsilon)) of one direction, for each epsilon."""
    lower, upper, narrow = np.zeros(len(epsilons)), np.ones(len(epsilons)), np.zeros(len(epsilons), bool)
    if Rare.serves(steps):
        rare = Rare(steps, direction)
        lower, upper, narrow = rare.curve(epsilons)
    elif direction == "add":
        side = OneDirection(steps, direction)
        pairs = zip(epsilons, floors, strict=True)
        narrow = np.array([side.surely_within(float(e), float(f)) if f > 0 else False for e, f in pairs], bool)
        upper[narrow] = floors[narrow]

    def improve(share: float, bounds: Callable[[Floats], tuple[Floats, Floats]]) -> None:
        """Where the bracket is wider than a share of delta, and matters, take the tighter ends."""
        waiting = np.flatnonzero(~narrow & (upper - lower > share * upper) & (upper > floors))
        if len(waiting):
            low, high = bounds(epsilons[waiting])
            lower[waiting], upper[waiting] = np.maximum(lower[waiting], low), np.minimum(upper[waiting], high)

    sides = [OneDirection(steps, direction, dropped) for dropped in ((0.0, _TINY) if direction == "remove" else (0.0,))]
    for side in sides:
        improve(_WIDE, partial(contour_curve, side, light=Rare.serves(steps)))
    if Rare.serves(steps):
        improve(_WIDE, lambda some: rare.curve(some, MOST // 4)[:2])
        improve(_VERY_WIDE, partial(contour_curve, sides[-1]))
    if np.any(lower > upper):
        raise RefusedError("two bounds of delta contradict each other; please report this ledger")
    return np.maximum(lower, floors), np.maximum(upper, floors)


def _both(one: Bracket, other: Bracket) -> Bracket:
    """Both hold, so the tighter ends do."""
    lower, upper = max(one.lower, other.lower), min(one.upper, other.upper)
    if lower > upper or math.isnan(lower + upper):
        raise RefusedError("two bounds contradict each other; please report this ledger")
    return Bracket(lower, upper)
