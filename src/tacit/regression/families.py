"""What an outcome is like, for a regression: its mean, its score and how large one record's part of them can be.

A family has q predictors eta = x'Theta, one score r(eta, y) for each, and a matrix of slopes M = d r / d eta. A
record's part of the weighted score is w x r', of its curvature w M (x) x x'. The bounds hold for every outcome and
every eta, so that the sensitivity follows from them and |w x| alone (:mod:`tacit.regression.newton.sums`).
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from scipy.special import expit, gammaln

from tacit.types import Floats

FamilyName = Literal["linear", "logistic", "poisson", "multinomial", "ordered"]
_POINTS = 2001


@dataclass(frozen=True, slots=True)
class Linear:
    """y = eta + error, y on [-1, 1] by its declared bounds; score clip(eta - y, -c, c), unbiased for even errors.

    ``most`` is below 1 in the first estimate alone: outcomes further from the middle count as that.
    """

    clip: float = 2.0
    most: float = 1.0
    name: ClassVar[FamilyName] = "linear"
    outputs: ClassVar[int] = 1
    offset: ClassVar[float] = 0.0
    slope_bound: ClassVar[float] = 1.0
    range: ClassVar[float] = 2.0

    @property
    def offset_bound(self) -> float:
        return self.most

    @property
    def score_bound(self) -> float:
        return self.clip

    def start(self) -> float:
        return 0.0

    def with_clip(self, clip: float) -> "Linear":
        return replace(self, clip=clip)

    def targets(self, y: Floats) -> Floats:
        return np.clip(y, -self.most, self.most)[:, None]

    def mean(self, eta: Floats, exposure: Floats) -> Floats:
        return eta

    def scores(self, eta: Floats, y: Floats, exposure: Floats) -> Floats:
        return np.clip(eta - y, -self.clip, self.clip)

    def slopes(self, eta: Floats, exposure: Floats, y: Floats | None = None) -> Floats:
        inside = np.ones_like(eta) if y is None else (np.abs(eta - y) < self.clip).astype(np.float64)
        return inside[:, :, None]


@dataclass(frozen=True, slots=True)
class Poisson:
    """Counts of mean mu = exposure exp(eta), declared to be at most ``most``.

    The score is -u psi with psi(y) = clip(min(y, most) - mu, -c, c) - E(the same under the model), so that clipping
    leaves no bias (Cantoni and Ronchetti 2001), and u = min(1, typical / mu), which keeps rare large means
    from deciding on the noise. Its expected slope is u Cov(psi(Y), Y). Both are read off a table over mu.

    Args:
        most: the largest count, declared; larger ones count as it.
        clip: c, from released residuals.
        typical: a mean that few records exceed, from released moments.
        exposure: about their mean, for the synthetic table: that of the declared bounds until it is released.
        longest: the largest exposure, declared; 0 where all are 1.
    """

    most: float
    clip: float = math.inf
    typical: float = math.inf
    exposure: float = 1.0
    longest: float = 0.0
    name: ClassVar[FamilyName] = "poisson"
    outputs: ClassVar[int] = 1

    @property
    def offset(self) -> float:
        return self.most / 2

    @property
    def offset_bound(self) -> float:
        return self.most / 2

    @property
    def range(self) -> float:
        return self.most

    @property
    def score_bound(self) -> float:
        grid, centre, _ = _clipped_poisson(self.most, self._clip)
        return float((self._share(grid) * (self._clip + np.abs(centre))).max())

    @property
    def slope_bound(self) -> float:
        grid, _, slope = _clipped_poisson(self.most, self._clip)
        return float((self._share(grid) * slope).max())

    @property
    def _clip(self) -> float:
        return min(self.clip, self.most)

    def start(self) -> float:
        return math.log(self.most / 4 / self.exposure)

    def with_clip(self, clip: float) -> "Poisson":
        return replace(self, clip=clip)

    def _share(self, mu: Floats) -> Floats:
        return np.minimum(1.0, self.typical / mu)

    def targets(self, y: Floats) -> Floats:
        return np.clip(y, 0, self.most)[:, None]

    def _mu(self, eta: Floats, exposure: Floats) -> Floats:
        return np.minimum(exposure[:, None] * np.exp(np.minimum(eta, 50.0)), self.most)

    def mean(self, eta: Floats, exposure: Floats) -> Floats:
        """Of min(Y, most)."""
        mu, (grid, centre, _) = self._mu(eta, exposure), _clipped_poisson(self.most, self.most)
        return np.maximum(mu + np.interp(mu, grid, centre), 0.0)

    def scores(self, eta: Floats, y: Floats, exposure: Floats) -> Floats:
        mu, (grid, centre, _) = self._mu(eta, exposure), _clipped_poisson(self.most, self._clip)
        share = np.interp(mu, grid, self._share(grid))
        psi = np.clip(y - mu, -self._clip, self._clip) - np.interp(mu, grid, centre)
        return np.clip(-share * psi, -self.score_bound, self.score_bound)  # between two points of the table

    def slopes(self, eta: Floats, exposure: Floats, y: Floats | None = None) -> Floats:
        grid, _, slope = _clipped_poisson(self.most, self._clip)
        return np.asarray(np.interp(self._mu(eta, exposure), grid, self._share(grid) * slope))[:, :, None]


@lru_cache(maxsize=64)
def _clipped_poisson(most: float, clip: float) -> tuple[Floats, Floats, Floats]:
    """(mu, E psi0, Cov(psi0, Y)) with psi0 = clip(min(Y, most) - mu, -clip, clip), for mu from 0 to most."""
    grid = most * np.linspace(1e-4, 1, _POINTS) ** 2
    counts = np.arange(math.ceil(most + 12 * math.sqrt(most) + 20))
    centre, slope = np.empty(_POINTS), np.empty(_POINTS)
    for part in np.array_split(np.arange(_POINTS), 1 + _POINTS * len(counts) // 2_000_000):
        mu = grid[part, None]
        chance = np.exp(counts * np.log(mu) - mu - gammaln(counts + 1))
        psi = np.clip(np.minimum(counts, most) - mu, -clip, clip)
        centre[part], slope[part] = (chance * psi).sum(1), (chance * psi * (counts - mu)).sum(1)
    return grid, centre, np.maximum(slope, 0.0)


@dataclass(frozen=True, slots=True)
class Logistic:
    """Yes or no: mean p = 1 / (1 + exp(-eta)), score p - y in [-1, 1], slope p (1 - p) of at most a quarter."""

    name: ClassVar[FamilyName] = "logistic"
    outputs: ClassVar[int] = 1
    offset: ClassVar[float] = 0.5
    offset_bound: ClassVar[float] = 0.5
    mean_bound: ClassVar[float] = 0.5
    score_bound: ClassVar[float] = 1.0
    slope_bound: ClassVar[float] = 0.25

    def start(self) -> float:
        return 0.0

    def targets(self, y: Floats) -> Floats:
        return y[:, None]

    def mean(self, eta: Floats, exposure: Floats) -> Floats:
        return np.asarray(expit(eta))

    def scores(self, eta: Floats, y: Floats, exposure: Floats) -> Floats:
        return self.mean(eta, exposure) - y

    def slopes(self, eta: Floats, exposure: Floats, y: Floats | None = None) -> Floats:
        p = self.mean(eta, exposure)
        return (p * (1 - p))[:, :, None]


@dataclass(frozen=True, slots=True)
class Multinomial:
    """One of K classes, the first is the reference: p_k proportional to exp(eta_k).

    |y - 1/K|^2 and |p - 1/K|^2 are at most 1 - 1/K, |p - y| at most sqrt 2, and with s_j = sum p^j the squared
    Frobenius norm of diag(p) - p p' is s2 - 2 s3 + s2^2 <= s2 - s2^2 <= 1/4, because s2^2 <= s3.
    """

    classes: int
    name: ClassVar[FamilyName] = "multinomial"
    score_bound: ClassVar[float] = math.sqrt(2.0)
    slope_bound: ClassVar[float] = 0.5

    @property
    def outputs(self) -> int:
        return self.classes - 1

    @property
    def offset(self) -> float:
        return 1 / self.classes

    @property
    def offset_bound(self) -> float:
        return math.sqrt(1 - 1 / self.classes)

    mean_bound = offset_bound

    def start(self) -> float:
        return 0.0

    def targets(self, y: Floats) -> Floats:
        return np.asarray(y[:, None] == np.arange(1, self.classes), dtype=np.float64)

    def mean(self, eta: Floats, exposure: Floats) -> Floats:
        top = np.maximum(eta.max(1, keepdims=True), 0.0)
        e = np.exp(eta - top)
        return np.asarray(e / (np.exp(-top) + e.sum(1, keepdims=True)))

    def scores(self, eta: Floats, y: Floats, exposure: Floats) -> Floats:
        return self.mean(eta, exposure) - y

    def slopes(self, eta: Floats, exposure: Floats, y: Floats | None = None) -> Floats:
        p = self.mean(eta, exposure)
        return np.asarray(p[:, :, None] * np.eye(self.outputs) - p[:, :, None] * p[:, None, :])


@dataclass(frozen=True, slots=True)
class Ordered:
    """One of K ordered levels: logit P(y > k) = a_k + x'b, each k by its own logistic score and all with one b.

    These scores have mean zero under proportional odds, whatever ties them together; how they vary is released.
    Their sum over k is at most K - 1 times that of one.
    """

    classes: int
    name: ClassVar[FamilyName] = "ordered"
    offset: ClassVar[float] = 0.5

    @property
    def outputs(self) -> int:
        return self.classes - 1

    @property
    def offset_bound(self) -> float:
        return self.outputs / 2

    mean_bound = offset_bound

    @property
    def score_bound(self) -> float:
        return float(self.outputs)

    @property
    def slope_bound(self) -> float:
        return self.outputs / 4

    def start(self) -> float:
        return 0.0

    def targets(self, y: Floats) -> Floats:
        return (y[:, None] > np.arange(self.outputs)).astype(np.float64)

    def mean(self, eta: Floats, exposure: Floats) -> Floats:
        return np.asarray(expit(eta))

    def scores(self, eta: Floats, y: Floats, exposure: Floats) -> Floats:
        return self.mean(eta, exposure) - y

    def slopes(self, eta: Floats, exposure: Floats, y: Floats | None = None) -> Floats:
        p = self.mean(eta, exposure)
        return np.asarray((p * (1 - p))[:, :, None] * np.eye(self.outputs))


Clipped = Linear | Poisson
Bounded = Logistic | Multinomial | Ordered
Family = Clipped | Bounded


def fold(family: Family, features: int) -> Floats:
    """The matrix L with Theta = L theta: all predictors of a record, [outputs * features, parameters].

    Example:
        >>> fold(Ordered(3), 2).astype(int).tolist()  # a_1, a_2, b
        [[1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 0, 1]]
    """
    q = family.outputs
    if not isinstance(family, Ordered):
        return np.eye(q * features)
    found = np.zeros((q, features, q + features - 1))
    found[np.arange(q), 0, np.arange(q)] = 1
    found[:, np.arange(1, features), q + np.arange(features - 1)] = 1
    return found.reshape(q * features, -1)
