"""Answers from the lattice: refined until the bracket is narrow, or too large to be worth it.

Both laws of each step, from above and from below, are composed into bounds of delta. Steps beyond the lattice count,
from above, as placed by ``from_above``; from below with P - e^epsilon Q, which never exceeds the positive part.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tacit.accountants.pld.lattice.composition import Bins, Grid, Tails, compose
from tacit.accountants.pld.lattice.laws import any_tail, from_above, from_below
from tacit.accountants.pld.loss import loss_at
from tacit.accountants.pld.steps import UNIT, Bracket, Direction, Steps, at_floor, enough, tolerance, total_variation
from tacit.accountants.search import crossing
from tacit.types import Floats

_POINTS = 240
_SLOPES = np.geomspace(1e-3, 1e4, 64)
Mask = NDArray[np.bool_]
_MOST_KINDS = 64
FIRST = 500  # cells of one step in the first lattice
CHEAP = 12_000  # cells up to which no contour is likely to be faster
MOST = 2**19
_FINE_CELLS, _STUCK_SHARE = 6000, 0.8  # cells, and the share of a bracket that so many should not leave
_ROUNDS = 7
_TABLES = 12  # lattices of one curve


class Sketch:
    """Quantiles of the sum of losses by Chernoff, from a few points of each step's noise."""

    def __init__(self, steps: Steps, direction: Direction) -> None:
        q, m = steps.probabilities[:, None], steps.noise_multipliers[:, None]
        x = np.linspace(-8 * m[:, 0], 1 + 8 * m[:, 0], _POINTS, axis=1)
        loss = loss_at(x, q, m).value
        weights = np.exp(-(x**2) / (2 * m**2) + (loss if direction == "remove" else 0.0))
        weights /= weights.sum(axis=1, keepdims=True)
        losses = loss if direction == "remove" else -loss
        spread = weights * (losses - (weights * losses).sum(axis=1, keepdims=True)) ** 2
        self.slopes: Floats = _SLOPES / max(math.sqrt(float(steps.counts @ spread.sum(axis=1))), 1e-12)
        self.rise = self._moments(steps.counts, weights, losses, self.slopes)
        self.fall = self._moments(steps.counts, weights, losses, -self.slopes)

    @staticmethod
    def _moments(counts: Floats, weights: Floats, losses: Floats, slopes: Floats) -> Floats:
        total = np.zeros(len(slopes))
        for count, weight, loss in zip(counts, weights, losses, strict=True):
            exponents = np.outer(slopes, loss)
            peak = exponents.max(axis=1)
            total += count * (peak + np.log(np.exp(exponents - peak[:, None]) @ weight))
        return total

    def epsilon(self, log_delta: float) -> tuple[float, float]:
        """About the Chernoff bound of epsilon, and the slope -d log(delta)/d epsilon there."""
        s = self.slopes
        bounds = (self.rise - s * np.log1p(1 / s) - np.log1p(s) - log_delta) / s
        return max(0.0, float(bounds.min())), float(s[int(np.argmin(bounds))])

    def high(self, log_share: float) -> float:
        """The sum exceeds this with a probability of about exp(log_share) or less."""
        return float(((self.rise - log_share) / self.slopes).min())

    def low(self, log_share: float) -> float:
        """The sum falls below minus this with a probability of about exp(log_share) or less."""
        return float(((self.fall - log_share) / self.slopes).min())


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
    width, number, counts, total = frame.width, frame.number, steps.counts, steps.total
    bottom = sign * math.fsum(counts * np.log1p(-steps.probabilities))  # the loss where every u is 0
    if width * number > 300 or frame.least - bottom > 300 or total > 1e7:
        return None
    pairs = list(zip(steps.probabilities.tolist(), steps.noise_multipliers.tolist(), strict=True))
    above = [from_above(q, m, direction, width, number) for q, m in pairs]
    # losses are bottom + i h, i = sum of +-k; the window of i that is kept starts just below the least epsilon
    start = math.floor((frame.least - bottom) / width) - 3
    bins = Bins.of(number + 1, sign, width)
    tails = Tails(above, counts, bins)
    aim = max(start, math.floor((frame.aim - bottom) / width))
    circle = tails.window(start, aim, frame.log_share, most_size, (frame.most - frame.least) / width + 8)
    if circle is None:
        return None
    below = [from_below(q, m, direction, width, number, circle.tilt) for q, m in pairs]
    lines = []
    for laws in (above, below):
        origin = bottom + sign * float(counts @ [law.origin for law in laws])
        shift = float(counts @ [law.shift for law in laws])
        first = math.floor((frame.least - origin) / width) - 3 - circle.skip
        aliases = (tails if laws is above else Tails(below, counts, bins)).aliases(circle.tilt, first, circle.size)
        line = compose(laws, counts, circle, first, aliases)
        if line is None:
            return None
        lines.append(replace(line, first=line.first + origin + (shift if laws is above else -shift)))
    infinite = any_tail([law.tail_p for law in above], counts)
    tail_p, tail_q = any_tail([law.tail_p for law in below], counts), any_tail([law.tail_q for law in below], counts)
    lost = tails.lost(start - circle.skip, circle.size)
    slack = 16 * UNIT * (abs(bottom) + total * width + frame.least + width * circle.size)
    return Grid(lines[0], lines[1], lost + infinite * (1 + 1e-12), tail_p * (1 - 1e-12), tail_q * (1 + 1e-12), slack)


