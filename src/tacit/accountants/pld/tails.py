"""What of a composed lattice law lies outside of a window of losses, by Chernoff bounds from bins."""

import math
from dataclasses import dataclass

import numpy as np

from tacit.accountants.pld.events import Floats
from tacit.accountants.pld.lattice import Law

_BINS = 300


@dataclass(frozen=True, slots=True)
class Window:
    """Where the window begins, relative to the start asked for, its size, and the tilt c."""

    offset: int
    size: int
    tilt: float


class Tails:
    """Chernoff bounds of a composed law, by sum of count * log sum_k p_k exp(slope i h), i = +-k, at some slopes."""

    def __init__(self, laws: list[Law], counts: Floats, sign: int, width: float) -> None:
        number = len(laws[0].masses)
        self.counts, self.sign, self.width, self.number = counts, sign, width, number
        self.slopes: Floats = np.append(0.0, np.geomspace(0.03, 400.0, 80)) / (width * number)
        self.logs = np.zeros(len(self.slopes))
        starts = np.arange(number)
        if number > _BINS:
            wide = np.geomspace(_BINS // 2, number - 1, _BINS // 2).astype(np.int64)
            starts = np.unique(np.append(np.arange(_BINS // 2), wide))
        ends = np.append(starts[1:], number) - 1
        exponents = sign * width * np.outer(self.slopes, np.append(starts, ends))
        peak = exponents.max(axis=1)
        growth = np.exp(exponents - peak[:, None])
        inside = np.arange(number) - np.repeat(starts, ends + 1 - starts)
        for law, count in zip(laws, counts, strict=True):
            # in bins, with the mass and the mean of each: exp is below its chord
            bins = np.maximum(np.add.reduceat(law.masses, starts), 1e-300)
            share = np.add.reduceat(law.masses * inside, starts) / (bins * np.maximum(ends - starts, 1))
            share = np.clip(share, 0.0, 1.0)
            sums = growth @ np.append(bins * (1 - share), bins * share)
            self.logs += count * (peak + np.log(np.maximum(sums, 1e-300)) + 1e-14 * (4 + np.abs(peak)))

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest i."""
        most = float(self.counts.sum()) * (self.number - 1)
        return (0.0, most) if self.sign > 0 else (-most, 0.0)

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

    def window(self, start: int, aim: int, log_delta: float, most: int) -> Window | None:
        """The smallest window, from ``start`` or from the lowest i, and a tilt that make all aliases negligible.

        Of the tilts for which the mass around ``aim`` is not much below the largest share of all tilted mass: there
        rounding, which is spread over all of it, matters least.
        """
        size, negligible = 2 ** math.ceil(math.log2(self.number)), max(log_delta - 14, -680.0)
        cost = self.logs - self.slopes * aim * self.width
        while size <= most:
            for first in (start, min(start, math.floor(self.range[0]))):
                fall = self.slopes * self.width * size
                bounds = self.logs - self.slopes * self.width * (first + size)
                above = np.append(np.minimum.accumulate(bounds[::-1])[::-1][1:], math.inf) + fall
                if first + size > self.range[1]:
                    above[:] = -math.inf
                below = -fall if first > self.range[0] else np.full(len(fall), -math.inf)
                good = (np.maximum(above, below) < negligible) & (cost < cost.min() + 6)
                if np.any(good) and self.lost(first, size) < math.exp(negligible):
                    best = int(np.flatnonzero(good)[np.argmin(cost[good])])
                    return Window(first - start, size, float(self.slopes[best]))
            size *= 2
        return None
