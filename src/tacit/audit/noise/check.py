"""Check 2: the noise has the claimed scale, is normal to its tails, and never comes twice.

The real engine releases samples in which nobody was drawn, so that all that leaves is noise; it is judged by the
standard deviations that the *ledger* holds.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from tacit.audit.finding import Finding, Trial, rejected, turns_errors_into_findings
from tacit.audit.noise.keys import repeated_blocks, small_keys
from tacit.audit.noise.normality import Table, normality_trials, scale_of
from tacit.audit.noise.tails import far_draws
from tacit.audit.subject import Audited, Subject
from tacit.ledger import GaussianSumQuery
from tacit.mechanisms import AdaptiveClip, ClipGroups
from tacit.randomness import Randomness
from tacit.sampling import PoissonSampling
from tacit.training import DataSource

Queries = tuple[GaussianSumQuery, ...]

_NOBODY = PoissonSampling(probability=1e-15, expected_size=7.0)  # a denominator that a wrong one will not equal
_WIDTH = 2000  # coordinates of a release
_SLOW_DRAWS = 1_000_000  # draws of a check that may take seconds
_KEYS = 300_000


@turns_errors_into_findings("noise")
def check_noise(subjects: Sequence[Subject], draws: int = 5_000_000, processes: int = 2) -> Finding:
    """Scale, shape, tails, coordinates, releases and lags of ``draws`` draws; far tails; repetition over processes."""
    trials: list[Trial] = []
    scales: list[float] = []
    total = 0
    each = draws // (len(subjects) + 2)
    for subject in subjects:
        for dtype in (torch.float64, torch.float32) if subject is subjects[0] else (torch.float64,):
            table = released_noise(subject, each, dtype)
            scales.append(scale_of(table))
            total += table.size
            trials += _named(f"{subject.name}, {str(dtype).partition('.')[2]}", table, dtype)
    width = _width(each)
    table = Randomness().normals(each - each % width).numpy().reshape(-1, width)
    trials += _named("normals", table, torch.float64)
    keys = 1_000 if draws < _SLOW_DRAWS else _KEYS
    broke = (*rejected(trials), *far_draws(), *repeated_blocks(processes), *small_keys(keys))
    least = min(one.p_value for one in trials)
    off = max(abs(scale - 1) for scale in scales)
    return Finding(
        "noise",
        f"releases of empty samples, {len(trials)} tests; far tails; {processes} forked processes, {keys:,} keys",
        total + table.size,
        broke,
        f"{total + table.size:,} draws: scale within {off:.3%} of the ledger's, smallest p {least:.2g}",
    )


def _named(source: str, table: Table, dtype: torch.dtype) -> list[Trial]:
    found = [replace(one, name=f"{one.name} ({source})") for one in normality_trials(table)]
    # results in single precision repeat themselves by rounding, however fine the noise was
    return [one for one in found if dtype == torch.float64 or not one.name.startswith("resolution")]


def _width(draws: int) -> int:
    """Coordinates of a release: enough to tell them apart, with at least as many releases as that is useful."""
    return max(1, min(_WIDTH, int(draws**0.5)))


def released_noise(subject: Subject, draws: int, dtype: torch.dtype = torch.float64) -> Table:
    """What the engine adds, in units of what the ledger claims: [releases, coordinates]."""
    subject = replace(subject, sampling=_NOBODY)
    width = max(1, _width(draws) // subject.groups)
    steps = max(2, draws // (width * subject.groups))
    source = DataSource(torch.zeros(4, width, dtype=dtype), user_ids=_owners(subject))
    rows = []
    queries: Queries = ()
    with subject.engine(width, dtype, steps) as audited:
        for sample in audited.private.samples(source, steps):
            norm = audited.private.clip_norm
            released = audited.private.release(sample, audited.losses.params)
            queries = queries or claimed_queries(subject, audited)
            stddevs = claimed_stddevs(subject, queries, norm)
            parts = [(value * _NOBODY.denominator / stddevs[name]).flatten() for name, value in released.items()]
            rows.append(torch.cat([*parts, *_count(subject, norm, audited.private.clip_norm)]).double())
    return np.asarray(torch.stack(rows).numpy())


def claimed_queries(subject: Subject, audited: Audited) -> Queries:
    """What the ledger says: the one under audit, or the engine's own."""
    return subject.claimed or audited.private.ledger.charges[0].event.queries


def _owners(subject: Subject) -> list[int] | None:
    return [0, 0, 1, 1] if subject.unit.unit == "user" else None


def claimed_stddevs(subject: Subject, queries: Queries, norm: float) -> dict[str, float]:
    """The noise on each vector's sum, from the ledger's queries (adaptive clipping: in units of the current norm)."""
    scales: dict[str, float] = {}
    if isinstance(subject.clipping, ClipGroups):
        for group in subject.clipping.vector_groups:
            scales |= dict(zip(group.names, group.scales or (1.0,) * len(group.names), strict=True))
    found = {}
    for number, query in enumerate(queries):
        for name in _names(query, number, subject):
            found[name] = query.noise_stddev * scales.get(name, 1.0) * norm
    return found


def _names(query: GaussianSumQuery, number: int, subject: Subject) -> list[str]:
    if subject.claimed is not None:  # made from queries: a vector for each
        return [subject.names()[number]]
    return subject.names() if query.group == "all" else query.group.split(",")


def _count(subject: Subject, before: float, after: float) -> list[torch.Tensor]:
    """Adaptive clipping's noisy count of nobody, read off the step of its norm."""
    clipping = subject.clipping
    if not isinstance(clipping, AdaptiveClip):
        return []
    share = clipping.quantile - np.log(after / before) / clipping.learning_rate
    return [torch.tensor([(share - 0.5) * _NOBODY.denominator / clipping.count_noise])]
