"""The search for the optimum: a first estimate from a synthetic table, then Newton steps on what in scores is no noise.

Whatever it keeps is public. What it asks of the records goes through :class:`tacit.regression.newton.sums.PrivateSums`.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from tacit.regression.families import Clipped, Family, Poisson
from tacit.regression.newton.curvature import KnownCurvature, positive, posterior_of
from tacit.regression.newton.sums import EDGES, Noisy, NoisyMatrix, PrivateSums, predictors, residual_histogram
from tacit.regression.newton.synthetic import SyntheticTable
from tacit.types import Floats

_USUAL = 0.87  # the share of residuals that are not clipped
_WIDE = 4.0  # times the usual clip, 6 sigma, where noise hardly matters
_SPREAD = 1.01  # times the length of Poisson residuals from which counts are taken to vary more, and hardly clipped
_REPEATS = 5
_MOMENTS = 2.0  # times the noise of the offset in a first estimate, whose moments have noise too
_RARE = 0.85  # the share of expected counts below the typical one
FARTHEST = 2.0
_STEADY = 0.1  # no direction counts as flatter while steps are taken: too short a step does no harm


@dataclass(slots=True)
class Search:
    """The state of the search for the optimum: public numbers."""

    sums: PrivateSums
    table: SyntheticTable
    offset: Noisy
    family: Family
    correction: Floats
    past: list[tuple[Floats, Floats, float, Family]] = field(default_factory=list)
    matrices: list[NoisyMatrix] = field(default_factory=list)

    def first_estimate(self, table: SyntheticTable) -> Floats:
        """The model's equations on the synthetic table, whose family may count rare outcomes for less."""
        return table.solve(table.offset() - self.offset.value, self.first_ridge)

    def last_curvature(self, released: NoisyMatrix, theta: Floats) -> KnownCurvature:
        """What is known of the exact curvature where the search ended."""
        known = posterior_of(released, self.curvature(theta))
        if self.family.outputs == 1 and len(theta) > 2:  # else the matrices differ in kind, or have no sum of columns
            return known.flattened([*self.matrices, released])
        return known

    def curvature(self, theta: Floats) -> Floats:
        return self.table.curvature(theta) + self.correction

    def take_score(self, step: str, theta: Floats) -> None:
        """Keep the score at theta, and the noise that is new in it."""
        if isinstance(self.family, Clipped):
            found = self.sums.score(f"score {step}", self.family, theta)
            self.past.append((theta, found.value, found.stddev, self.family))
        else:
            mean = self.sums.mean(f"mean {step}", self.family, theta)
            self.past.append((theta, self.offset.value + mean.value, mean.stddev, self.family))

    def correct(self, theta: Floats) -> None:
        """Learn how the exact curvature at theta differs from that of the synthetic table."""
        released = self.sums.curvature("curvature 1", self.family, theta)
        self.matrices.append(released)
        self.correction = posterior_of(released, self.curvature(theta)).mean - self.table.curvature(theta)

    def moved(self, step: str, theta: Floats) -> Floats:
        """One Newton step on what in the scores so far is not noise (James and Stein's factor)."""
        self.take_score(step, theta)
        if step == "1":
            self.correct(theta)
        joined, left = self.joined(theta)
        kept = max(0.0, 1 - len(theta) * left**2 / max(float(joined @ joined), 1e-300))
        slope = positive(self.curvature(theta), _STEADY) + self.ridge * np.eye(len(theta))
        change = kept * np.linalg.solve(slope, joined)
        return np.asarray(theta - change * min(1.0, FARTHEST / max(float(np.linalg.norm(change)), 1e-300)))

    def joined(self, theta: Floats) -> tuple[Floats, float]:
        """All scores as if taken at theta, weighted by their precision, and the noise that is left."""
        weights = self.weights(theta)
        scores = [score + self.carried(theta, where) for where, score, *_ in self.past]
        return np.asarray(weights @ np.array(scores) / weights.sum()), float(weights.sum() ** -0.5)

    def carried(self, theta: Floats, where: Floats) -> Floats:
        """How the score changes from one point to another, by the curvature between them."""
        return np.asarray(self.curvature((theta + where) / 2) @ (theta - where))

    def weights(self, theta: Floats) -> Floats:
        """The precision of each score at theta: carrying it there is wrong by about a tenth of what it changes."""
        far = [float(np.mean(self.carried(theta, where) ** 2)) for where, *_ in self.past]
        return np.array([1 / (noise**2 + 0.01 * away) for (_, _, noise, _), away in zip(self.past, far, strict=True)])

    def average(self, theta: Floats) -> tuple[Floats, Noisy]:
        """The average of the scores, at the average of their points; of those that clip alike."""
        weights = self.weights(theta) * np.array([family == self.family for *_, family in self.past])
        weights /= weights.sum()
        where, score = (weights @ np.array([one[part] for one in self.past]) for part in (0, 1))
        new = float(np.sqrt(np.sum(weights**2 * np.array([noise**2 for _, _, noise, _ in self.past]))))
        shared = 0.0 if isinstance(self.family, Clipped) else self.offset.stddev
        return where, Noisy(score, float(np.hypot(new, shared)))

    def clip_residuals(self, step: str, theta: Floats) -> None:
        assert isinstance(self.family, Clipped)
        counts = self.sums.residual_counts(f"residuals {step}", self.family, theta)
        ample, usual = self.sums.plan.is_ample, clip_from(counts)
        wide = ample or (isinstance(self.family, Poisson) and usual > self.poisson_clip(self.family, theta, counts))
        self.family = self.family.with_clip((_WIDE if wide else 1.0) * usual * self.family.range)
        if isinstance(self.family, Poisson) and not ample:
            means = self.family.mean(predictors(self.family, self.table.x, theta), self.table.exposure)
            self.family = replace(self.family, typical=float(np.quantile(means, _RARE)))
        self.table = replace(self.table, family=self.family)

    def poisson_clip(self, family: Poisson, theta: Floats, counts: Noisy) -> float:
        """The longest clip that residuals of Poisson counts would ask for, but for noise: beyond it they vary more.

        The noise of a cumulated count is that of some eight bins, and a quantile moves 2.6 times as much. The noise of
        theta makes residuals longer too: counts are drawn around means that it has moved.
        """
        mu = np.tile(family.mean(predictors(family, self.table.x, theta), self.table.exposure)[:, 0], _REPEATS)
        chance, error = np.random.default_rng(0), self.predictor_noise(theta)
        drawn = chance.poisson(mu * np.exp(error * chance.standard_normal(len(mu)) - error**2 / 2))
        noise = 2.6 * 8**0.5 * counts.stddev / max(float(counts.value.sum()), 1.0)
        return clip_from(Noisy(residual_histogram(mu - drawn, family.range), 0.0)) * (_SPREAD + 2 * noise)

    def predictor_noise(self, theta: Floats) -> float:
        """The standard deviation that privacy noise in theta gives to the predictors of a typical row."""
        first = _MOMENTS * self.offset.stddev
        noise = (first**-2 + (self.joined(theta)[1] ** -2 if self.past else 0.0)) ** -0.5
        slope = positive(self.curvature(theta), _STEADY) + self.ridge * np.eye(len(theta))
        return float(noise * np.sqrt(np.mean(np.linalg.solve(slope, self.table.x.T) ** 2) * len(theta)))

    @property
    def first_ridge(self) -> float:
        """Counts whose logarithm varies by much more than 1 are not taken from moments that may be noise."""
        if not isinstance(self.family, Poisson):
            return self.ridge
        flat = np.zeros(len(self.offset.value))
        flat[0] = self.family.start()
        slope = float(np.median(np.diag(self.table.curvature(flat))))
        return max(self.ridge, (self.offset.stddev * self.sums.reach) ** 2 / slope)

    @property
    def ridge(self) -> float:
        """Of the size of the first noise, so that directions without data stay where they are."""
        return 0.3 * self.offset.stddev / max(1.0, self.family.offset_bound)


def clip_from(counts: Noisy) -> float:
    """The length that about seven of eight residuals do not reach, in shares of the range: 1.5 sigma for normal ones.

    Huber's choice: it costs 3 % of the precision, and a smaller clip means less noise.

    Example:
        >>> shares = np.diff([0.0, *(1 - np.exp(-EDGES[1:-1] / 0.05)), 1.0])
        >>> round(clip_from(Noisy(1000 * shares, 5.0)), 2)
        0.11
    """
    below = np.concatenate([[0.0], np.maximum.accumulate(np.cumsum(counts.value))])
    goal = _USUAL * max(float(below[-1]), 1.0)
    return float(np.clip(np.interp(goal, below, np.minimum(EDGES, 1.0)), EDGES[1], 1.0))
