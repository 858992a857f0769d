"""The only code of a regression that sees records: weighted sums of bounded parts, each released once with noise.

Weights on the loss, never on the record (Mallows): w(x) = min(1, R^2 / |x|^2) follows from the covariates alone, so the
weighted score still has mean zero at the true coefficients. With it, for every record,

    |w x| <= R        |w x x'|_F = w |x|^2 <= R^2        |diag(w x x')| <= w |x| <= R    as no entry exceeds 1,

and with a family's bounds B on scores and S on slopes, the parts of one record are at most

    score B R         curvature off its diagonal S R^2 / sqrt 2 in the entries above it, on it S R.

Each sum is divided by its bound, so that the ledger is charged for norm 1 before anything is known. Sums are formed in
float64 in parts of 1,024 rows and these added by :func:`math.fsum`; a part rounds by at most 1024^2 2^-53 of a record,
so that 10^7 records stay below SLACK, which is charged for.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from tacit.errors import InputError
from tacit.regression.families import Bounded, Clipped, Family, Ordered, fold
from tacit.regression.newton.kept import Releases
from tacit.regression.newton.plan import ReleasePlan
from tacit.types import Floats

PART = 1024
EDGES: Floats = np.concatenate([[0.0], 2.0 ** (-np.arange(14, -1, -1) / 2), [np.inf]])  # of the outcome's range


@dataclass(frozen=True, slots=True)
class Rows:
    """Private: covariates with 1 in front and no entry beyond 1, outcomes on the family's scale, exposures."""

    x: Floats
    y: Floats
    exposure: Floats


@dataclass(frozen=True, slots=True)
class Noisy:
    """A released vector and the standard deviation of its noise. Public."""

    value: Floats
    stddev: float


@dataclass(frozen=True, slots=True)
class NoisyMatrix:
    """A released symmetric matrix, and the noise of its entries off and on the diagonal. Public."""

    value: Floats
    off: float
    on: float


