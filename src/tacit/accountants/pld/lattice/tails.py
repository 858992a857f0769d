"""What a transform of limited size adds to a composed lattice law: the losses outside of its window, by Chernoff bounds
from bins, and its rounding."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import fft

from tacit.accountants.pld.lattice.laws import Law
from tacit.accountants.pld.steps import UNIT
from tacit.types import Floats, Indices

_BINS = 300
_SLOPES: Floats = np.append(0.0, np.geomspace(0.03, 400.0, 80))
_MORE = 4.0  # log of how much larger than aliases rounding may be


@dataclass(frozen=True, slots=True)
class Window:
    """Where the window begins, relative to the start asked for, its size, and the tilt c."""

    offset: int
    size: int
    tilt: float


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

    def window(self, start: int, aim: int, log_share: float, most: int) -> Window | None:
        """The smallest window, from ``start`` or from the lowest i, and a tilt that keep aliases below exp(log_share).

        Of the tilts for which rounding matters little at ``aim``, or as little as it can: it is spread over all of the
        tilted mass, of which the mass around ``aim`` should be a large share.
        """
        negligible = max(log_share, -680.0)
        noise = np.log(rounding(float(self.counts.sum()), self.slopes, self.width, self.number))
        cost = self.logs - self.slopes * aim * self.width + noise
        near = cost < max(negligible + _MORE, float(cost.min()) + 1)
        found: list[Window] = []
        lowest = math.floor(self.range[0]) - (self._spare if self.sign < 0 else 0)
        for first in (start, min(start, lowest)):
            sizes = np.where(near, self._sizes(first, negligible), math.inf)
            least = max(float(sizes.min()), self.number)
            if least <= most:
                size = fft.next_fast_len(math.ceil(least) + 1, real=True)
                best = int(np.argmin(np.where(sizes <= size, cost, math.inf)))
                found.append(Window(first - start, size, float(self.slopes[best])))
        return min(found, key=lambda window: window.size, default=None)

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
