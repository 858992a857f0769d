"""The engine for few or rare steps: both lattice laws of each step composed by FFT, into bounds of delta.

Losses are tilted by exp(c loss) before they are composed, so that rounding, which a transform spreads evenly, is small
where delta is. With masses p at losses l_j = l_0 + j h, S_i the mass at and above i, and n the last point wanted,

    delta(l_j) = sum over k > j of p_k (1 - exp(l_j - l_k))
               = e^(l_j - l_n) delta(l_n) + e^(l_j) (1 - e^-h) * sum over i = j .. n-1 of e^(-l_i) S_(i+1),

sums of positive terms; in between delta is linear in e^epsilon. Steps beyond the lattice count, from above, as placed
by ``from_above``; from below with P - e^epsilon Q, which never exceeds the positive part.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import fft

from tacit.accountants.pld.lattice.laws import Law, from_above, from_below
from tacit.accountants.pld.lattice.tails import Bins, Tails, rounding
from tacit.accountants.pld.steps import UNIT, Direction, Steps
from tacit.types import Complexes, Floats

_MOST_EXPONENT = 500.0


@dataclass(frozen=True, slots=True)
class Line:
    """delta of a lattice law at epsilons first + j h, in between linear in e^epsilon; an error for each."""

    first: float
    width: float
    values: Floats
    errors: Floats

    @property
    def last(self) -> float:
        return self.first + self.width * (len(self.values) - 1)

    def at(self, epsilon: float) -> float:
        """The value; the last one beyond the last point, infinite below the first."""
        place = (epsilon - self.first) / self.width
        if place < 0:
            return math.inf
        index = math.floor(place)
        if index >= len(self.values) - 1:
            return float(self.values[-1])
        share = math.expm1((place - index) * self.width) / math.expm1(self.width)
        return float(self.values[index] * (1 - share) + self.values[index + 1] * share)

    def error(self, epsilon: float) -> float:
        """The error at the point below, which is the larger one."""
        index = math.floor((epsilon - self.first) / self.width)
        return float(self.errors[min(max(index, 0), len(self.errors) - 1)]) if index >= 0 else math.inf


@dataclass(frozen=True, slots=True)
class Circle:
    """The lattice points of a transform: i = start .. start + size - 1 of spacing h, tilted by exp(c i h).

    Args:
        sign: losses are sums of sign * k h over the cells k of the laws.
        skip: the points below the first epsilon that is wanted.
        points: how many epsilons are wanted.
    """

    width: float
    sign: int
    tilt: float
    size: int
    skip: int
    points: int


def compose(laws: list[Law], counts: Floats, circle: Circle, start: int, aliases: tuple[float, float]) -> Line | None:
    """delta of the composed law from point ``start + skip`` on, with losses counted from i = 0, and its error.

    Args:
        aliases: what masses outside of the circle may add at its start, falling like exp(-c i h), and everywhere.
    """
    step, width, total = circle.tilt * circle.width, circle.width, float(counts.sum())
    spectrum = _spectrum(laws, counts, circle)
    if spectrum is None:
        return None
    product, log_scale = spectrum
    masses = np.roll(fft.irfft(product, circle.size), -(start % circle.size))[circle.skip :]
    first = start + circle.skip
    exponent = log_scale - step * first
    if exponent > 600:
        return None
    scale = math.exp(max(exponent, -700.0))  # what that adds is below the 1e-300 of the errors
    masses *= np.exp(-step * np.arange(len(masses)))
    places, values = _deltas(masses, circle)
    rounded = scale * float(rounding(total, np.array(circle.tilt), width, circle.size))
    errors = rounded * np.exp(-circle.tilt * places)
    errors += aliases[0] * np.exp(-circle.tilt * (places + circle.skip * width)) + aliases[1] + 1e-300
    # and the rounding of the sums and of the scale
    terms = total + 700 + 2 * circle.size + abs(log_scale) + step * (abs(start) + circle.size)
    errors = errors * (1 + 1e-9) + (8 * UNIT * terms * scale) * np.abs(values)
    return Line(first * width, width, scale * values, errors)


def _deltas(masses: Floats, circle: Circle) -> tuple[Floats, Floats]:
    """The places of the wanted points above the first one, and delta there."""
    width = circle.width
    number = max(1, min(circle.points, len(masses), int(_MOST_EXPONENT / width) + 1))
    places: Floats = width * np.arange(number, dtype=np.float64)
    beyond = masses[number:]
    last = float(beyond @ -np.expm1(-width * np.arange(1, len(beyond) + 1)))
    above = np.cumsum(np.append(masses[1:number], beyond.sum())[::-1])[::-1]  # S_(i+1), i < number
    sums = np.append(np.cumsum((np.exp(-places) * above)[:-1][::-1])[::-1], 0.0)
    values: Floats = np.exp(places - places[-1]) * last + np.exp(places) * (-math.expm1(-width) * sums)
    return places, values


def _spectrum(laws: list[Law], counts: Floats, circle: Circle) -> tuple[Complexes, float] | None:
    """The transform of the tilted composed law, of mass 1, and the log of its mass; None if that overflows."""
    product, log_scale = np.ones(1, complex), 0.0
    for law, count in zip(laws, counts, strict=True):
        tilted = law.masses * np.exp((circle.sign * circle.tilt * circle.width) * np.arange(len(law.masses)))
        whole = float(tilted.sum())
        if not (0 < whole < math.inf):
            return None
        log_scale += count * math.log(whole)
        product = product * _power(fft.rfft(tilted / whole, circle.size), int(count))
    return product if circle.sign > 0 else product.conj(), log_scale


def _power(square: Complexes, count: int) -> Complexes:
    """square^count by squaring (in place): 2 log2(count) products, a relative error below 4 UNIT count."""
    while count % 2 == 0:
        np.multiply(square, square, out=square)
        count //= 2
    result = square.copy() if count > 1 else square
    while count > 1:
        np.multiply(square, square, out=square)
        count //= 2
        if count % 2:
            np.multiply(result, square, out=result)
    return result


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
    infinite = any_tail([law.tail_p for law in above], counts)
    tail_p, tail_q = any_tail([law.tail_p for law in below], counts), any_tail([law.tail_q for law in below], counts)
    lost = tails.lost(start + window.offset, window.size)
    slack = 16 * UNIT * (abs(bottom) + steps.total * width + frame.least + width * window.size)
    return Grid(lines[0], lines[1], lost + infinite * (1 + 1e-12), tail_p * (1 - 1e-12), tail_q * (1 + 1e-12), slack)


def any_tail(tails: list[float], counts: Floats) -> float:
    """The probability that some step is in its tail."""
    if max(tails) >= 1:
        return 1.0
    return -math.expm1(float(counts @ np.log1p(-np.array(tails))))
