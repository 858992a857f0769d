"""Noisy Newton: a few large releases, and what they say about the coefficients.

    1. moments w x x' and the score at a public mean      -> a synthetic table and a first estimate
    2. the score and the curvature there, then twice the score   -> corrections, each shrunk by what is noise in it
    3. the score, the curvature and the scores' size at the last estimate   -> the posterior (posterior.py)

The last curvature is taken where the corrections ended. Whether that is near enough to the optimum is read off the last
score, whose noise is known (:class:`tacit.regression.posterior.Posterior`).
"""

from dataclasses import dataclass, replace

import numpy as np

from tacit.regression.families import Clipped, Family, Linear, Ordered, Poisson
from tacit.regression.newton.curvature import KnownCurvature, posterior_of
from tacit.regression.newton.declared import first_under
from tacit.regression.newton.declared_search import DeclaredSearch, Dropped
from tacit.regression.newton.plan import STEPS
from tacit.regression.newton.search import Search, clip_from
from tacit.regression.newton.sums import EDGES, Noisy, NoisyMatrix, PrivateSums
from tacit.regression.newton.synthetic import SyntheticTable, synthetic_table
from tacit.types import Floats

_LEAST = 1e-3  # of the largest exposure, that a mean one is taken to be
_LEAST_SCORE = 0.3  # times the ratio of scores to curvature that coefficients have in common


@dataclass(frozen=True, slots=True)
class Released:
    """All that the intervals rest on. Public.

    Args:
        theta: where the last scores were taken, on average.
        score: the noisy sum of weighted scores there, their average too.
        score_noise: the standard deviation of its noise.
        curvature: the posterior of the exact curvature at the last of these points.
        scores: the covariance of the exact score around the truth.
        family: with the clip that was used.
        at_bounds: the share of a linear model's outcomes that lie at the declared bounds or beyond, as released.
        dropped: why what was declared of the columns was not used, if it was not.
    """

    theta: Floats
    score: Floats
    score_noise: float
    curvature: KnownCurvature
    scores: Floats
    family: Family
    at_bounds: float = 0.0
    dropped: Dropped = ""


def release_statistics(sums: PrivateSums, family: Family, spread: float | None = None) -> Released:
    """Every release of the plan in its order; all else is post-processing. ``spread`` is declared (declared.py)."""
    first, at_bounds = _without_rare_outcomes(sums, family) if isinstance(family, Clipped) else (family, 0.0)
    gram, offset = sums.gram("gram"), sums.offset("offset", first)
    if isinstance(family, Poisson) and isinstance(first, Poisson) and family.longest:
        mean = float(sums.exposure("exposure", family).value[0]) / max(float(gram.value[0, 0]), 10.0)
        exposure = float(np.clip(mean, _LEAST * family.longest, family.longest))
        family, first = replace(family, exposure=exposure), replace(first, exposure=exposure)
    table, search = _begun(sums, gram, offset, first, family, spread)
    theta = search.first_estimate(table)
    for step in map(str, range(1, STEPS + 1)):
        if isinstance(family, Clipped) and step != "3":
            search.clip_residuals(step, theta)
        theta = search.moved(step, theta)
    search.take_score("last", theta)
    released = sums.curvature("curvature last", search.family, theta)
    known = search.last_curvature(released, theta)
    scores = _scores(search, theta, known)
    where, score = search.average(theta)
    dropped: Dropped = search.dropped if isinstance(search, DeclaredSearch) else ""
    return Released(where, score.value, score.stddev, known, scores, search.family, at_bounds, dropped)


def _begun(
    sums: PrivateSums, gram: NoisyMatrix, offset: Noisy, first: Family, family: Family, spread: float | None
) -> tuple[SyntheticTable, Search]:
    """The synthetic table with the family of the first estimate, and a search that has the moments."""
    correction = np.zeros((len(offset.value),) * 2)
    if spread is None:
        table = synthetic_table(posterior_of(gram, np.diag(np.diag(gram.value))).mean, first)
        return table, Search(sums, replace(table, family=family), offset, family, correction, matrices=[gram])
    known = first_under(gram, spread)
    table = synthetic_table(known.mean, first)
    return table, DeclaredSearch(
        sums, replace(table, family=family), offset, family, correction, matrices=[gram], least=spread, known=[known]
    )


def _without_rare_outcomes(sums: PrivateSums, family: Clipped) -> tuple[Clipped, float]:
    """Outcomes beyond what seven of eight stay below count as that in the first estimate, which is corrected later.

    And the share of outcomes at the bounds of a linear model, which are half its range from the middle; 0 where it may
    be noise.
    """
    middle = np.zeros(sums.rows.x.shape[1])
    if isinstance(family, Poisson):
        middle[0] = -50.0  # a mean of 0, so that residuals are the counts themselves
    counts = sums.residual_counts("outcomes", family, middle)
    most = float(np.clip(clip_from(counts) * family.range, 1.0 if isinstance(family, Poisson) else 0.0, family.most))
    ends = counts.value[np.searchsorted(EDGES, 0.5) :]
    total, noise = max(float(counts.value.sum()), 1.0), counts.stddev * len(ends) ** 0.5
    seen = isinstance(family, Linear) and ends.sum() > 3 * noise
    return replace(family, most=most), float(ends.sum()) / total if seen else 0.0


def _scores(search: Search, theta: Floats, known: KnownCurvature) -> Floats:
    """The covariance of the sum of scores: a multiple of the curvature, or released where it is not."""
    if "score size" not in search.sums.plan.names:
        released = search.sums.score_matrix("scores", search.family, theta)
        if isinstance(search.family, Ordered):
            return posterior_of(released, np.diag(np.diag(released.value))).mean
        # rows of one person: correlated about as the curvature is, but each coefficient at a size of its own. A floor
        # at the noise would lift what noise has lowered, and widen intervals; one at a share of what all have does not
        curved, seen = np.diag(known.mean), np.diag(released.value)
        common = max(float(curved @ seen), released.on * float(np.linalg.norm(curved))) / float(curved @ curved)
        sizes = np.maximum(seen, _LEAST_SCORE * common * curved)
        ratio = np.sqrt(sizes / curved)
        sized = NoisyMatrix(released.value + np.diag(sizes - seen), released.off, 0.0)
        return posterior_of(sized, known.mean * np.outer(ratio, ratio)).mean
    size = search.sums.score_size("score size", search.family, theta)
    trace = float(np.trace(known.mean))
    return known.mean * max(float(size.value[0]), size.stddev) / trace
