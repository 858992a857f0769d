"""The log moment generating function K of a ledger on the real axis: Chernoff bounds, and the best line of a contour.

A contour is cheap if its period is short, the one that makes the aliases below and above its epsilons negligible.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tacit.accountants.pld.contour.moments import real_moments
from tacit.accountants.pld.steps import Direction, Steps, UnresolvedError

_LOWEST_C, _HIGHEST_C = 1e-7, 1e8
_CLOSE_RATIO = 1.05  # how near to the best c the search goes
_TURNS = 40
_ROWS = 16  # moments evaluated together: as fast as one
_SECTIONS = 15  # 2^(1/15) < _CLOSE_RATIO
_AT_CAP = 1e-14  # with more mass at a cap the trapezoid rule is not exact enough for a line
_FAR = (2.0, 4.0)  # further points above c, that bound far aliases
_LOWER = 3  # lines below c that are compared
_RATIO = 1.16  # of neighbouring lines that are compared: each is a point above those below it


@dataclass(frozen=True, slots=True)
class Cumulants:
    """K, K', K'' of the privacy loss at a real point c, a bound of the error of K, and how much mass sits at a cap."""

    c: float
    value: float
    first: float
    second: float
    error: float
    end: float

    def log_chernoff(self, epsilon: float) -> float:
        """An upper bound of log delta: (1 - e^-u)_+ <= e^(cu) c^c/(c+1)^(c+1) for every u."""
        return self.value + self.error - self.c * epsilon - self.c * math.log1p(1 / self.c) - math.log1p(self.c)

    def chernoff_epsilon(self, log_delta: float) -> float:
        """The epsilon at which that bound is delta: the Renyi conversion at order c + 1 (maths.md 2)."""
        return (self.log_chernoff(0.0) - log_delta) / self.c

    @property
    def best_epsilon(self) -> float:
        """The epsilon for which c makes the Chernoff bound smallest."""
        return self.first - math.log1p(1 / self.c)


def tilt_of(direction: Direction, c: float) -> float:
    """The order a of the likelihood ratio: K(c) = F(c + 1) for remove, F(-c) for add."""
    return c + 1 if direction == "remove" else -c


