"""The engine for few or rare steps: lattice laws composed by FFT, into bounds of delta at every lattice point.

Losses are tilted by exp(c loss) before they are composed, so that rounding, which a transform spreads evenly, is small
where delta is. With masses p at losses l_j = l_0 + j h, S_i the mass at and above i,

    delta(l_j) = sum over k > j of p_k (1 - exp(l_j - l_k)) = e^(l_j) (1 - e^-h) * sum over i >= j of e^(-l_i) S_(i+1),

sums of positive terms; in between delta is linear in e^epsilon. Steps beyond the lattice count, from above, as placed
by ``lattice.from_above``; from below with P - e^epsilon Q, which never exceeds the positive part.
"""

import math
from dataclasses import dataclass

import numpy as np

from tacit.accountants.pld.events import Floats, Steps
from tacit.accountants.pld.lattice import Law, from_above, from_below
from tacit.accountants.pld.loss import UNIT
from tacit.accountants.pld.saddle import Direction

_BINS = 400
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
    """The lattice asked for: spacing, number of cells of one step, and the epsilons of interest."""

    width: float
    number: int
    least: float
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
    goal = sign * (frame.least - bottom)
    tilt = _tilt(above, counts, sign, width, goal)
    below = [from_below(q, m, direction, width, number, tilt) for q, m in pairs]
    size = _size(above, counts, sign, width, tilt, goal, frame.log_delta, most_size)
    if size is None:
        return None
    lines = []
    for laws in (above, below):
        origin = bottom + sign * float(counts @ [law.origin for law in laws])
        shift = float(counts @ [law.shift for law in laws])
        line = _compose(laws, counts, sign, width, tilt, size, origin + (shift if laws is above else -shift), frame)
        if line is None:
            return None
        lines.append(line)
    if direction == "remove":
        lost = _lost(above, counts, width, size)
        infinite = -math.expm1(float(counts @ np.log1p([-min(law.tail_p, 0.5) for law in above])))
        infinite = infinite if max(law.tail_p for law in above) < 0.5 else 1.0
        with np.errstate(divide="ignore"):
            tail_p = -math.expm1(float(counts @ np.log1p([-law.tail_p for law in below]))) * (1 - 1e-12)
            tail_q = -math.expm1(float(counts @ np.log1p([-law.tail_q for law in below]))) * (1 + 1e-12)
    else:
        lost, infinite, tail_p, tail_q = 0.0, 0.0, 0.0, 0.0
    slack = 16 * UNIT * (abs(bottom) + steps.total * width + frame.least + width * size)
    return Grid(lines[0], lines[1], lost + infinite * (1 + 1e-12), tail_p, tail_q, slack)


