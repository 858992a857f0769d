"""Lattice laws of many steps composed by one FFT into delta, and a bound of what a transform of limited size adds.

Losses are tilted by exp(c loss) before they are composed, so that rounding, which a transform spreads evenly, is small
where delta is. With masses p at losses l_j = l_0 + j h, S_i the mass at and above i, and n the last point wanted,

    delta(l_j) = sum over k > j of p_k (1 - exp(l_j - l_k))
               = e^(l_j - l_n) delta(l_n) + e^(l_j) (1 - e^-h) * sum over i = j .. n-1 of e^(-l_i) S_(i+1),

sums of positive terms. Losses outside of the transform's window are bounded by Chernoff's inequality, from bins.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy import fft

from tacit.accountants.pld.lattice.laws import Law
from tacit.accountants.pld.sizes import fast_size
from tacit.accountants.pld.steps import UNIT
from tacit.types import Complexes, Floats, Indices

_BINS = 300
_SLOPES: Floats = np.append(0.0, np.geomspace(0.03, 400.0, 80))
_MOST_EXPONENT = 500.0
_ROUNDING_OVER_ALIASES = 4.0  # log of how much larger than aliases rounding may be


@dataclass(frozen=True, slots=True)
class Profile:
    """The privacy profile delta(epsilon) of a lattice law at first + j h, linear in e^epsilon between; with errors."""

    first: float
    width: float
    values: Floats
    errors: Floats

    def upper(self, epsilon: float) -> float:
        """That at the last point beyond it, infinite below the first."""
        value, error = self._at(epsilon)
        return value * (1 + 1e-9) + error

    def lower(self, epsilon: float) -> float:
        """Nothing beyond the last point and below the first."""
        if not self.first <= epsilon <= self.first + self.width * (len(self.values) - 1):
            return 0.0
        value, error = self._at(epsilon)
        return max(0.0, value * (1 - 1e-9) - error)

    def _at(self, epsilon: float) -> tuple[float, float]:
        """The value, and the error at the point below, which is the larger one."""
        place = (epsilon - self.first) / self.width
        if place < 0:
            return math.inf, math.inf
        index = math.floor(place)
        if index >= len(self.values) - 1:
            return float(self.values[-1]), float(self.errors[-1])
        share = math.expm1((place - index) * self.width) / math.expm1(self.width)
        return float(self.values[index] * (1 - share) + self.values[index + 1] * share), float(self.errors[index])


@dataclass(frozen=True, slots=True)
class Grid:
    """Bounds of delta for one direction; sound everywhere, tight where they were asked for."""

    above: Profile
    below: Profile
    extra: float
    tail_p: float
    tail_q: float
    slack: float

    def upper(self, epsilon: float) -> float:
        return min(1.0, self.above.upper(epsilon - self.slack) + self.extra)

    def lower(self, epsilon: float) -> float:
        tail = self.tail_p - math.exp(min(epsilon, 700.0)) * self.tail_q
        return min(1.0, self.below.lower(epsilon + self.slack) + max(0.0, tail - 8 * UNIT * self.tail_p))


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


def compose(
    laws: list[Law], counts: Floats, circle: Circle, start: int, aliases: tuple[float, float]
) -> Profile | None:
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
    return Profile(first * width, width, scale * values, errors)


def _deltas(masses: Floats, circle: Circle) -> tuple[Floats, Floats]:
    """The places of the wanted points above the first one, and delta there."""
    width, most = circle.width, int(_MOST_EXPONENT / circle.width) + 1
    number = max(1, min(circle.points, len(masses), most))
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
class Bins:
    """The cells k of a lattice law in bins, and exp(slope i h), i = +-k, at their first and last cells.

    Args:
        starts, ends: the first and the last cell of each bin.
        inside: the place of each cell within its bin.
        growth: relative to exp(peak), one row for each slope.
    """

    sign: int
    width: float
    slopes: Floats
    starts: Indices
    ends: Indices
    inside: Indices
    peak: Floats
    growth: Floats

    @staticmethod
    def of(number: int, sign: int, width: float) -> "Bins":
        starts = np.arange(number)
        if number > _BINS:
            wide = np.geomspace(_BINS // 2, number - 1, _BINS // 2).astype(np.int64)
            starts = np.append(starts[: _BINS // 2], wide[np.diff(wide, prepend=_BINS // 2 - 1) > 0])
        ends = np.append(starts[1:], number) - 1
        slopes = _SLOPES / (width * number)
        exponents = sign * width * np.outer(slopes, np.append(starts, ends))
        peak = exponents.max(axis=1)
        inside = np.arange(number) - np.repeat(starts, ends + 1 - starts)
        return Bins(sign, width, slopes, starts, ends, inside, peak, np.exp(exponents - peak[:, None]))

    def log_moments(self, masses: Floats) -> Floats:
        """Upper bounds of log sum_k p_k exp(slope i h), by mass and mean of each bin: exp is below its chord."""
        bins = np.maximum(np.add.reduceat(masses, self.starts), 1e-300)
        share = np.add.reduceat(masses * self.inside, self.starts) / (bins * np.maximum(self.ends - self.starts, 1))
        share = np.clip(share, 0.0, 1.0)
        sums = self.growth @ np.append(bins * (1 - share), bins * share)
        result: Floats = self.peak + np.log(np.maximum(sums, 1e-300)) + 1e-14 * (4 + np.abs(self.peak))
        return result


class Tails:
    """Chernoff bounds of a composed law, by the sum of count * log sum_k p_k exp(slope i h) at some slopes."""

    def __init__(self, laws: list[Law], counts: Floats, bins: Bins) -> None:
        self.counts, self.sign, self.width, self.slopes = counts, bins.sign, bins.width, bins.slopes
        self.number = len(laws[0].masses)
        self.logs: Floats = counts @ np.stack([bins.log_moments(law.masses) for law in laws])

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest i."""
        most = float(self.counts.sum()) * (self.number - 1)
        return (0.0, most) if self.sign > 0 else (-most, 0.0)

    @property
    def _spare(self) -> int:
        """Cells for the law from below, whose places lie up to about 64 cells per step off those from above."""
        return 64 * int(self.counts.sum()) + 8

    def _beyond(self, tilt: float, first: int) -> float:
        """log of the mass at i >= first, multiplied by exp(tilt i h)."""
        if first > self.range[1]:
            return -math.inf
        bounds = (self.logs - (self.slopes - tilt) * self.width * first)[self.slopes > tilt]
        return float(bounds.min(initial=math.inf)) + 1e-6

    def lost(self, start: int, size: int) -> float:
        """The mass above the window."""
        return math.exp(min(0.0, self._beyond(0.0, start + size)))

    def aliases(self, tilt: float, start: int, size: int) -> tuple[float, float]:
        """What masses above and below the window add to delta at its start, where they land.

        From above they land j windows lower, at i >= start, and are divided by exp(tilt i h) there. From below they
        land j windows higher, where exp(-tilt j size h) of their mass is left.
        """
        above = math.exp(min(700.0, self._beyond(tilt, start + size) - tilt * self.width * start))
        if start <= self.range[0]:
            return above, 0.0
        fall = tilt * self.width * size
        return above, (1 + 1e-6) * math.exp(-fall) / -math.expm1(-fall) if fall > 0 else math.inf

    def window(self, start: int, aim: int, log_share: float, most: int, points: float) -> Circle | None:
        """The smallest window, from ``start`` or from the lowest i, and a tilt that keep aliases below exp(log_share).

        Of the tilts for which rounding matters little at ``aim``, or as little as it can: it is spread over all of the
        tilted mass, of which the mass around ``aim`` should be a large share.
        """
        negligible = max(log_share, -680.0)
        noise = np.log(rounding(float(self.counts.sum()), self.slopes, self.width, self.number))
        cost = self.logs - self.slopes * aim * self.width + noise
        near = cost < max(negligible + _ROUNDING_OVER_ALIASES, float(cost.min()) + 1)
        found: list[Circle] = []
        lowest = math.floor(self.range[0]) - (self._spare if self.sign < 0 else 0)
        for first in (start, min(start, lowest)):
            sizes = np.where(near, self._sizes(first, negligible), math.inf)
            least = max(float(sizes.min()), self.number)
            if least <= most:
                size = fast_size(math.ceil(least) + 1)
                tilt = float(self.slopes[int(np.argmin(np.where(sizes <= size, cost, math.inf)))])
                found.append(Circle(self.width, self.sign, tilt, size, start - first, int(min(points, size))))
        return min(found, key=lambda circle: circle.size, default=None)

    def _sizes(self, first: int, negligible: float) -> Floats:
        """For each slope, as a tilt, the size from which on what is lost and all aliases are below exp(negligible)."""
        slopes = self.slopes * self.width
        end = self.range[1] - first + (self._spare if self.sign > 0 else 0)
        with np.errstate(divide="ignore"):
            gap = np.maximum(slopes - slopes[:, None], 0.0)
            above = np.minimum(
                ((self.logs - slopes * first - negligible) / gap).min(axis=1, where=gap > 0, initial=math.inf), end
            )
            below = -negligible / slopes if first > self.range[0] else np.zeros(len(slopes))
        result: Floats = np.maximum(np.maximum(above, below), above[0])  # what is lost is the alias of no tilt
        return result


def rounding(total: float, tilts: Floats, width: float, size: int) -> Floats:
    """The error of delta at a point of a composed law of ``total`` steps, relative to its whole mass tilted from there.

    A transform errs by at most gamma times the sum of its (positive) input in each element (6 units for each of the
    log2 r levels that a pass of radix r = 2, 3, 4 or 5 stands for), and so do powers of it; by Parseval an error e of
    every element is an error of Euclidean norm e of the masses, which meets the weights (1 - exp(-i h)) exp(-c i h),
    i = 1 .. size, in theirs.
    """
    gamma = 6 * UNIT * math.log2(size)
    each = math.expm1(min(1.0, total * (gamma + 16 * UNIT))) + 2 * gamma
    fall = -np.expm1(-2 * width * tilts)
    with np.errstate(divide="ignore"):
        result: Floats = each * np.sqrt(np.minimum(np.minimum(1 / fall, 2 * width**2 / fall**3), float(size)))
    return result
