"""Quantiles from a noisy tree of counts over the declared range.

The range is cut into 4^7 = 16,384 leaves. Counts are released on each of the seven levels, of 4, 16, ... nodes; a
record lies in one node of a level. The least squares estimate of the leaves from all of them has a closed form: the
space of leaves splits into W_1 (constant on nodes of level 1) and W_l (constant on level l, sum 0 in nodes of level
l - 1), on which A'A of the tree's matrix A is multiplication by lambda_l = sum of the sizes of nodes on levels >= l:

    leaves = sum_l P_l A'y / lambda_l        variance of c'leaves = sigma^2 sum_l |P_l c|^2 / lambda_l

The quantile is where D(x) = (units below x) - q (all units) passes 0. Two readings of it, chosen by what was released:

- Where values are spread smoothly, D is averaged over as many leaves around x as hold some standard deviations of its
  noise, which at the scale of single leaves is so rough that D passes 0 several times. The interval ends where the
  average passes so many of its standard deviations.
- Where many units may share a value, as with ages in years, nothing is averaged: the interval goes from the first x at
  which D is not clearly below 0 to the last at which it is not clearly above, so that it holds at least as often as it
  says, whatever the values.

Lumps of J units show in squares of counts: sum n_i^2 - sum n_i n_(i+1) is about J times the number of units, whatever
the density. Smooth is what shows no lump and, on nodes of 1/1024 of the range, excludes lumps that would matter.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from tacit.intervals import critical
from tacit.queries.answers import Answer
from tacit.queries.kinds.columns import Values
from tacit.queries.release import Contribution, Noisy, Part
from tacit.tables import Table
from tacit.types import Floats

BRANCHES, LEVELS = 4, 7
LEAVES = BRANCHES**LEVELS
_SIZES = [BRANCHES ** (LEVELS - level) for level in range(1, LEVELS + 1)]  # of a node, in leaves
_LAMBDAS = [sum(_SIZES[level:]) for level in range(LEVELS)]
_WINDOW_STDDEVS = 2.0  # standard deviations that a window holds
_CLEARLY = 3.0  # standard errors by which a lump shows
_MATTERS = 2.5  # standard deviations of a count: lumps that would move an interval
_COARSE = 5  # the level, of 1024 nodes, on which lumps must be excluded


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Quantiles of a column, all from one tree: among units that have a value there."""

    text: str
    values: Values
    shares: tuple[float, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.values.column.name,)

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(Part(f"{self.text} (level {i})", LEAVES // size, 1 / LEVELS) for i, size in enumerate(_SIZES, 1))

    def contributions(self, table: Table) -> list[Contribution]:
        share = (self.values.scaled(table) + 1) / 2
        missing = np.isnan(share)
        leaf = np.minimum(np.where(missing, 0.0, share) * LEAVES, LEAVES - 1).astype(np.int64)
        return [Contribution(np.where(missing, -1, leaf // size), np.ones(len(table))) for size in _SIZES]

    def answers(self, noisy: Sequence[Noisy], level: float) -> list[Answer]:
        tree = Tree([part.sums for part in noisy], noisy[0].stddev)
        low, high = self.values.bounds
        found = []
        for share in self.shares:
            value, start, end = (low + (high - low) * place / LEAVES for place in tree.quantile(share, level))
            found.append(Answer(self.text, value, start, end, level, f"{share:g}" if len(self.shares) > 1 else None))
        return found


@dataclass(frozen=True, slots=True)
class Tree:
    """Released counts of every level, and the noise on each of them. Public."""

    levels: list[Floats]
    stddev: float

    def leaves(self) -> Floats:
        """The least squares estimate; its sums over nodes agree on all levels."""
        back = np.zeros(LEAVES)
        for counts, size in zip(self.levels, _SIZES, strict=True):
            back += np.repeat(counts, size)
        return np.asarray(sum(part / value for part, value in zip(_apart(back), _LAMBDAS, strict=True)))

    def quantile(self, share: float, level: float) -> tuple[float, float, float]:
        """Value, low and high in leaves from the lower bound."""
        below = np.concatenate([[0.0], np.cumsum(self.leaves())])
        distance, reach = below - share * below[-1], critical(level)
        if not self.is_smooth():
            noise = reach * self.stddev * _edge_stddevs(share)
            first, last = np.flatnonzero(distance >= -noise), np.flatnonzero(distance <= noise)
            ends = first[0] - 1 if first.size else LEAVES - 1, last[-1] + 1 if last.size else 1
            return _crossing(distance), float(max(0, ends[0])), float(min(LEAVES, ends[1]))
        window = self._window(distance, share)
        smooth = _averaged(distance, window)
        middle = _crossing(smooth)
        low, high = (self._end(smooth, middle, share, window, side * reach) for side in (1, -1))
        return middle, low, high

    def is_smooth(self) -> bool:
        """Whether no value is shared by so many units that it would show in an interval."""
        units = max(float(self.levels[0].sum()), 1.0)
        for number, counts in enumerate(self.levels[_COARSE - 1 :]):
            lumps = float(counts @ counts - counts[1:] @ counts[:-1]) - len(counts) * self.stddev**2
            error = self.stddev**2 * math.sqrt(3 * len(counts))
            if lumps > _CLEARLY * error + units:  # every unit is a lump of its own
                return False
            if number == 0 and lumps + 2 * error > _MATTERS * self.stddev * units:
                return False
        return True

    def _end(self, smooth: Floats, middle: float, share: float, window: int, reach: float) -> float:
        """Where D passes so many standard deviations, which are those of that place."""
        end = middle
        for _ in range(3):
            end = _crossing(smooth + reach * self._stddev(end, share, window))
        return end

    def _window(self, distance: Floats, share: float) -> int:
        """How many leaves, the fewest powers of two, hold enough records around the place where D passes 0."""
        window = 1
        while window < LEAVES // 4:
            place = _crossing(_averaged(distance, window))
            start, end = (int(np.clip(round(place + side * window / 2), 0, LEAVES)) for side in (-1, 1))
            if distance[end] - distance[start] >= _WINDOW_STDDEVS * self._stddev(place, share, 1):
                break
            window *= 2
        return window

    def _stddev(self, edge: float, share: float, window: int) -> float:
        """Of D at an edge, averaged over a window: its weights are 1, falling to 0 in the window, less the share."""
        start, end = edge - window / 2, edge + window / 2
        energy = 0.0
        for size, value in zip(_SIZES, _LAMBDAS, strict=True):
            wide = BRANCHES * size  # only in these nodes are the children's weights not all the same
            nodes = np.arange(max(0, start // wide), min(LEAVES // wide, end // wide + 1))
            edges = wide * nodes[:, None] + size * np.arange(BRANCHES + 1)
            means = np.diff(_area(edges, start, window), axis=1) / size
            middle = share if wide == LEAVES else means.mean(1, keepdims=True)
            energy += size * float(((means - middle) ** 2).sum()) / value
        return self.stddev * math.sqrt(energy)


@lru_cache(maxsize=16)
def _edge_stddevs(share: float) -> Floats:
    """Of D at every edge, for counts with noise of 1: of a node that it cuts, some children count and a part of one."""
    edges, energy = np.arange(LEAVES + 1), np.zeros(LEAVES + 1)
    for size, value in zip(_SIZES, _LAMBDAS, strict=True):
        wide = BRANCHES * size
        inside = edges % wide if wide < LEAVES else edges
        whole, part = inside // size, inside % size / size
        if wide < LEAVES:
            squares = whole + part**2 - (whole + part) ** 2 / BRANCHES
        else:
            squares = whole + part**2 - 2 * share * (whole + part) + BRANCHES * share**2
        energy += size * squares / value
    return np.sqrt(energy)


def _area(x: Floats, start: float, window: int) -> Floats:
    """What lies to the left of x under a weight of 1 that falls to 0 from ``start`` on, over a window."""
    inside = np.clip(x - start, 0, window)
    return np.asarray(np.minimum(x, start) + inside - inside**2 / (2 * window))


def _apart(vector: Floats) -> list[Floats]:
    """P_l of a vector of leaves, for every level."""
    means = [np.repeat(vector.reshape(-1, size).mean(1), size) for size in _SIZES]
    return [means[0], *(fine - coarse for coarse, fine in pairwise(means))]


def _averaged(values: Floats, window: int) -> Floats:
    """The moving average over a window of edges; beyond the ends D goes on as it begins."""
    if window == 1:
        return values
    wide = np.concatenate([np.full(window, values[0]), values, np.full(window, values[-1])])
    total = np.concatenate([[0.0], np.cumsum(wide)])
    start = np.arange(len(values)) + window - window // 2
    return np.asarray((total[start + window] - total[start] + (wide[start + window] - wide[start]) / 2) / window)


def _crossing(values: Floats) -> float:
    """Where a rising sequence passes 0: halfway between its first value above and its last value below."""
    above, below = np.flatnonzero(values > 0), np.flatnonzero(values < 0)
    first, last = (above[0] if above.size else len(values) - 1), (below[-1] if below.size else 0)
    if first == last + 1 and values[first] > values[last]:
        return float(last + values[last] / (values[last] - values[first]))
    return float(first + last) / 2