def _log_moments(laws: list[Law], counts: Floats, width: float, slopes: Floats) -> Floats:
    """An upper bound of sum of count * log sum_k p_k exp(slope k h), from bins, for each slope."""
    total = np.zeros(len(slopes))
    for law, count in zip(laws, counts, strict=True):
        size = -(-len(law.masses) // _BINS)
        starts = np.arange(0, len(law.masses), size)
        bins = np.add.reduceat(law.masses, starts)
        ends = np.minimum(starts + size, len(law.masses)) - 1
        with np.errstate(divide="ignore", over="ignore"):
            logs = np.log(bins)[None, :] + width * np.maximum(np.outer(slopes, starts), np.outer(slopes, ends))
            peak = logs.max(axis=1)
            total += count * (peak + np.log(np.exp(logs - peak[:, None]).sum(axis=1)) + 1e-12)
    return total


def _tilt(laws: list[Law], counts: Floats, sign: int, width: float, goal: float) -> float:
    """The c that makes the mass around the smallest epsilon largest among the tilted ones (goal: its sum of u)."""
    reach = width * len(laws[0].masses)
    choices = np.append(0.0, np.geomspace(1e-2, 200.0, 40)) / reach
    cost = _log_moments(laws, counts, width, sign * choices) - sign * choices * goal
    return float(choices[int(np.argmin(cost))])


def _size(
    laws: list[Law], counts: Floats, sign: int, width: float, tilt: float, goal: float, log_delta: float, most: int
) -> int | None:
    """The smallest power of two whose wrapped masses are negligible."""
    longest = float(counts.sum()) * (len(laws[0].masses) - 1) + 1
    size = 2 ** math.ceil(math.log2(min(longest, max(len(laws[0].masses), goal / width + 4))))
    while size <= most:
        if size >= longest or _log_wrapped(laws, counts, sign, width, tilt, size) - sign * tilt * goal < log_delta - 18:
            if sign < 0 or size >= longest or _lost(laws, counts, width, size) < math.exp(log_delta - 14):
                return size
        size *= 2
    return None


def _slopes(laws: list[Law], width: float) -> Floats:
    result: Floats = np.geomspace(0.1, 300.0, 40) / (width * len(laws[0].masses))
    return result


def _log_wrapped(laws: list[Law], counts: Floats, sign: int, width: float, tilt: float, size: int) -> float:
    """log of the tilted mass at sums of at least ``size``, by Chernoff."""
    if float(counts.sum()) * (len(laws[0].masses) - 1) < size:
        return -math.inf
    slopes = sign * tilt + _slopes(laws, width)
    bounds = _log_moments(laws, counts, width, slopes) - (slopes - sign * tilt) * width * size
    return float(bounds.min()) + 1e-6


def _lost(laws: list[Law], counts: Floats, width: float, size: int) -> float:
    """The mass at sums of at least ``size``, by Chernoff."""
    if float(counts.sum()) * (len(laws[0].masses) - 1) < size:
        return 0.0
    slopes = _slopes(laws, width)
    return math.exp(min(0.0, float((_log_moments(laws, counts, width, slopes) - slopes * width * size).min()) + 1e-6))


def _compose(
    laws: list[Law], counts: Floats, sign: int, width: float, tilt: float, size: int, origin: float, frame: Frame
) -> Line | None:
    """delta of the composed law at its lattice points from just below ``least`` on, and what to add or subtract.

    A transform errs by at most gamma times the sum of its (positive) input in each element, and so do powers of it;
    by Parseval an error e of every element is an error of Euclidean norm e of the masses, which meets the weights
    (1 - exp(-i h)) exp(-c i h), i > 0, in theirs.
    """
    step = tilt * width
    gamma, total = 6 * UNIT * math.log2(size), float(counts.sum())
    product, log_scale = None, 0.0
    for law, count in zip(laws, counts, strict=True):
        tilted = law.masses * np.exp(sign * step * np.arange(len(law.masses)))
        whole = float(tilted.sum())
        if not (0 < whole < math.inf):
            return None
        tilted /= whole
        log_scale += count * math.log(whole)
        power = _power(np.fft.rfft(tilted, size), int(count))
        product = power if product is None else product * power
    if product is None:
        return None
    error = math.expm1(min(1.0, total * (gamma + 16 * UNIT))) + 2 * gamma
    masses = np.fft.irfft(product, size)
    # the part of interest, in order of rising loss: first is the loss of the first mass
    if sign > 0:
        start = max(0, math.floor((frame.least - origin) / width) - 2)
        if start >= size - 1:
            return None
        masses, first = masses[start:], origin + start * width
        exponents = log_scale - step * (start + np.arange(len(masses)))
    else:
        number = min(size, math.floor((origin - frame.least) / width) + 3)
        if number < 2:
            return Line(frame.least - width, width, np.zeros(2), np.zeros(2))
        masses, first = masses[:number][::-1], origin - (number - 1) * width
        exponents = log_scale + step * (number - 1 - np.arange(number))
    span = min(len(masses), int(_MOST_EXPONENT / width) + 1)
    if exponents[0] > 600 or (span < len(masses) and sign < 0):
        return None
    scale = np.exp(np.maximum(exponents, -740.0))
    above = np.append(np.cumsum((masses * scale)[::-1])[::-1], 0.0)
    places = width * np.arange(span)
    sums = np.cumsum((np.exp(-places) * above[1 : span + 1])[::-1])[::-1]
    values = np.exp(places) * -math.expm1(-width) * sums
    tail = np.exp(places - places[-1]) * above[span] if span < len(masses) else np.zeros(span)
    wrapped = math.exp(min(700.0, _log_wrapped(laws, counts, sign, width, tilt, size) - log_scale))
    errors = scale[:span] * (error * _norm(step, width, size) + wrapped) * (1 + 1e-9) + np.abs(tail) + 1e-300
    relative = 8 * UNIT * (total + 700 + 2 * size)
    return Line(first, width, values, errors + relative * np.abs(values))


def _norm(step: float, width: float, size: int) -> float:
    """The Euclidean norm of (1 - exp(-i h)) exp(-i c h), i = 1 .. size, or a little more."""
    plain = 1 / -math.expm1(-2 * step) if step > 0 else math.inf
    ratio = math.exp(-2 * step)
    sloped = width**2 * 2 / (1 - ratio) ** 3 if ratio < 1 else math.inf
    return math.sqrt(min(plain, sloped, float(size)))


def _power(values: Floats, count: int) -> Floats:
    """values^count by squaring: 2 log2(count) products, a relative error below 4 UNIT count."""
    result, square = None, values
    while count:
        if count & 1:
            result = square if result is None else result * square
        count >>= 1
        if count:
            square = square * square
    assert result is not None
    return result
