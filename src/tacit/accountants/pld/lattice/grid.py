"""The engine for few or rare steps: both lattice laws of each step composed, into bounds of delta.

Steps beyond the lattice count, from above, as placed by ``lattice.from_above``; from below with P - e^epsilon Q, which
never exceeds the positive part.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from tacit.accountants.pld.contour.saddle import Direction
from tacit.accountants.pld.events import Steps
from tacit.accountants.pld.lattice.above import from_above
from tacit.accountants.pld.lattice.below import from_below
from tacit.accountants.pld.lattice.composition import Circle, Line, compose
from tacit.accountants.pld.lattice.tails import Bins, Tails
from tacit.accountants.pld.loss import UNIT
from tacit.types import Floats


@dataclass(frozen=True, slots=True)
class Grid:
    """Bounds of delta for one direction; sound everywhere, tight where they were asked for."""

    above: Line
    below: Line
    extra: float
    tail_p: float
    tail_q: float
    slack: float

    def upper(self, epsilon: float) -> float:
        at = epsilon - self.slack
        return min(1.0, self.above.at(at) * (1 + 1e-9) + self.above.error(at) + self.extra)

    def lower(self, epsilon: float) -> float:
        at = epsilon + self.slack
        known = self.below.first <= at <= self.below.last
        inside = max(0.0, self.below.at(at) * (1 - 1e-9) - self.below.error(at)) if known else 0.0
        tail = self.tail_p - math.exp(min(epsilon, 700.0)) * self.tail_q
        return min(1.0, inside + max(0.0, tail - 8 * UNIT * self.tail_p))


@dataclass(frozen=True, slots=True)
class Frame:
    """The lattice asked for: spacing, number of cells of one step, the least epsilon and the one of most interest.

    Args:
        log_share: the log of what masses outside of the lattice may add to delta.
        most: the largest epsilon that is wanted.
    """

    width: float
    number: int
    least: float
    aim: float
    log_share: float
    most: float = math.inf


def grid(steps: Steps, direction: Direction, frame: Frame, most_size: int) -> Grid | None:
    """Discretise and compose both ways; None where floating point, or the size allowed, does not suffice."""
    sign = 1 if direction == "remove" else -1
    width, number, counts = frame.width, frame.number, steps.counts
    bottom = sign * math.fsum(counts * np.log1p(-steps.probabilities))  # the loss where every u is 0
    if width * number > 300 or frame.least - bottom > 300 or steps.total > 1e7:
        return None
    pairs = list(zip(steps.probabilities.tolist(), steps.noise_multipliers.tolist(), strict=True))
    above = [from_above(q, m, direction, width, number) for q, m in pairs]
    # losses are bottom + i h, i = sum of +-k; the window of i that is kept starts just below the least epsilon
    start = math.floor((frame.least - bottom) / width) - 3
    bins = Bins.of(number + 1, sign, width)
    tails = Tails(above, counts, bins)
    aim = max(start, math.floor((frame.aim - bottom) / width))
    window = tails.window(start, aim, frame.log_share, most_size)
    if window is None:
        return None
    points = int(min((frame.most - frame.least) / width + 8, window.size))
    circle = Circle(width, sign, window.tilt, window.size, -window.offset, points)
    below = [from_below(q, m, direction, width, number, window.tilt) for q, m in pairs]
    lines = []
    for laws in (above, below):
        origin = bottom + sign * float(counts @ [law.origin for law in laws])
        shift = float(counts @ [law.shift for law in laws])
        first = math.floor((frame.least - origin) / width) - 3 + window.offset
        aliases = (tails if laws is above else Tails(below, counts, bins)).aliases(circle.tilt, first, circle.size)
        line = compose(laws, counts, circle, first, aliases)
        if line is None:
            return None
        lines.append(replace(line, first=line.first + origin + (shift if laws is above else -shift)))
    infinite = some([law.tail_p for law in above], counts)
    tail_p, tail_q = some([law.tail_p for law in below], counts), some([law.tail_q for law in below], counts)
    lost = tails.lost(start + window.offset, window.size)
    slack = 16 * UNIT * (abs(bottom) + steps.total * width + frame.least + width * window.size)
    return Grid(lines[0], lines[1], lost + infinite * (1 + 1e-12), tail_p * (1 - 1e-12), tail_q * (1 + 1e-12), slack)


def some(tails: list[float], counts: Floats) -> float:
    """The probability that some step is in its tail."""
    if max(tails) >= 1:
        return 1.0
    return -math.expm1(float(counts @ np.log1p(-np.array(tails))))
