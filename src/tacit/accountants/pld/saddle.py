"""The log moment generating function of a ledger on the real axis, and the best real part for the contour."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tacit.accountants.pld.events import Steps
from tacit.accountants.pld.moments import real_moments
from tacit.errors import RefusedError

Direction = Literal["remove", "add"]

_LEAST, _MOST = 1e-7, 1e8
_AT_CAP = 1e-14  # with more mass at a cap the trapezoid rule is not exact enough for a line


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


def cumulants(steps: Steps, direction: Direction, c: float) -> Cumulants:
    """K(c) = sum of count * F(a) + mu^2 c (c+1)/2, and its derivatives."""
    square = steps.gaussian_square
    value, first, second, error, end = square * c * (c + 1) / 2, square * (c + 0.5), square, 0.0, 0.0
    if steps.size:
        sign = 1.0 if direction == "remove" else -1.0
        rows = real_moments(steps.probabilities, steps.noise_multipliers, steps.caps, tilt_of(direction, c))
        sums = [float(steps.counts @ row) for row in rows[:4]]
        value, first, second, error = value + sums[0], first + sign * sums[1], second + sums[2], sums[3]
        error += 1e-15 * float(steps.counts @ np.abs(rows[0]))
        end = float(rows[4].max())
    return Cumulants(c, value, first, second, error + 1e-15 * abs(value), end)


class RealAxis:
    """K on the real axis for one direction of one ledger, each point evaluated once."""

    def __init__(self, steps: Steps, direction: Direction) -> None:
        self.steps, self.direction = steps, direction
        self._seen: dict[float, Cumulants] = {}

    def at(self, c: float) -> Cumulants:
        if c not in self._seen:
            self._seen[c] = self._evaluate(c)
        return self._seen[c]

    def _evaluate(self, c: float) -> Cumulants:
        """Out of reach K is infinite: that says nothing, and says it safely."""
        try:
            return cumulants(self.steps, self.direction, c)
        except RefusedError:
            return Cumulants(c, math.inf, math.inf, math.inf, 0.0, math.inf)

    def seen(self) -> list[Cumulants]:
        return list(self._seen.values())

    def for_epsilon(self, epsilon: float) -> Cumulants:
        """Just below the c of the smallest Chernoff bound of delta."""
        return self._search(lambda point: point.best_epsilon - epsilon)

    def for_delta(self, log_delta: float) -> Cumulants:
        """Just below the c of the smallest Chernoff epsilon."""
        return self._search(lambda point: log_delta - point.log_chernoff(point.best_epsilon))

    def reaches(self, epsilon: float, log_delta: float) -> bool:
        """Whether a Chernoff bound of delta(epsilon) is as low as asked, at points that double while they gain."""
        c, last = self._guess() / 4, math.inf
        while c < _MOST:
            bound = self.at(c).log_chernoff(epsilon)
            if bound <= log_delta:
                return True
            if bound > last:
                return False
            c, last = 1.7 * c, bound
        return False

    def _search(self, rising: Callable[[Cumulants], float]) -> Cumulants:
        """Bisect on log c for the zero of a function that rises with c; the end of the range if there is none.

        The lower end is returned: a little too low costs a few nodes, but above the zero K can grow at once, where the
        record's own Gaussian takes over the moments.
        """

        def too_high(c: float) -> bool:
            point = self.at(c)
            return point.end > _AT_CAP or rising(point) > 0

        low = high = self._guess()
        while not too_high(high) and high < _MOST:
            low, high = high, high * 2
        while too_high(low) and low > _LEAST:
            low, high = low / 2, low
        while high / low > 1.03:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if too_high(middle) else (middle, high)
        return self.at(low)

    def _guess(self) -> float:
        """c is a few standard deviations of the loss, in units of one over it; the central limit gives its size."""
        exponent = np.minimum(self.steps.noise_multipliers**-2.0, 10.0)
        square = self.steps.gaussian_square + self.steps.counts @ (self.steps.probabilities**2 * np.expm1(exponent))
        return float(np.clip(4 / math.sqrt(square), 1e-4, 1e6))
