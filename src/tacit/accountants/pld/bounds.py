"""The certified privacy loss distribution accountant: delta of an epsilon, epsilon of a delta, the whole curve.

Which engine answers: the lattice where few cells will do, else the contour, else a larger lattice. Where neither
resolves a ledger (noise, rates, steps or delta beyond what floating point or memory allow), the answer is a bound that
needs none: never below the truth, always a number. Three hold for every ledger: total variation, which alone may be
within delta; Chernoff's bound at any real order; and the Gaussian mechanism without sampling. The last because a
hockey-stick divergence is convex, so that (1-q) Q + q P is no further from Q, in either direction, than P is: each step
is dominated by its unsampled one, and so are all together. Of that one, delta <= Phi(mu/2 - eps/mu) <=
exp(-(eps/mu - mu/2)^2/2) for eps >= mu^2/2.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from tacit.accountants.pld.closed_form import closed_form, closed_form_epsilon
from tacit.accountants.pld.contour.solve import LITTLE_WORK, SOME_WORK, ContourSide
from tacit.accountants.pld.contour.solve import curve_bounds as contour_curve
from tacit.accountants.pld.lattice.solve import CHEAP, MOST, LatticeSide
from tacit.accountants.pld.steps import (
    FAINT,
    Bracket,
    Direction,
    PoissonGaussian,
    Steps,
    UnresolvedError,
    enough,
    merge,
    tolerance,
    total_variation,
)
from tacit.errors import RefusedError, check_inside, check_not_negative
from tacit.types import Floats

_DROPPED, _MOST_DROPPED = 1e-6, 1e-3  # the share of delta spent on noise too large to follow
_TINY_SHARE = 1e-22
_WIDE, _VERY_WIDE = 1e-3, 0.1  # relative widths of delta that are worth a second and a third try
_Found = TypeVar("_Found")


def delta_bracket(events: Sequence[PoissonGaussian], epsilon: float) -> Bracket:
    """delta(epsilon) of the whole ledger, for adding or removing one record, whichever is larger.

    Args:
        events: the steps, in any order.
        epsilon: at least 0.

    Returns:
        A bracket that holds the truth, with alias, truncation, quadrature and rounding errors included.

    Example:
        >>> found = delta_bracket([PoissonGaussian(0.01, 1.0, 100)], 0.5)
        >>> 0 < found.lower <= found.upper < 1
        True
    """
    lower, upper = delta_curve(events, np.array([epsilon], dtype=np.float64))
    return Bracket(float(lower[0]), float(upper[0]))


def epsilon_bracket(events: Sequence[PoissonGaussian], delta: float) -> Bracket:
    """The smallest epsilon >= 0 for which the whole ledger is (epsilon, delta)-DP under add/remove of one record.

    Returns:
        A bracket that holds the truth; ``upper`` is the number to report, 0 for a ledger without steps.

    Example:
        >>> found = epsilon_bracket([PoissonGaussian(256 / 60000, 1.3, 3516)], 1e-5)
        >>> round(found.upper, 4)
        0.8645
    """
    check_inside("delta", delta)
    steps = merge(events)
    if total_variation(steps) <= delta:
        return Bracket(0.0, 0.0)
    found = resolved(lambda: _epsilon(steps, delta))
    return Bracket(0.0, epsilon_at_most(steps, delta), resolved=False) if found is None else found


def _epsilon(steps: Steps, delta: float) -> Bracket:
    if steps.has_closed_form:
        return closed_form_epsilon(steps, delta)
    found = epsilon_bounds(steps, "remove", delta)
    # adding is rarely the worse direction; then one bound at the other's epsilon settles it
    other = epsilon_bounds(steps, "add", delta, found.lower)
    return Bracket(max(found.lower, other.lower), max(found.upper, other.upper))


def delta_curve(events: Sequence[PoissonGaussian], epsilons: Floats) -> tuple[Floats, Floats]:
    """Lower and upper bounds of delta at each epsilon, in the order given; the same nodes serve many epsilons."""
    wanted = np.atleast_1d(np.asarray(epsilons, dtype=np.float64))
    for epsilon in wanted:
        check_not_negative("epsilon", float(epsilon))
    steps = merge(events)
    found = resolved(lambda: _curve(steps, wanted))
    if found is None:
        return np.zeros(len(wanted)), np.array([delta_at_most(steps, float(epsilon)) for epsilon in wanted])
    return found


def _curve(steps: Steps, epsilons: Floats) -> tuple[Floats, Floats]:
    if steps.has_closed_form:
        return closed_form(steps, epsilons)
    remove = curve_bounds(steps, "remove", epsilons, np.zeros(len(epsilons)))
    add = curve_bounds(steps, "add", epsilons, remove[0])
    lower, upper = np.maximum(remove[0], add[0]), np.maximum(remove[1], add[1])
    # delta falls: each bound serves its neighbours, too
    order = np.argsort(epsilons, kind="stable")
    lower[order] = np.maximum.accumulate(lower[order][::-1])[::-1]
    upper[order] = np.minimum.accumulate(upper[order])
    return lower, upper


def epsilon_bounds(steps: Steps, direction: Direction, delta: float, floor: float = 0.0) -> Bracket:
    """A bracket of max(floor, epsilon(delta)) of one direction."""
    side, known = ContourSide(steps, direction), Bracket(floor, math.inf)
    if direction == "add" and floor > 0 and side.surely_within(floor, delta):
        return Bracket(floor, floor)
    if not LatticeSide.serves(steps):
        return _contour_epsilon(side, delta, known, floor)
    lattice = LatticeSide(steps, direction)
    first = lattice.epsilon(delta, known, floor)
    if first.narrow:
        return first.bracket
    worth = _worth(first.cells)
    found = _contour_epsilon(side, delta, first.bracket, floor, worth)
    if _wide(found):
        found = lattice.epsilon(delta, found, floor, 2 * MOST, min(first.cells, MOST // 2)).bracket
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
    side: ContourSide, delta: float, known: Bracket, floor: float, most_work: float = math.inf
) -> Bracket:
    """A bracket within the one that is known already."""
    if side.direction == "add":
        if known.lower == floor and side.delta(floor, most_work).upper <= delta:
            return Bracket(floor, floor)
        return side.epsilon(delta, known, floor, most_work)
    # with the largest noise cut off if that helps: where large moments come from noise that no run meets
    cost, little = side.cost(delta)
    c = side.axis.for_delta(math.log(delta)).c
    cut_off = ContourSide(side.steps, "remove", _DROPPED * delta, 1.5 * c) if cost > little else side
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
        cut_off = ContourSide(side.steps, "remove", share * delta, 1.2 * c)
    return cut_off.epsilon(delta, found, floor, most_work)


def curve_bounds(steps: Steps, direction: Direction, epsilons: Floats, floors: Floats) -> tuple[Floats, Floats]:
    """Bounds of max(floor, delta(epsilon)) of one direction, for each epsilon."""
    lower, upper, narrow = np.zeros(len(epsilons)), np.ones(len(epsilons)), np.zeros(len(epsilons), bool)
    if LatticeSide.serves(steps):
        lattice = LatticeSide(steps, direction)
        lower, upper, narrow = lattice.curve(epsilons)
    elif direction == "add":
        side = ContourSide(steps, direction)
        pairs = zip(epsilons, floors, strict=True)
        narrow = np.array([side.surely_within(float(e), float(f)) if f > 0 else False for e, f in pairs], bool)
        upper[narrow] = floors[narrow]

    def improve(share: float, bounds: Callable[[Floats], tuple[Floats, Floats]]) -> None:
        """Where the bracket is wider than a share of delta, and matters, take the tighter ends."""
        waiting = np.flatnonzero(~narrow & (upper - lower > share * upper) & (upper > floors))
        if len(waiting):
            low, high = bounds(epsilons[waiting])
            lower[waiting], upper[waiting] = np.maximum(lower[waiting], low), np.minimum(upper[waiting], high)

    sides = [
        ContourSide(steps, direction, dropped) for dropped in ((0.0, _TINY_SHARE) if direction == "remove" else (0.0,))
    ]
    for side in sides:
        improve(_WIDE, partial(contour_curve, side, most_work=SOME_WORK if LatticeSide.serves(steps) else math.inf))
    if LatticeSide.serves(steps):
        improve(_WIDE, lambda some: lattice.curve(some, MOST // 4)[:2])
        improve(_VERY_WIDE, partial(contour_curve, sides[-1]))
    if np.any(lower > upper):
        raise RefusedError("two bounds of delta contradict each other; please report this ledger")
    return np.maximum(lower, floors), np.maximum(upper, floors)


def resolved(engine: Callable[[], _Found]) -> _Found | None:
    """What an engine finds; None where floating point, memory or the points allowed do not suffice for it."""
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            return engine()
    except (UnresolvedError, ArithmeticError, ValueError, MemoryError):
        return None


def epsilon_at_most(steps: Steps, delta: float) -> float:
    """The smallest of the bounds; infinite only where floating point cannot hold it."""
    chernoff = resolved(lambda: max(side.epsilon_at_most(delta) for side in _sides(steps)))
    gaussian = resolved(lambda: closed_form_epsilon(_unsampled(steps), delta).upper)
    mu = math.sqrt(_unsampled(steps).gaussian_square)
    simple = mu * (mu / 2 + math.sqrt(-2 * math.log(delta))) * (1 + 1e-12)
    return max(0.0, min(bound for bound in (chernoff, gaussian, simple) if bound is not None and bound == bound))


def delta_at_most(steps: Steps, epsilon: float) -> float:
    chernoff = resolved(lambda: max(side.delta_at_most(epsilon) for side in _sides(steps)))
    gaussian = resolved(lambda: float(closed_form(_unsampled(steps), np.array([epsilon]))[1][0]))
    bounds = (chernoff, gaussian, total_variation(steps))
    return min(1.0, *(bound for bound in bounds if bound is not None and bound == bound))  # nan is not itself


def _sides(steps: Steps) -> tuple[ContourSide, ContourSide]:
    return ContourSide(steps, "remove"), ContourSide(steps, "add")


def _unsampled(steps: Steps) -> Steps:
    each = np.where(steps.noise_multipliers > FAINT, np.maximum(steps.noise_multipliers, FAINT) ** -2.0, math.inf)
    square = steps.gaussian_square + float(steps.counts @ each if steps.size else 0.0)
    none = steps.counts[:0]
    return replace(
        steps, probabilities=none, noise_multipliers=none, counts=none, caps=none, gaussian_square=square * (1 + 1e-12)
    )
