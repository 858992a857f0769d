"""A bound of delta(0) that needs no engine, and the search for where a curve crosses a level."""

import math
from collections.abc import Callable

from scipy.special import erf

from tacit.accountants.pld.events import Bracket, Steps
from tacit.errors import RefusedError

Curve = Callable[[float], float]


def total_variation(steps: Steps) -> float:
    """An upper bound of delta(0): total variation is subadditive, q (2 Phi(1/(2m)) - 1) for a step."""
    single = steps.probabilities * erf(1 / (math.sqrt(8) * steps.noise_multipliers))
    whole = math.erf(math.sqrt(steps.gaussian_square / 8))
    return (float(steps.counts @ single) + whole) * (1 + 1e-12)


def at_floor(low: float, floor: float) -> Bracket:
    """The answer where delta(low) <= delta: the floor. Where ``low`` was raised by a proof, two proofs disagree."""
    if low > floor:
        raise RefusedError(f"two bounds contradict each other at epsilon {low!r}; please report this ledger")
    return Bracket(low, low)


def crossing(curve: Curve, target: float, low: float, high: float, width: float) -> tuple[float, float]:
    """Ends a < b, as close as ``width``, with curve(a) > target and curve(b) <= target (or b the given ``high``).

    The curve is the exponential of something smooth, so the false position in its logarithm goes fast; the step is
    kept off the ends so that both of them close in.
    """
    at_low, at_high = _height(curve(low), target), min(_height(curve(high), target), 0.0)
    for turn in range(200):
        if high - low <= max(width, 4e-16 * high):
            break
        share = at_low / (at_low - at_high) if turn % 4 != 3 and at_high < 0 else 0.5
        gap = 0.4 * width / (high - low)
        middle = low + (high - low) * min(max(share, min(gap, 0.5)), max(1 - gap, 0.5))
        value = _height(curve(middle), target)
        if value > 0:
            low, at_low, at_high = middle, value, at_high / 2
        else:
            high, at_high, at_low = middle, value, at_low / 2
    return low, high


def _height(value: float, target: float) -> float:
    """log(value/target), where 0 counts as very small."""
    return math.log(value / target) if value > 1e-300 else -700.0