@dataclass(frozen=True, slots=True)
class Found:
    """A bracket, whether it is as narrow as wanted, and how many cells that took or would take."""

    bracket: Bracket
    narrow: bool
    cells: int


class LatticeSide:
    """Certified answers for one direction of a ledger of few kinds of subsampled steps."""

    def __init__(self, steps: Steps, direction: Direction) -> None:
        self.steps, self.direction = steps, direction
        self.sketch = Sketch(steps, direction)
        self.edges = -np.log1p(-steps.probabilities)
        self.whole = float(steps.counts @ self.edges)  # minus the least sum (remove), or the largest one (add)

    @staticmethod
    def serves(steps: Steps) -> bool:
        return 0 < steps.size <= _MOST_KINDS and steps.gaussian_square == 0

    def lattice(self, number: int, low: float, high: float, aim: float, log_delta: float) -> Grid | None:
        """A lattice for epsilons from ``low`` to ``high``, best at ``aim``.

        Removing: a loss beyond ``high`` plus all that the other steps may take off decides alone, where the tails are
        exact. Adding: below ``low`` minus all that the others may add, a loss does not matter.
        """
        # an error of slope * t in log delta moves epsilon by about t
        slope = self.sketch.epsilon(log_delta)[1]
        log_share = log_delta + min(math.log(1e-3 * enough(aim) * slope), -14.0)
        frame = Frame(self._reach(low, high, log_delta) / number, number, low, aim, log_share, high + tolerance(high))
        return grid(self.steps, self.direction, frame, 4 * MOST)

    def _reach(self, low: float, high: float, log_delta: float) -> float:
        if self.direction == "remove":
            reach = high + min(self.whole, self.sketch.low(-16.0)) + float(self.edges.max())
        else:
            reach = min(self.whole, self.sketch.high(log_delta - 16.0)) - low + float(self.edges.max())
        return max(reach, 1e-9)

    def _cells(self, epsilon: float, slope: float, log_delta: float) -> int:
        """About how many cells a narrow bracket takes: a lattice adds a variance of h min(h/6, E u) at each step."""
        room = 1.5 * enough(epsilon) / slope
        mean = 2 * float(self.steps.counts @ self.steps.probabilities)
        width = max(math.sqrt(6 * room / self.steps.total), room / mean)
        return int(min(self._reach(epsilon, epsilon, log_delta) / width, 1e9))

    def epsilon(self, delta: float, known: Bracket, floor: float = 0.0, most: int = CHEAP, start: int = FIRST) -> Found:
        """A bracket of max(floor, epsilon(delta)), within the one that is known already.

        Not narrow if that would take more than ``most`` cells, and not begun if it is likely to take twice as many.
        """
        guess, slope = self.sketch.epsilon(math.log(delta))
        low, sure, number = known.lower, math.isfinite(known.upper), start
        high = known.upper if sure else max(low, guess)
        if total_variation(self.steps) <= delta or (self.direction == "add" and self.whole <= low):
            return Found(at_floor(low, floor), True, 0)
        cells = self._cells(high, slope, math.log(delta))
        if cells * max(1.0, self.steps.size / 6) > 2 * most:
            return Found(known, False, cells)
        for turn in range(_ROUNDS):
            table = self.lattice(number, low, high, (low + high) / 2, math.log(delta))
            if table is None:
                break
            if table.upper(low) <= delta:
                return Found(at_floor(low, floor), True, number)
            before, fine = high - low, 0.02 * tolerance(low)
            if table.upper(high) > delta:
                if not sure:  # the lattice is too coarse or, if it is so again, the sketch too low
                    high, number = high if turn == 0 else 2 * high + 1e-6, 6 * number
                    if number > most:
                        break
                    continue
            else:
                high, sure = crossing(table.upper, delta, low, high, fine)[1], True
            if table.lower(low) > delta:
                low = crossing(table.lower, delta, low, high, fine)[0]
            aim = enough(low)
            if high - low <= aim:
                return Found(Bracket(low, high), True, number)
            wanted = int(number * min(max(1.3 * math.sqrt((high - low) / aim), 1.5), 12.0))
            stuck = number > _FINE_CELLS and high - low > _STUCK_SHARE * before  # by rounding, which no lattice mends
            if wanted > most or stuck:
                return Found(Bracket(low, high), False, wanted)
            number = wanted
        return Found(Bracket(low, high if sure else math.inf), False, MOST)

    def curve(self, epsilons: Floats, most: int = CHEAP) -> tuple[Floats, Floats, Mask]:
        """Bounds of delta at each epsilon, and which of them are narrow; a lattice serves all that it resolves."""
        lower, upper = np.zeros(len(epsilons)), np.full(len(epsilons), min(1.0, total_variation(self.steps)))
        narrow, tried = np.zeros(len(epsilons), bool), np.zeros(len(epsilons), bool)
        if self.direction == "add":
            narrow = epsilons >= self.whole
            upper[narrow] = 0.0
        for _ in range(_TABLES):
            waiting = np.flatnonzero(~(narrow | tried))
            if not len(waiting):
                break
            chosen = waiting[np.argmin(epsilons[waiting])]
            table = self._table(float(epsilons[chosen]), float(epsilons[waiting].max()), most)
            tried[chosen] = True
            if table is None:
                continue
            for index in waiting:
                epsilon = float(epsilons[index])
                lower[index] = max(lower[index], table.lower(epsilon))
                upper[index] = min(upper[index], table.upper(epsilon))
                narrow[index] = _resolved(table, epsilon) <= 1
        return lower, upper, narrow

    def _table(self, epsilon: float, high: float, most: int) -> Grid | None:
        """The first lattice that resolves delta at one epsilon, or the last one tried; made for all up to ``high``."""
        number, table, log_delta = FIRST, None, math.log(min(1.0, total_variation(self.steps)))
        for _ in range(_ROUNDS):
            found = self.lattice(number, epsilon, high, epsilon, log_delta)
            if found is None:
                break
            table, ratio = found, _resolved(found, epsilon)
            number = int(number * min(max(1.3 * math.sqrt(ratio), 1.5), 12.0))
            if ratio <= 1 or number > most:
                break
            log_delta = math.log(max(found.lower(epsilon), 1e-3 * found.upper(epsilon), 1e-290))
        return table


def _resolved(table: Grid, epsilon: float) -> float:
    """The width of the bracket of delta in units of the wanted one: what the tolerance of epsilon allows, or 5e-4."""
    lower, upper, aim = table.lower(epsilon), table.upper(epsilon), tolerance(epsilon)
    return (upper - lower) / max(upper - table.upper(epsilon + aim), 5e-4 * lower, 1e-300)