def cumulants(steps: Steps, direction: Direction, points: Sequence[float]) -> list[Cumulants]:
    """K(c) = sum of count * F(a) + mu^2 c (c+1)/2, and its derivatives, at several points at once."""
    c, square, kinds = np.array(points, dtype=np.float64), steps.gaussian_square, len(steps.counts)
    value, first, second = square * c * (c + 1) / 2, square * (c + 0.5), np.full(len(c), square)
    error, end = np.zeros(len(c)), np.zeros(len(c))
    if kinds:
        sign, tilts = (1.0, c + 1) if direction == "remove" else (-1.0, -c)
        q, m, caps = (np.repeat(law, len(c)) for law in (steps.probabilities, steps.noise_multipliers, steps.caps))
        found = real_moments(q, m, caps, np.tile(tilts, kinds))
        rows = [row.reshape(kinds, len(c)) for row in found]
        sums = [steps.counts @ row for row in rows[:4]]
        value, first, second, error = value + sums[0], first + sign * sums[1], second + sums[2], sums[3]
        error += 1e-15 * (steps.counts @ np.abs(rows[0]))
        end = rows[4].max(axis=0)
    columns = (c, value, first, second, error + 1e-15 * np.abs(value), end)
    return [Cumulants(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


class RealAxis:
    """K on the real axis for one direction of one ledger, each point evaluated once; ``start`` is a guess of c."""

    def __init__(self, steps: Steps, direction: Direction, start: float = 0.0) -> None:
        self.steps, self.direction, self._start = steps, direction, start
        self._seen: dict[float, Cumulants] = {}
        self._together = max(1, _ROWS // max(steps.size, 1))

    def at(self, c: float) -> Cumulants:
        self.look([c])
        return self._seen[c]

    def look(self, points: Sequence[float]) -> None:
        """Evaluate all points that were not seen before: together, unless there are many kinds of steps."""
        new = [c for c in dict.fromkeys(points) if c not in self._seen]
        for start in range(0, len(new), self._together):
            part = new[start : start + self._together]
            self._seen.update(zip(part, self._evaluate(part), strict=True))

    def _evaluate(self, points: Sequence[float]) -> list[Cumulants]:
        """Out of reach K is infinite: that says nothing, and says it safely."""
        try:
            return cumulants(self.steps, self.direction, points)
        except (UnresolvedError, ArithmeticError, ValueError):
            if len(points) > 1:
                return [point for c in points for point in self._evaluate([c])]
            return [Cumulants(points[0], math.inf, math.inf, math.inf, 0.0, math.inf)]

    def for_epsilon(self, epsilon: float) -> Cumulants:
        """Just below the c of the smallest Chernoff bound of delta."""
        return self._search(lambda point: point.best_epsilon - epsilon)

    def for_delta(self, log_delta: float) -> Cumulants:
        """Just below the c of the smallest Chernoff epsilon."""
        return self._search(lambda point: log_delta - point.log_chernoff(point.best_epsilon))

    def log_delta_at_most(self, epsilon: float) -> float:
        """The smallest Chernoff bound of log delta(epsilon): never below the truth, without a contour."""
        self.for_epsilon(epsilon)
        return min(point.log_chernoff(epsilon) for point in self._seen.values())

    def epsilon_at_most(self, log_delta: float) -> float:
        """The smallest Chernoff bound of epsilon, which may be negative."""
        self.for_delta(log_delta)
        return min(point.chernoff_epsilon(log_delta) for point in self._seen.values())

    def reaches(self, epsilon: float, log_delta: float) -> bool:
        """Whether a Chernoff bound of delta(epsilon) is as low as asked.

        Its logarithm is convex in c with the derivative best_epsilon - epsilon, so the tangents at two points on either
        side of the minimum bound it from below.
        """
        left: Cumulants | None = None
        right: Cumulants | None = None
        c = self._guess()
        for _ in range(_TURNS):
            point = self.at(c)
            if point.log_chernoff(epsilon) <= log_delta:
                return True
            if point.best_epsilon > epsilon or not math.isfinite(point.value):
                right = point
            else:
                left = point
            if right is None or left is None:
                c = 2 * c if right is None else c / 2
                if not _LOWEST_C < c < _HIGHEST_C:
                    return False
                continue
            meet, least = _tangents(left, right, epsilon)
            if least > log_delta or right.c < 1.01 * left.c:
                return False
            c = min(max(meet, left.c**0.9 * right.c**0.1), left.c**0.1 * right.c**0.9)
        return False

    def best_line(
        self, peak: Cumulants, epsilon: float, log_delta: float, log_share: float
    ) -> tuple[Cumulants, tuple[Cumulants, ...], float]:
        """The line with the smallest period, the points above it that bound its aliases, and that period.

        Among ``peak`` and somewhat below, where the tilted loss may be much narrower. Not too far below: there
        exp(K(c) - c eps) exceeds delta, and rounding with it.

        Args:
            log_share: the log of what aliases may add to delta.
        """
        self.look([peak.c * factor for factor in _FAR] + [peak.c * _RATIO**power for power in range(-_LOWER, 3)])
        best, least = peak, self.period(peak, epsilon, log_share)
        for power in range(1, _LOWER + 1):
            line = self.at(peak.c * _RATIO**-power)
            found = self.period(line, epsilon, log_share)
            if found < least and line.value - line.c * epsilon - log_delta < 12:
                best, least = line, found
        return best, self._above(best), least

    def period(self, line: Cumulants, epsilon: float, log_share: float) -> float:
        """The smallest period U that makes the aliases below and above negligible."""
        below = (1 - log_share) / line.c
        above = min(
            (point.value + point.error - point.c * epsilon + 1 - log_share) / (point.c - line.c)
            for point in self._above(line)
        )
        return max(below, above)

    def _above(self, line: Cumulants) -> tuple[Cumulants, ...]:
        """Some points above c, near and far; those that the search has seen come for nothing."""
        self.look([line.c * _RATIO**power for power in (1, 2)])
        return tuple(point for point in self._seen.values() if point.c > 1.02 * line.c and math.isfinite(point.value))

    def _search(self, rising: Callable[[Cumulants], float]) -> Cumulants:
        """Look on log c for the zero of a function that rises with c; the end of the range if there is none.

        The lower end is returned: a little too low costs a few nodes, but above the zero K can grow at once, where the
        record's own Gaussian takes over the moments.
        """

        def height(point: Cumulants) -> float:
            value = rising(point)
            return math.inf if point.end > _AT_CAP or math.isnan(value) else value

        def ends() -> tuple[float, float]:
            seen = self._seen.values()
            low = max((point.c for point in seen if height(point) <= 0), default=0.0)
            return low, min((point.c for point in seen if height(point) > 0), default=math.inf)

        few = self._together > 1
        if not self._seen:
            self.look([self._guess() * 2.0**power for power in (range(-6, 3) if few else (0,))])
        low, high = ends()
        while (low == 0 and high > _LOWEST_C) or (high == math.inf and low < _HIGHEST_C):
            self.look([high / 2**power if low == 0 else low * 2**power for power in ((1, 2) if few else (1,))])
            low, high = ends()
        if low == 0 or high == math.inf:
            return self.at(high if low == 0 else low)
        while high > _CLOSE_RATIO * low:
            share = _false_position(height(self.at(low)), height(self.at(high)))
            shares = np.arange(1, _SECTIONS) / _SECTIONS if few else np.array([share])
            self.look((low * (high / low) ** shares).tolist())
            low, high = ends()
        return self.at(low)

    def _guess(self) -> float:
        """c is a few standard deviations of the loss, in units of one over it; the central limit gives its size."""
        if self._start > 0:
            return self._start
        exponent = np.minimum(self.steps.noise_multipliers**-2.0, 10.0)
        square = self.steps.gaussian_square + self.steps.counts @ (self.steps.probabilities**2 * np.expm1(exponent))
        return float(np.clip(4 / math.sqrt(square), 1e-4, 1e6))


def _tangents(left: Cumulants, right: Cumulants, epsilon: float) -> tuple[float, float]:
    """Where the tangents to the log of Chernoff's bound at two points meet, and its value there."""
    fall, rise = left.best_epsilon - epsilon, right.best_epsilon - epsilon
    at_left, at_right = left.log_chernoff(epsilon), right.log_chernoff(epsilon)
    if not (math.isfinite(rise) and math.isfinite(at_right) and rise > fall):
        return math.sqrt(left.c * right.c), -math.inf
    meet = (at_left - at_right + rise * right.c - fall * left.c) / (rise - fall)
    return meet, at_left + fall * (meet - left.c)


def _false_position(at_low: float, at_high: float) -> float:
    """Where between both ends to look next: near the line through both heights, kept off the ends."""
    if not (math.isfinite(at_low) and math.isfinite(at_high) and at_high > at_low):
        return 0.5
    return min(max(at_low / (at_low - at_high), 0.2), 0.8)
