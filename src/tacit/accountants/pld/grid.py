"""The engine for few or rare steps: lattice laws composed by FFT, into bounds of delta at every lattice point.

Losses are tilted by exp(c loss) before they are composed, so that rounding, which a transform spreads evenly, is small
where delta is. With masses p at losses l_j = l_0 + j h, S_i the mass at and above i,

    delta(l_j) = sum over k > j of p_k (1 - exp(l_j - l_k)) = e^(l_j) (1 - e^-h) * sum over i >= j of e^(-l_i) S_(i+1),

sums of positive terms; in between delta is linear in e^epsilon. Steps beyond the lattice count, from above, as placed
by ``lattice.from_above``; from below with P - e^epsilon Q, which never exceeds the positive part.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from tacit.accountants.pld.events import Floats, Steps
from tacit.accountants.pld.lattice import Law, from_above
from tacit.accountants.pld.loss import UNIT
from tacit.accountants.pld.merging import from_below
from tacit.accountants.pld.saddle import Direction
from tacit.accountants.pld.tails import Tails
from tacit.accountants.pld.waves import Complexes

_MOST_EXPONENT = 500.0


@dataclass(frozen=True, slots=True)
class Line:
    """delta of a lattice law at epsilons first + j h, in between linear in e^epsilon; an error for each."""

    first: float
    width: float
    values: Floats
    errors: Floats

    def at(self, epsilon: float) -> float:
        """The value; 0 beyond the last point, infinite below the first."""
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
        error = self.below.error(at)
        inside = max(0.0, self.below.at(at) * (1 - 1e-9) - error) if math.isfinite(error) else 0.0
        tail = self.tail_p - math.exp(min(epsilon, 700.0)) * self.tail_q
        return min(1.0, inside + max(0.0, tail - 8 * UNIT * self.tail_p))


@dataclass(frozen=True, slots=True)
class Frame:
    """The lattice asked for: spacing, number of cells of one step, the least epsilon and the one of most interest."""

    width: float
    number: int
    least: float
    aim: float
    log_delta: float


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
    tails = Tails(above, counts, sign, width)
    aim = max(start, math.floor((frame.aim - bottom) / width))
    window = tails.window(start, aim, frame.log_delta, most_size)
    if window is None:
        return None
    size, tilt = window.size, window.tilt
    below = [from_below(q, m, direction, width, number, tilt) for q, m in pairs]
    lines = []
    for laws in (above, below):
        origin = bottom + sign * float(counts @ [law.origin for law in laws])
        shift = float(counts @ [law.shift for law in laws])
        first = math.floor((frame.least - origin) / width) - 3 + window.offset
        aliases = (tails if laws is above else Tails(below, counts, sign, width)).aliases(tilt, first, size)
        line = _compose(laws, counts, sign, width, tilt, size, first, aliases)
        if line is None:
            return None
        lines.append(replace(line, first=line.first + origin + (shift if laws is above else -shift)))
    infinite = _some([law.tail_p for law in above], counts)
    tail_p, tail_q = _some([law.tail_p for law in below], counts), _some([law.tail_q for law in below], counts)
    lost = tails.lost(start + window.offset, size)
    slack = 16 * UNIT * (abs(bottom) + steps.total * width + frame.least + width * size)
    return Grid(lines[0], lines[1], lost + infinite * (1 + 1e-12), tail_p * (1 - 1e-12), tail_q * (1 + 1e-12), slack)


def _some(tails: list[float], counts: Floats) -> float:
    """The probability that some step is in its tail."""
    if max(tails) >= 1:
        return 1.0
    return -math.expm1(float(counts @ np.log1p(-np.array(tails))))


def _compose(
    laws: list[Law],
    counts: Floats,
    sign: int,
    width: float,
    tilt: float,
    size: int,
    start: int,
    aliases: tuple[float, float],
) -> Line | None:
    """delta of the composed law at its lattice points from ``start`` on, with losses counted from i = 0, and its error.

    A transform errs by at most gamma times the sum of its (positive) input in each element, and so do powers of it;
    by Parseval an error e of every element is an error of Euclidean norm e of the masses, which meets the weights
    (1 - exp(-i h)) exp(-c i h), i > 0, in theirs.
    """
    step, gamma, total = tilt * width, 6 * UNIT * math.log2(size), float(counts.sum())
    product, log_scale = np.ones(size // 2 + 1, complex), 0.0
    for law, count in zip(laws, counts, strict=True):
        tilted = law.masses * np.exp(sign * step * np.arange(len(law.masses)))
        whole = float(tilted.sum())
        if not (0 < whole < math.inf):
            return None
        log_scale += count * math.log(whole)
        product = product * _power(np.fft.rfft(tilted / whole, size), int(count))
    error = math.expm1(min(1.0, total * (gamma + 16 * UNIT))) + 2 * gamma
    masses = np.roll(np.fft.irfft(product if sign > 0 else product.conj(), size), -(start % size))
    exponents = log_scale - step * (start + np.arange(size))
    if exponents[0] > 600:
        return None
    scale = np.exp(np.maximum(exponents, -740.0))
    above = np.append(np.cumsum((masses * scale)[::-1])[::-1], 0.0)
    span = min(size, int(_MOST_EXPONENT / width) + 1)
    places = width * np.arange(span)
    sums = np.cumsum((np.exp(-places) * above[1 : span + 1])[::-1])[::-1]
    values = np.exp(places) * -math.expm1(-width) * sums
    # what lies above the span, the transform, the aliases, and the sums themselves
    errors = np.exp(places - places[-1]) * abs(above[span]) + scale[:span] * error * _norm(step, width, size)
    errors += aliases[0] * np.exp(-tilt * places) + aliases[1] + 1e-300
    terms = total + 700 + 2 * size + abs(log_scale) + step * (abs(start) + size)
    errors = errors * (1 + 1e-9) + 8 * UNIT * terms * np.abs(values)
    return Line(start * width, width, values, errors)


def _norm(step: float, width: float, size: int) -> float:
    """The Euclidean norm of (1 - exp(-i h)) exp(-i c h), i = 1 .. size, or a little more."""
    plain = 1 / -math.expm1(-2 * step) if step > 0 else math.inf
    ratio = math.exp(-2 * step)
    sloped = width**2 * 2 / (1 - ratio) ** 3 if ratio < 1 else math.inf
    return math.sqrt(min(plain, sloped, float(size)))


def _power(values: Complexes, count: int) -> Complexes:
    """values^count by squaring: 2 log2(count) products, a relative error below 4 UNIT count."""
    result, square = np.ones_like(values), values
    while count:
        if count & 1:
            result = result * square
        count >>= 1
        if count:
            square = square * square
    return result