@dataclass(slots=True)
class PrivateSums:
    """What may be asked of the records, each question once. All that leaves has noise.

    Args:
        rows: private.
        reach: R, public.
        plan: the noise of each release by name; it has been charged.
        normals: where the noise comes from.
        kept: what was released, by an earlier process too.
    """

    rows: Rows
    reach: float
    plan: ReleasePlan
    normals: Callable[[int], Floats]
    asked: set[str] = field(default_factory=set)
    kept: Releases = field(default_factory=Releases)

    def gram(self, name: str) -> NoisyMatrix:
        """Sum of w x x'."""
        return self._matrix(name, 1.0, lambda x, y, e, w: (x * w[:, None]).T @ x)

    def offset(self, name: str, family: Family) -> Noisy:
        """Sum of w x (c - y)': the score at a public constant mean, whose residuals are half as long."""

        def of_part(x: Floats, y: Floats, e: Floats, w: Floats) -> Floats:
            return _weighted(family, x, w, family.offset - family.targets(y))

        return self._vector(name, family.offset_bound * self.reach, of_part)

    def mean(self, name: str, family: Bounded, theta: Floats) -> Noisy:
        """Sum of w x (mean - c)': with the offset, the score at theta."""

        def of_part(x: Floats, y: Floats, e: Floats, w: Floats) -> Floats:
            return _weighted(family, x, w, family.mean(predictors(family, x, theta), e) - family.offset)

        return self._vector(name, family.mean_bound * self.reach, of_part)

    def score(self, name: str, family: Family, theta: Floats) -> Noisy:
        """Sum of w x r', with clipped residuals."""

        def of_part(x: Floats, y: Floats, e: Floats, w: Floats) -> Floats:
            return _weighted(family, x, w, family.scores(predictors(family, x, theta), family.targets(y), e))

        return self._vector(name, family.score_bound * self.reach, of_part)

    def curvature(self, name: str, family: Family, theta: Floats) -> NoisyMatrix:
        """Sum of w M (x) x x' at theta."""
        folded = fold(family, self.rows.x.shape[1])

        def of_part(x: Floats, y: Floats, e: Floats, w: Floats) -> Floats:
            slopes = family.slopes(predictors(family, x, theta), e, family.targets(y))
            return curvature_of(x, w, slopes, folded)

        return self._matrix(name, family.slope_bound, of_part)

    def score_size(self, name: str, family: Family, theta: Floats) -> Noisy:
        """Sum of w^2 |r|^2 |x|^2: the trace of the scores' covariance."""

        def of_part(x: Floats, y: Floats, e: Floats, w: Floats) -> Floats:
            r = family.scores(predictors(family, x, theta), family.targets(y), e)
            return np.atleast_1d((w**2 * (r**2).sum(1) * (x**2).sum(1)).sum())

        return self._vector(name, (family.score_bound * self.reach) ** 2, of_part)

    def score_matrix(self, name: str, family: Family, theta: Floats) -> NoisyMatrix:
        """Sum of s s' over the weighted scores s of records, folded: where it is not a multiple of the curvature."""
        folded = fold(family, self.rows.x.shape[1])
        bound = (family.score_bound * self.reach) ** 2

        def of_part(x: Floats, y: Floats, e: Floats, w: Floats) -> Floats:
            r = family.scores(predictors(family, x, theta), family.targets(y), e) * w[:, None]
            s = (r[:, :, None] * x[:, None, :]).reshape(len(x), -1) @ folded
            return s.T @ s

        return self._matrix(name, bound, of_part, on=bound, off=bound)

    def residual_counts(self, name: str, family: Clipped, theta: Floats) -> Noisy:
        """How many residuals are how long, in shares of the outcome's range; a record lies in one bin."""

        def of_part(x: Floats, y: Floats, e: Floats, w: Floats) -> Floats:
            eta = predictors(family, x, theta)
            return residual_histogram((family.mean(eta, e) - family.targets(y))[:, 0], family.range)

        return self._vector(name, 1.0, of_part)

    def _matrix(
        self, name: str, slope: float, of_part: "_OfPart", *, on: float | None = None, off: float | None = None
    ) -> NoisyMatrix:
        """Upper triangle and diagonal as two groups; sqrt 2 makes the norm of the first that of both triangles."""
        total = self._sum(of_part)
        above, size = np.triu_indices(len(total), 1), len(total)
        high = self._noisy(f"{name} off", math.sqrt(2) * total[above], off or slope * self.reach**2)
        diagonal = self._noisy(f"{name} on", np.diag(total), on or slope * self.reach)
        found = np.zeros((size, size))
        found[above] = high.value / math.sqrt(2)
        return NoisyMatrix(found + found.T + np.diag(diagonal.value), high.stddev / math.sqrt(2), diagonal.stddev)

    def _vector(self, name: str, bound: float, of_part: "_OfPart") -> Noisy:
        return self._noisy(name, self._sum(of_part), bound)

    def _noisy(self, name: str, total: Floats, bound: float) -> Noisy:
        """The one way out: a sum, its bound and the noise that was charged for that name, in parts (kept.py)."""
        if name in self.asked:
            raise InputError(f"{name!r} was released before; a second time would be another release")
        self.asked.add(name)
        stddev = bound * self.plan.part_stddev(name)
        found = self.kept.mean(name, len(total), lambda: total + stddev * self.normals(len(total)))
        return Noisy(found.total / found.kept, stddev / math.sqrt(found.kept))

    def _sum(self, of_part: "_OfPart") -> Floats:
        parts = [of_part(x, y, e, self._weights(x)) for x, y, e in self._parts()]
        stacked = np.stack(parts)
        if len(parts) == 1:
            return np.asarray(stacked[0])
        flat = stacked.reshape(len(parts), -1)
        return np.array([math.fsum(column) for column in flat.T]).reshape(stacked.shape[1:])

    def _parts(self) -> Iterator[tuple[Floats, Floats, Floats]]:
        for start in range(0, max(1, len(self.rows.y)), PART):
            part = slice(start, start + PART)
            yield self.rows.x[part], self.rows.y[part], self.rows.exposure[part]

    def _weights(self, x: Floats) -> Floats:
        return np.asarray(np.minimum(1.0, self.reach**2 / (x**2).sum(1)))


_OfPart = Callable[[Floats, Floats, Floats, Floats], Floats]


def residual_histogram(residuals: Floats, scale: float) -> Floats:
    """How many residuals are how long, in shares of the outcome's range."""
    place = np.clip(np.digitize(np.abs(residuals) / scale, EDGES) - 1, 0, len(EDGES) - 2)
    return np.bincount(place, minlength=len(EDGES) - 1).astype(np.float64)


def predictors(family: Family, x: Floats, theta: Floats) -> Floats:
    """eta of each row, [rows, outputs]."""
    full = fold(family, x.shape[1]) @ theta if isinstance(family, Ordered) else theta
    return np.asarray(x @ full.reshape(family.outputs, -1).T)


def parameters_of(family: Family, x: Floats, r: Floats) -> Floats:
    """Sum of x r' as one vector of parameters."""
    found = (r.T @ x).ravel()
    return np.asarray(fold(family, x.shape[1]).T @ found) if isinstance(family, Ordered) else found


def _weighted(family: Family, x: Floats, w: Floats, r: Floats) -> Floats:
    return parameters_of(family, x, r * w[:, None])


def curvature_of(x: Floats, w: Floats, slopes: Floats, folded: Floats) -> Floats:
    """Sum of w M (x) x x', folded; public if x is."""
    q, d = slopes.shape[1], x.shape[1]
    if q == 1:
        return np.asarray((x * (w * slopes[:, 0, 0])[:, None]).T @ x)
    found = np.empty((q, d, q, d))
    for a in range(q):
        for b in range(a + 1):
            block = (x * (w * slopes[:, a, b])[:, None]).T @ x
            found[a, :, b], found[b, :, a] = block, block.T
    return np.asarray(folded.T @ found.reshape(q * d, q * d) @ folded)
