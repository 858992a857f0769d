"""The only code of a regression that sees records: weighted sums of bounded parts, each released once with noise.

Weights on the loss, never on the record (Mallows): w(x) = min(1, R^2 / |x|^2) follows from the covariates alone, so the
weighted score still has mean zero at the true coefficients. With it, for every record,

    |w x| <= R        |w x x'|_F = w |x|^2 <= R^2        |diag(w x x')| <= w |x| <= R    as no entry exceeds 1,

and with a family's bounds B on scores and S on slopes, the parts of one record are at most

    score B R         curvature off its diagonal S R^2 / sqrt 2 in the entries above it, on it S R.

Each sum is divided by its bound, so that the ledger is charged for norm 1 before anything is known. Sums are formed in
float64 in parts of 1,024 rows and these added by :func:`math.fsum`; a part rounds by at most 1024^2 2^-53 of a record,
so that 10^7 records stay below SLACK, which is charged for.

Where people are the unit of privacy, a row of somebody with m rows has the weight 1/m in every sum, so that a person's
part is a mean of parts that keep the bound. What is not linear in rows, the size and the products of scores, is taken
of that mean: |sum of w x r' / m|^2, which is what a sandwich that is robust to clusters needs.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tacit.errors import InputError
from tacit.regression.families import Bounded, Clipped, Family, Ordered, Poisson, fold
from tacit.regression.newton.kept import Releases
from tacit.regression.newton.plan import ReleasePlan
from tacit.types import Floats, Indices

PART = 1024
EDGES: Floats = np.concatenate([[0.0], 2.0 ** (-np.arange(14, -1, -1) / 2), [np.inf]])  # of the outcome's range


@dataclass(frozen=True, slots=True)
class Rows:
    """Private: covariates with 1 in front and no entry beyond 1, outcomes on the family's scale, exposures.

    ``units`` numbers the people whose rows they are, from 0 on; None where each row is somebody else's.
    """

    x: Floats
    y: Floats
    exposure: Floats
    units: Indices | None = None


@dataclass(frozen=True, slots=True)
class Noisy:
    """A released vector and the standard deviation of its noise. Public."""

    value: Floats
    stddev: float


@dataclass(frozen=True, slots=True)
class NoisyMatrix:
    """A released symmetric matrix, and the noise of its entries off and on the diagonal. Public.

    ``row`` is that of the first row off the diagonal, where that is a release of its own.
    """

    value: Floats
    off: float
    on: float
    row: float | None = None

    @property
    def above(self) -> Floats:
        """The noise of each entry above the diagonal."""
        first = np.triu_indices(len(self.value), 1)[0] == 0
        return np.where(first, self.off if self.row is None else self.row, self.off)


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

    def exposure(self, name: str, family: Poisson) -> Noisy:
        """Sum of w times the exposure."""
        return self._vector(name, family.longest, lambda x, y, e, w: np.atleast_1d(w @ e))

    def score_size(self, name: str, family: Family, theta: Floats) -> Noisy:
        """Sum of |s|^2 over the weighted scores s of units: the trace of their covariance."""
        parts = [np.atleast_1d((part**2).sum()) for part in self._scores(family, theta)]
        return self._noisy(name, _added(parts), (family.score_bound * self.reach) ** 2)

    def score_matrix(self, name: str, family: Family, theta: Floats) -> NoisyMatrix:
        """Sum of s s' over the weighted scores s of units, folded: where it is not a multiple of the curvature."""
        bound = (family.score_bound * self.reach) ** 2
        total = _added([part.T @ part for part in self._scores(family, theta)])
        return self._noisy_matrix(name, total, on=bound, off=bound)

    def residual_counts(self, name: str, family: Clipped, theta: Floats) -> Noisy:
        """How many residuals are how long, in shares of the outcome's range; a record lies in one bin."""
        parts = []
        for x, y, e, share in self._parts():
            away = family.mean(predictors(family, x, theta), e) - family.targets(y)
            parts.append(residual_histogram(away[:, 0], family.range, share))
        return self._noisy(name, _added(parts), 1.0)

    def _matrix(self, name: str, slope: float, of_part: "_OfPart") -> NoisyMatrix:
        apart = f"{name} row" in self.plan.names
        on, off = slope * self.reach, slope * self.reach**2
        return self._noisy_matrix(name, self._sum(of_part), on=on, off=off, apart=apart)

    def _noisy_matrix(self, name: str, total: Floats, *, on: float, off: float, apart: bool = False) -> NoisyMatrix:
        """Upper triangle and diagonal as two groups; sqrt 2 makes the norm of the first that of both triangles.

        Where the first row comes ``apart``, |w x| bounds it as it bounds the diagonal: R times more closely.
        """
        (down, right), size, found, row = np.triu_indices(len(total), 1), len(total), np.zeros_like(total), None
        if apart:
            first = self._noisy(f"{name} row", total[0, 1:], on)
            found[0, 1:], row = first.value, first.stddev
            down, right = down[size - 1 :], right[size - 1 :]
        high = self._noisy(f"{name} off", math.sqrt(2) * total[down, right], off)
        diagonal = self._noisy(f"{name} on", np.diag(total), on)
        found[down, right] = high.value / math.sqrt(2)
        whole = found + found.T + np.diag(diagonal.value)
        return NoisyMatrix(whole, high.stddev / math.sqrt(2), diagonal.stddev, row)

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
        parts = [of_part(x, y, e, self._weights(x) * share) for x, y, e, share in self._parts()]
        return _added(parts)

    def _parts(self) -> Iterator[tuple[Floats, Floats, Floats, Floats]]:
        """Some rows at a time, and the share that each has in its owner's part of a sum."""
        shares = self._shares
        for start in range(0, max(1, len(self.rows.y)), PART):
            part = slice(start, start + PART)
            yield self.rows.x[part], self.rows.y[part], self.rows.exposure[part], shares[part]

    @property
    def _shares(self) -> Floats:
        units = self.rows.units
        return np.ones(len(self.rows.y)) if units is None else 1.0 / np.bincount(units)[units]

    def _scores(self, family: Family, theta: Floats) -> Iterator[Floats]:
        """The weighted score of each unit of privacy, folded, some units at a time: of a person the mean over rows."""
        folded, units = fold(family, self.rows.x.shape[1]), self.rows.units
        people = None if units is None else np.zeros((int(units.max(initial=-1)) + 1, folded.shape[1]))
        for number, (x, y, e, share) in enumerate(self._parts()):
            r = family.scores(predictors(family, x, theta), family.targets(y), e) * (self._weights(x) * share)[:, None]
            scores = (r[:, :, None] * x[:, None, :]).reshape(len(x), -1) @ folded
            if people is None or units is None:
                yield scores
            else:
                np.add.at(people, units[number * PART : (number + 1) * PART], scores)
        if people is not None:
            yield from (people[start : start + PART] for start in range(0, max(1, len(people)), PART))

    def _weights(self, x: Floats) -> Floats:
        return np.asarray(np.minimum(1.0, self.reach**2 / (x**2).sum(1)))


def _added(parts: Sequence[Floats]) -> Floats:
    """Their sum, rounded once."""
    if len(parts) == 1:
        return np.asarray(parts[0])
    stacked = np.stack(parts)
    flat = stacked.reshape(len(parts), -1)
    return np.array([math.fsum(column) for column in flat.T]).reshape(stacked.shape[1:])


_OfPart = Callable[[Floats, Floats, Floats, Floats], Floats]


def residual_histogram(residuals: Floats, scale: float, weights: Floats | None = None) -> Floats:
    """How many residuals are how long, in shares of the outcome's range."""
    place = np.clip(np.digitize(np.abs(residuals) / scale, EDGES) - 1, 0, len(EDGES) - 2)
    return np.bincount(place, weights, minlength=len(EDGES) - 1).astype(np.float64)


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
