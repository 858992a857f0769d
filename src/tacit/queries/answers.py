"""Answers, and the intervals that follow from the noise alone.

An interval says where the number lies that would have been released without noise, about these very records (clamped,
and with what is missing left out); it says nothing about the population that they came from. Sums and counts have
normal noise, hence exact intervals. Means, variances and correlations are ratios A / B of noisy numbers; theirs is
Fieller's: all t for which A - t B is not too far from 0,

    (A - t B)^2 <= c^2 (V_A - 2 t V_AB + t^2 V_B),

exact for a mean, whose A and B are normal, and to first order in the noise for the others. Where B may be 0 every t is
possible, and the interval is all that the declared bounds allow.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from tacit.types import Floats


@dataclass(frozen=True, slots=True)
class Answer:
    """One released number. Public.

    Args:
        query: as it was asked.
        cell: which level, bin or probability it is about, where the query has several answers.
        low, high: hold the number without noise with probability ``level``.
        stddev: of the noise, where it is normal.
    """

    query: str
    value: float
    low: float
    high: float
    level: float
    cell: str | None = None
    stddev: float | None = None

    def to_json(self) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in found.items() if value is not None}


def critical(level: float) -> float:
    """How many standard deviations hold ``level`` of a normal distribution.

    Example:
        >>> round(critical(0.95), 3)
        1.96
    """
    return float(ndtri((1 + level) / 2))


@dataclass(frozen=True, slots=True)
class Ratio:
    """A / B of two functions of independent noisy numbers, with their gradients in these numbers.

    Args:
        gradient_a, gradient_b: of A and B.
        variances: of the noisy numbers.
        low, high: what the ratio can be at all.
    """

    a: float
    b: float
    gradient_a: Floats
    gradient_b: Floats
    variances: Floats
    low: float
    high: float

    def value(self) -> float:
        return float(min(max(self.a / self.b, self.low), self.high)) if self.b > 0 else (self.low + self.high) / 2

    def interval(self, level: float) -> tuple[float, float]:
        """Fieller's, cut to what is possible.

        Example:
            >>> noise = np.array([1.0, 1.0])
            >>> ratio = Ratio(50.0, 100.0, np.array([1.0, 0.0]), np.array([0.0, 1.0]), noise, -1.0, 1.0)
            >>> low, high = ratio.interval(0.95)
            >>> round(low, 3), round(high, 3)
            (0.478, 0.522)
        """
        square = critical(level) ** 2
        var_a = float(self.gradient_a**2 @ self.variances)
        var_b = float(self.gradient_b**2 @ self.variances)
        both = float(self.gradient_a * self.gradient_b @ self.variances)
        two, one, none = self.b**2 - square * var_b, self.a * self.b - square * both, self.a**2 - square * var_a
        inside = one**2 - two * none
        if self.b <= 0 or two <= 0 or inside < 0:
            return self.low, self.high
        root = math.sqrt(inside)
        low, high = np.clip([(one - root) / two, (one + root) / two], self.low, self.high).tolist()
        return low, high
