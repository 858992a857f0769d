"""Rough sizes of a ledger's loss, to choose a lattice by; nothing that is reported rests on them."""

import math

import numpy as np

from tacit.accountants.pld.contour.saddle import Direction
from tacit.accountants.pld.events import Steps
from tacit.accountants.pld.loss import loss_at
from tacit.types import Floats

_POINTS = 240
_SLOPES = np.geomspace(1e-3, 1e4, 64)


class Sketch:
    """Quantiles of the sum of losses by Chernoff, from a few points of each step's noise."""

    def __init__(self, steps: Steps, direction: Direction) -> None:
        q, m = steps.probabilities[:, None], steps.noise_multipliers[:, None]
        x = np.linspace(-8 * m[:, 0], 1 + 8 * m[:, 0], _POINTS, axis=1)
        loss = loss_at(x, q, m).value
        weights = np.exp(-(x**2) / (2 * m**2) + (loss if direction == "remove" else 0.0))
        weights /= weights.sum(axis=1, keepdims=True)
        losses = loss if direction == "remove" else -loss
        spread = weights * (losses - (weights * losses).sum(axis=1, keepdims=True)) ** 2
        self.slopes: Floats = _SLOPES / max(math.sqrt(float(steps.counts @ spread.sum(axis=1))), 1e-12)
        self.rise = self._moments(steps.counts, weights, losses, self.slopes)
        self.fall = self._moments(steps.counts, weights, losses, -self.slopes)

    @staticmethod
    def _moments(counts: Floats, weights: Floats, losses: Floats, slopes: Floats) -> Floats:
        total = np.zeros(len(slopes))
        for count, weight, loss in zip(counts, weights, losses, strict=True):
            exponents = np.outer(slopes, loss)
            peak = exponents.max(axis=1)
            total += count * (peak + np.log(np.exp(exponents - peak[:, None]) @ weight))
        return total

    def epsilon(self, log_delta: float) -> tuple[float, float]:
        """About the Chernoff bound of epsilon, and the slope -d log(delta)/d epsilon there."""
        s = self.slopes
        bounds = (self.rise - s * np.log1p(1 / s) - np.log1p(s) - log_delta) / s
        return max(0.0, float(bounds.min())), float(s[int(np.argmin(bounds))])

    def high(self, log_share: float) -> float:
        """The sum exceeds this with a probability of about exp(log_share) or less."""
        return float(((self.rise - log_share) / self.slopes).min())

    def low(self, log_share: float) -> float:
        """The sum falls below minus this with a probability of about exp(log_share) or less."""
        return float(((self.fall - log_share) / self.slopes).min())
