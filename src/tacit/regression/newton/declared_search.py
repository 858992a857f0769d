"""The search where it is declared that no sum of columns hardly varies: for tables whose noise is larger than effects.

Steps are then those of a posterior mean, with effects of the size that scores show beyond their noise (empirical
Bayes): an estimate that is mostly noise makes residuals long, and the noise of what follows with them. Only where the
search goes depends on it; intervals rest on the scores themselves.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from tacit.regression.families import Clipped
from tacit.regression.newton.curvature import KnownCurvature, positive, posterior_of
from tacit.regression.newton.declared import ENOUGH, DeclaredCurvature, is_contradicted, posterior_under
from tacit.regression.newton.flat import flat_in
from tacit.regression.newton.search import FARTHEST, Search
from tacit.regression.newton.sums import NoisyMatrix
from tacit.regression.newton.synthetic import SyntheticTable
from tacit.types import Floats

Dropped = Literal["", "spread", "scores"]
_MOST_MISFIT = 5.0  # standard deviations
_SEEN = 3.0  # times its noise, that the number of records is before anything can be contradicted
_LEAST = 0.05  # times the noise's variance, that effects are taken to have
_FLOOR = 1e-3  # of the median curvature, for directions in which the synthetic table has hardly any
_FLAT = 1e3  # times the largest curvature: a ridge under which slopes are 0


@dataclass(slots=True)
class DeclaredSearch(Search):
    """The state of such a search: public numbers.

    Args:
        least: rho, declared.
        known: what each released matrix says, the moments first.
        shape: A with A S A' for the curvature S of the synthetic table.
        error: the covariance of the first estimate's error.
        dropped: why the declaration was not used in the end, if it was not.
    """

    least: float = 1.0
    known: list[DeclaredCurvature] = field(default_factory=list)
    shape: Floats | None = None
    error: Floats | None = None
    dropped: Dropped = ""

    def first_estimate(self, table: SyntheticTable) -> Floats:
        """The model's equations on the synthetic table, with slopes shrunk by what the offset's noise says."""
        goal, ridge = table.offset() - self.offset.value, np.full(len(self.offset.value), self.ridge)
        ridge[1:] += _FLAT * float(np.abs(np.diag(self.matrices[0].value)).max())
        flat = table.solve(goal, ridge)
        slope = positive(table.curvature(flat), _FLOOR)
        _, self.error, size = shrunk_step(flat, slope, table.means(flat) - goal, self.offset.stddev)
        ridge[1:] = self.ridge + self.offset.stddev**2 / size / np.diag(slope)[1:]
        return table.solve(goal, ridge)

    def curvature(self, theta: Floats) -> Floats:
        found = positive(self.table.curvature(theta), _FLOOR)
        return found if self.shape is None else np.asarray(self.shape @ found @ self.shape.T)

    def correct(self, theta: Floats) -> None:
        self.matrices.append(self.sums.curvature("curvature 1", self.family, theta))
        expected = self.curvature(theta)
        self.known.append(posterior_under(self.matrices[-1], expected, self.least, self.known[0]))
        root = np.linalg.cholesky(self.known[-1].mean)
        self.shape = np.asarray(root @ np.linalg.inv(np.linalg.cholesky(expected)))

    def moved(self, step: str, theta: Floats) -> Floats:
        self.take_score(step, theta)
        if step == "1":
            self.correct(theta)
        return shrunk_step(theta, self.curvature(theta), *self.joined(theta))[0]

    def joined(self, theta: Floats) -> tuple[Floats, float]:
        joined, left = Search.joined(self, theta)  # slots leave super() without its class
        return joined, left if isinstance(self.family, Clipped) else float(np.hypot(left, self.offset.stddev))

    def predictor_noise(self, theta: Floats) -> float:
        error = self.error
        if self.past or error is None:
            error = shrunk_step(theta, self.curvature(theta), *self.joined(theta))[1]
        return float(np.sqrt(np.einsum("ij,jk,ik->i", self.table.x, error, self.table.x).mean()))

    def last_curvature(self, released: NoisyMatrix, theta: Floats) -> KnownCurvature:
        """Under the declaration, or without it where all matrices together contradict it, or the scores the curvature.

        Noise can hide that columns have much in common too, which no declaration speaks of; steps then go too far.
        """
        expected = self.curvature(theta)
        found = posterior_under(released, expected, self.least, self.known[0])
        gram = self.matrices[0]
        if gram.value[0, 0] > _SEEN * gram.on and is_contradicted([*self.known, found], self.least):
            self.dropped = "spread"
        elif self.misfit(theta) > _MOST_MISFIT:
            self.dropped = "scores"
        if self.dropped:
            return posterior_of(released, expected).flattened([*self.matrices, released])
        return found if self.least >= ENOUGH else found.with_flat(flat_in([*self.matrices, released]))

    def misfit(self, theta: Floats) -> float:
        """How far the scores are from one another once carried to theta, in standard deviations of that.

        With the right curvature sum_k |s_k - mean|^2 / noise_k^2 is chi-square of (k - 1) d degrees of freedom.
        """
        alike = [number for number, (*_, family) in enumerate(self.past) if family == self.family]
        carried = np.array([self.past[number][1] + self.carried(theta, self.past[number][0]) for number in alike])
        weights, freedom = self.weights(theta)[alike], (len(alike) - 1) * len(theta)
        away = float(weights @ ((carried - weights @ carried / weights.sum()) ** 2).sum(1))
        return (away - freedom) / math.sqrt(2 * freedom) if freedom else 0.0


def shrunk_step(theta: Floats, slope: Floats, score: Floats, noise: float) -> tuple[Floats, Floats, float]:
    """From theta to the mean of a posterior with effects N(0, size), its covariance, and that size.

    The score is H (theta - truth) + noise, so that theta - H^-1 score has the covariance noise^2 H^-2. The intercept is
    not shrunk.
    """
    inverse = np.linalg.inv(slope)
    free, errors = theta - inverse @ score, noise**2 * np.diag(inverse @ inverse)[1:]
    size = float(max(np.mean(free[1:] ** 2 - errors), _LEAST * np.mean(errors)))
    precision = slope @ slope / noise**2
    weak = np.diag([0.0, *np.full(len(theta) - 1, 1 / size)])
    covariance: Floats = np.asarray(np.linalg.inv(precision + weak))
    change = covariance @ precision @ free - theta
    return theta + change * min(1.0, FARTHEST / max(float(np.linalg.norm(change)), 1e-300)), covariance, size
