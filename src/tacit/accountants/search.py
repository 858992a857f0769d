"""Safe-side root finding with few questions: the value returned has always been checked to meet the target."""

import math
from collections.abc import Callable

from tacit.errors import InputError

_RELATIVE = 1e-7  # how close to the best value, or its cost to the target, the answer is
_SMALLEST, _LARGEST = 1e-3, 1e9
_MOST_STEPS = 10**12
_ROUNDINGS = 2e-15  # relative: how close a root is
_SMALLEST_SHARE = 1e-304  # of a target: less counts as this


def smallest_within(cost: Callable[[float], float], target: float, name: str, start: float) -> float:
    """The smallest x with cost(x) <= target, for a falling cost, looked for around ``start``."""
    high, gap_high = start, _gap(cost(start), target)
    low, gap_low, factor = high, gap_high, 1.1
    while gap_high > 0:
        low, gap_low, high, factor = high, gap_high, high * factor, min(4.0, factor**2)
        if high > _LARGEST:
            raise InputError(f"no {name} reaches epsilon {target:g}; raise epsilon or delta")
        gap_high = _gap(cost(high), target)
    while gap_low <= 0:
        high, gap_high, low, factor = low, gap_low, low / factor, min(4.0, factor**2)
        if low < _SMALLEST:
            return high
        gap_low = _gap(cost(low), target)
    return _shrink(cost, target, (low, gap_low), (high, gap_high))


def _shrink(
    cost: Callable[[float], float], target: float, above: tuple[float, float], below: tuple[float, float]
) -> float:
    """Illinois false position in log x and log cost; ``high`` always meets the target, ``low`` never does."""
    (low, gap_low), (high, gap_high) = above, below
    true_gap, side = gap_high, 0
    while high > low * (1 + _RELATIVE) and true_gap < -_RELATIVE:
        middle = _between(low, high, gap_low, gap_high)
        gap = _gap(cost(middle), target)
        if gap <= 0:
            high, gap_high, true_gap = middle, gap, gap
            gap_low = gap_low / 2 if side == 1 else gap_low
            side = 1
        else:
            low, gap_low = middle, gap
            gap_high = gap_high / 2 if side == -1 else gap_high
            side = -1
    return high


def _gap(cost: float, target: float) -> float:
    return max(-30.0, min(30.0, math.log(cost / target))) if cost > 0 else -30.0


def _between(low: float, high: float, gap_low: float, gap_high: float) -> float:
    """Where the line through both gaps crosses zero, nudged to the safe side and kept off the ends."""
    width = math.log(high / low)
    share = gap_low / (gap_low - gap_high) if gap_low > gap_high else 0.5
    nudge = min(0.5, _RELATIVE / 2 / width)
    return low * math.exp(width * min(max(share + nudge, nudge), 1 - nudge))


def most_within(cost: Callable[[int], float], target: float, start: int = 1) -> int:
    """The largest n with cost(n) <= target, for a rising cost, looked for around ``start``; 0 if there is none."""
    low, gap_low = start, _gap(cost(start), target)
    high, gap_high, reach = low, gap_low, 1 + start // 10
    while gap_low > 0:
        if low == 1:
            return 0
        high, gap_high, low, reach = low, gap_low, max(1, low - reach), 3 * reach
        gap_low = _gap(cost(low), target)
    while gap_high <= 0:
        low, gap_low, high, reach = high, gap_high, high + reach, 3 * reach
        if high > _MOST_STEPS:
            return low
        gap_high = _gap(cost(high), target)
    return _close(cost, target, (low, gap_low), (high, gap_high))


def _close(cost: Callable[[int], float], target: float, below: tuple[int, float], above: tuple[int, float]) -> int:
    """Illinois false position on whole numbers; ``low`` always meets the target, ``high`` never does."""
    (low, gap_low), (high, gap_high) = below, above
    side = 0
    while high - low > 1:
        share = -gap_low / (gap_high - gap_low)
        middle = min(high - 1, max(low + 1, low + round((high - low) * share)))
        gap = _gap(cost(middle), target)
        if gap <= 0:
            gap_high = gap_high / 2 if side == -1 else gap_high
            low, gap_low, side = middle, gap, -1
        else:
            gap_low = gap_low / 2 if side == 1 else gap_low
            high, gap_high, side = middle, gap, 1
    return low


def crossing(
    curve: Callable[[float], float], target: float, low: float, high: float, width: float
) -> tuple[float, float]:
    """Ends a < b, as close as ``width``, with curve(a) > target and curve(b) <= target (or b the given ``high``).

    The curve is the exponential of something smooth, so the false position in its logarithm goes fast; the step is
    kept off the ends so that both of them close in.
    """
    at_low, at_high = (
        math.log(max(_SMALLEST_SHARE, curve(low) / target)),
        min(math.log(max(_SMALLEST_SHARE, curve(high) / target)), 0.0),
    )
    for turn in range(200):
        if high - low <= max(width, 4e-16 * high):
            break
        share = at_low / (at_low - at_high) if turn % 4 != 3 and at_high < 0 else 0.5
        gap = 0.4 * width / (high - low)
        middle = low + (high - low) * min(max(share, min(gap, 0.5)), max(1 - gap, 0.5))
        value = math.log(max(_SMALLEST_SHARE, curve(middle) / target))
        if value > 0:
            low, at_low, at_high = middle, value, at_high / 2
        else:
            high, at_high, at_low = middle, value, at_low / 2
    return low, high


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a continuous function with opposite signs at both ends is zero, to about ten roundings (Chandrupatla 1997).

    scipy.optimize has such functions too, but takes longer to load than most ledgers take to account for.

    Example:
        >>> round(root(lambda x: x * x - 2, 0, 2), 12)
        1.414213562373
    """
    last, far, earlier = low, high, high
    at_last, at_far = function(last), function(far)
    at_earlier, share = at_far, 0.5
    if (at_last > 0) == (at_far > 0):
        raise InputError(f"no root is known to lie between {low:g} and {high:g}: the signs are the same")
    while True:
        middle = last + share * (far - last)
        at_middle = function(middle)
        if (at_middle > 0) == (at_last > 0):
            earlier, at_earlier = last, at_last
        else:
            earlier, at_earlier, far, at_far = far, at_far, last, at_last
        last, at_last = middle, at_middle
        best, at_best = (last, at_last) if abs(at_last) < abs(at_far) else (far, at_far)
        least = (_ROUNDINGS * abs(best) + _SMALLEST_SHARE) / abs(far - last)
        if least > 0.5 or at_best == 0:
            return best
        x, y = (last - far) / (earlier - far), (at_last - at_far) / (at_earlier - at_far)
        share = 0.5
        if y * y < x and (1 - y) ** 2 < 1 - x:  # the inverse parabola through the three points stays inside
            share = at_last / (at_far - at_last) * at_earlier / (at_far - at_earlier)
            share += (earlier - last) / (far - last) * at_last / (at_earlier - at_last) * at_far / (at_earlier - at_far)
        share = min(max(share, least), 1 - least)
