"""A synthetic table with the released first and second moments: what the model would do on it costs no privacy.

Covariates are drawn from a normal distribution, by a fixed seed, and made to have exactly the released moments. Solving
the model's equations on it gives a first estimate and, at any coefficients, a curvature to expect; the releases that
follow correct both.
"""

from dataclasses import dataclass

import numpy as np

from tacit.regression.families import Family, Poisson, fold
from tacit.regression.newton.curvature import positive
from tacit.regression.newton.sums import curvature_of, parameters_of, predictors
from tacit.types import Floats

_LEAST = 2000
_PER_FEATURE = 40
_FLOOR = 1e-3  # of the median variance, for directions that the noise hides
_FARTHEST = 2.0  # a step of Newton's method
_ROUNDS = 60


@dataclass(frozen=True, slots=True)
class SyntheticTable:
    """Public rows, and how much weight of private rows each stands for."""

    x: Floats
    weight: float
    family: Family

    @property
    def exposure(self) -> Floats:
        return np.full(len(self.x), self.family.exposure if isinstance(self.family, Poisson) else 1.0)

    def means(self, theta: Floats) -> Floats:
        """Sum of x mean' at theta, as parameters."""
        eta = predictors(self.family, self.x, theta)
        return self.weight * parameters_of(self.family, self.x, self.family.mean(eta, self.exposure))

    def offset(self) -> Floats:
        """Sum of x c'."""
        constant = np.full((len(self.x), self.family.outputs), self.family.offset)
        return self.weight * parameters_of(self.family, self.x, constant)

    def curvature(self, theta: Floats) -> Floats:
        slopes = self.family.slopes(predictors(self.family, self.x, theta), self.exposure)
        folded = fold(self.family, self.x.shape[1])
        return self.weight * curvature_of(self.x, np.ones(len(self.x)), slopes, folded)

    def solve(self, goal: Floats, ridge: float | Floats) -> Floats:
        """theta at which the means add up to ``goal``, with a little ridge where noise put it out of reach."""
        theta = np.zeros(len(goal))
        theta[: self.family.outputs if self.family.name == "ordered" else 1] = self.family.start()
        for _ in range(_ROUNDS):
            slope = self.curvature(theta) + ridge * np.eye(len(theta))
            step = np.linalg.solve(slope, self.means(theta) - goal + ridge * theta)
            length = float(np.linalg.norm(step))
            theta = theta - step * min(1.0, _FARTHEST / max(length, 1e-300))
            if length < 1e-8:
                break
        return theta


def synthetic_table(known: Floats, family: Family) -> SyntheticTable:
    """Rows whose weighted moments are ``known``, what a released sum of w x x' says about the exact one."""
    total = max(float(known[0, 0]), 10.0)
    mean = known[0, 1:] / total
    spread = positive(known[1:, 1:] / total - np.outer(mean, mean), _FLOOR) if len(known) > 1 else np.zeros((0, 0))
    count, features = max(_LEAST, _PER_FEATURE * len(known)), len(mean)
    draws = np.random.default_rng(0).standard_normal((count, features))
    draws -= draws.mean(0)
    whitened = draws @ _power(draws.T @ draws / count, -0.5)
    x = np.concatenate([np.ones((count, 1)), mean + whitened @ _power(spread, 0.5)], axis=1)
    return SyntheticTable(x, total / count, family)


def _power(matrix: Floats, exponent: float) -> Floats:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * values**exponent) @ vectors.T)
