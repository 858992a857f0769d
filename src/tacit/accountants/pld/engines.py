"""Which engine answers: the grid where few cells will do, else the contour, else a larger grid."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from tacit.accountants.pld.contour.saddle import Direction
from tacit.accountants.pld.contour.shape import LITTLE_WORK, SOME_WORK, enough, tolerance
from tacit.accountants.pld.contour.solve import OneDirection
from tacit.accountants.pld.contour.solve import curve_bounds as contour_curve
from tacit.accountants.pld.events import Bracket, Steps
from tacit.accountants.pld.lattice.rare import CHEAP, MOST, Rare
from tacit.errors import RefusedError
from tacit.types import Floats

_DROPPED, _MOST_DROPPED = 1e-6, 1e-3  # the share of delta spent on noise too large to follow
_TINY = 1e-22
_WIDE, _VERY_WIDE = 1e-3, 0.1  # relative widths of delta that are worth a second and a third try


def epsilon_bounds(steps: Steps, direction: Direction, delta: float, floor: float = 0.0) -> Bracket:
    """A bracket of max(floor, epsilon(delta)) of one direction."""
    side, known = OneDirection(steps, direction), Bracket(floor, math.inf)
    if direction == "add" and floor > 0 and side.surely_within(floor, delta):
        return Bracket(floor, floor)
    if not Rare.serves(steps):
        return _contour_epsilon(side, delta, known, floor)
    rare = Rare(steps, direction)
    first = rare.epsilon(delta, known, floor)
    if first.narrow:
        return first.bracket
    worth = _worth(first.cells)
    found = _contour_epsilon(side, delta, first.bracket, floor, worth)
    if _wide(found):
        found = rare.epsilon(delta, found, floor, 2 * MOST, min(first.cells, MOST // 2)).bracket
    if _wide(found) and worth < math.inf:
        found = _contour_epsilon(side, delta, found, floor)
    return found


def _wide(found: Bracket) -> bool:
    """Whether a bracket is near the width that we promise, or wider."""
    return found.upper - found.lower > 1.8 * enough(found.lower)


def _worth(cells: int) -> float:
    """How much work nodes may be if a lattice of so many cells would do instead."""
    if cells <= 2 * CHEAP:
        return LITTLE_WORK
    return SOME_WORK if cells <= MOST // 4 else math.inf


def _contour_epsilon(
    side: OneDirection, delta: float, known: Bracket, floor: float, most_work: float = math.inf
) -> Bracket:
    """A bracket within the one that is known already."""
    if side.direction == "add":
        if known.lower == floor and side.delta(floor, most_work).upper <= delta:
            return Bracket(floor, floor)
        return side.epsilon(delta, known, floor, most_work)
    # with the largest noise cut off if that helps: where large moments come from noise that no run meets
    cost, little = side.cost(delta)
    c = side.axis.for_delta(math.log(delta)).c
    cut_off = OneDirection(side.steps, "remove", _DROPPED * delta, 1.5 * c) if cost > little else side
    if cut_off is side or cut_off.cost(delta)[0] >= cost:
        return side.epsilon(delta, known, floor, most_work)
    found = cut_off.epsilon(delta, known, floor, most_work, rounds=1)
    if found.upper - found.lower <= 2 * tolerance(found.lower):
        return found
    # now that epsilon is about known: as much noise as a tenth of the width allows, because rounding is relative to
    # moments that may still be far too large
    c = cut_off.axis.for_delta(math.log(delta)).c
    share = min(0.1 * enough(found.upper) * c, _MOST_DROPPED)
    if share > 3 * _DROPPED:
        cut_off = OneDirection(side.steps, "remove", share * delta, 1.2 * c)
    return cut_off.epsilon(delta, found, floor, most_work)


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
        improve(_WIDE, partial(contour_curve, side, most_work=SOME_WORK if Rare.serves(steps) else math.inf))
    if Rare.serves(steps):
        improve(_WIDE, lambda some: rare.curve(some, MOST // 4)[:2])
        improve(_VERY_WIDE, partial(contour_curve, sides[-1]))
    if np.any(lower > upper):
        raise RefusedError("two bounds of delta contradict each other; please report this ledger")
    return np.maximum(lower, floors), np.maximum(upper, floors)
