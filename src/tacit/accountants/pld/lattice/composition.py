"""Lattice laws composed by FFT, into delta at lattice points.

Losses are tilted by exp(c loss) before they are composed, so that rounding, which a transform spreads evenly, is small
where delta is. With masses p at losses l_j = l_0 + j h, S_i the mass at and above i, and n the last point wanted,

    delta(l_j) = sum over k > j of p_k (1 - exp(l_j - l_k))
               = e^(l_j - l_n) delta(l_n) + e^(l_j) (1 - e^-h) * sum over i = j .. n-1 of e^(-l_i) S_(i+1),

sums of positive terms; in between delta is linear in e^epsilon.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import fft

from tacit.accountants.pld.contour.waves import Complexes
from tacit.accountants.pld.lattice.above import Law
from tacit.accountants.pld.loss import UNIT
from tacit.types import Floats

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
