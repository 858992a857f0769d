"""Safe-side root finding: the value returned has always been checked to meet the target."""

import math
from collections.abc import Callable

from tacit.errors import InputError

_RELATIVE = 1e-7  # how close to the best value the answer is
_MOST = 10**12


def smallest_within(cost: Callable[[float], float], epsilon: float, name: str, start: float) -> float:
    """The smallest x with cost(x) <= epsilon, for a falling cost; every value returned has been checked."""
    low, high = start, start
    while cost(high) > epsilon:
        low, high = high, high * 4
        if high > 1e9:
            raise InputError(f"no {name} reaches epsilon {epsilon:g}; raise epsilon or delta")
    while low == high or cost(low) <= epsilon:
        high, low = low, low / 4
        if low < 1e-3:
            return high
    return _shrink(cost, epsilon, low, high)


def _shrink(cost: Callable[[float], float], epsilon: float, low: float, high: float) -> float:
    """Illinois false position in log x and log cost; ``high`` always meets the target, ``low`` never does."""
    gap_low, gap_high = _gap(cost(low), epsilon), _gap(cost(high), epsilon)
    side = 0
    while high > low * (1 + _RELATIVE):
        middle = _between(low, high, gap_low, gap_high)
        gap = _gap(cost(middle), epsilon)
        if gap <= 0:
            high, gap_high = middle, gap
            gap_low = gap_low / 2 if side == 1 else gap_low
            side = 1
        else:
            low, gap_low = middle, gap
            gap_high = gap_high / 2 if side == -1 else gap_high
            side = -1
    return high


def _gap(cost: float, epsilon: float) -> float:
    return max(-30.0, min(30.0, math.log(cost / epsilon))) if cost > 0 else -30.0


def _between(low: float, high: float, gap_low: float, gap_high: float) -> float:
    """Where the line through both gaps crosses zero, nudged to the safe side and kept off the ends."""
    width = math.log(high / low)
    share = gap_low / (gap_low - gap_high) if gap_low > gap_high else 0.5
    nudge = min(0.5, _RELATIVE / 2 / width)
    return low * math.exp(width * min(max(share + nudge, nudge), 1 - nudge))


def most_within(allowed: Callable[[int], bool], most: int = _MOST) -> int:
    """The largest n >= 1 with allowed(n), for a rule that holds up to some n; allowed(1) is taken for granted."""
    low, high = 1, 2
    while allowed(high):
        low, high = high, high * 4
        if high > most:
            return low
    while high - low > 1:
        middle = math.isqrt(low * high) if high > 2 * low else (low + high) // 2
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low
