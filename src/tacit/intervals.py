"""Intervals of numbers with known noise: normal ones, and Fieller's for ratios.

Sums and counts have normal noise, hence exact intervals. Means, variances, correlations and shares are ratios A / B of
noisy numbers; their interval holds all t for which A - t B is not too far from 0,

    (A - t B)^2 <= c^2 (V_A - 2 t V_AB + t^2 V_B),

exact where A and B are normal (a mean), and to first order in the noise for others. Where B may be 0 every t is
possible, and the interval is all that the declared bounds allow.

Where A counts successes among B units that were drawn by chance, B t (1 - t) comes on top: the chance that there would
be if t were the truth. At the share that was found it would be too small near 0 and 1 (Wilson 1927, without noise).
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from tacit.types import Floats


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
        drawn: A counts successes among B units that were drawn by chance.
    """

    a: float
    b: float
    gradient_a: Floats
    gradient_b: Floats
    variances: Floats
    low: float
    high: float
    drawn: bool = False

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
        units = max(self.b, 0.0) if self.drawn else 0.0
        two = self.b**2 - square * (var_b - units)
        one, none = self.a * self.b - square * (both - units / 2), self.a**2 - square * var_a
        inside = one**2 - two * none
        if self.b <= 0 or two <= 0 or inside < 0:
            return self.low, self.high
        root = math.sqrt(inside)
        low, high = np.clip([(one - root) / two, (one + root) / two], self.low, self.high).tolist()
        return low, high
