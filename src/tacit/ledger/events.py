"""What a ledger says happened: sampling events that hold Gaussian sum queries.

These are raw public facts (paper G, sections 2 and 3): which policy chose the records, and for each group of vectors
what one record could do to the sum and how much noise was added to it. No conclusion is stored, and nothing that
depends on the data. An accountant reads the facts and draws the conclusions.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tacit.errors import InputError, LedgerError

Neighbours = Literal["add_remove", "replace_one"]
Unit = Literal["record", "microbatch", "user"]


def _check_positive(name: str, value: float) -> None:
    if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
        raise InputError(f"{name} must be a finite number above 0, found {value!r}")


def _check_count(name: str, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} must be a whole number of at least 1, found {value!r}")


@dataclass(frozen=True, slots=True)
class GaussianSumQuery:
    """A sum of clipped vectors released with Gaussian noise: the privacy tuple (S_g, s_g) of paper G, section 2.

    Args:
        clip_norm: S_g, the L2 norm that no clipped vector exceeds in exact arithmetic.
        noise_stddev: s_g, the standard deviation of the noise on each coordinate of the *sum*.
        slack: what floating point may add, relative to ``clip_norm`` (failure-modes F6).
        multiplicity: how many clipped vectors one unit can change: 1, or 2 for a record inside a microbatch.
        group: the name of the group of vectors, for the reader.

    Example:
        >>> GaussianSumQuery(clip_norm=1.0, noise_stddev=1.3).noise_multiplier
        1.3
    """

    clip_norm: float
    noise_stddev: float
    slack: float = 0.0
    multiplicity: int = 1
    group: str = "all"

    def __post_init__(self) -> None:
        _check_positive("clip_norm", self.clip_norm)
        _check_positive("noise_stddev", self.noise_stddev)
        _check_count("multiplicity", self.multiplicity)
        if not (isinstance(self.slack, int | float) and 0 <= self.slack < 1):
            raise InputError(f"slack must lie in [0, 1), found {self.slack!r}")

    @property
    def sensitivity(self) -> float:
        """How far, in L2 norm, adding or removing one unit can move the sum."""
        return self.multiplicity * self.clip_norm * (1.0 + self.slack)

    @property
    def noise_multiplier(self) -> float:
        """z = s / sensitivity of this group alone."""
        return self.noise_stddev / self.sensitivity


def merged_noise_multiplier(queries: tuple[GaussianSumQuery, ...]) -> float:
    """The noise multiplier of all groups released together (paper G, section 3).

    Dividing each group by its noise gives one query of sensitivity S* = sqrt(sum_g (S_g / s_g)^2) and noise 1, so
    z = 1 / S*.

    Example:
        >>> round(merged_noise_multiplier((GaussianSumQuery(1.0, 2.0), GaussianSumQuery(2.0, 4.0))), 6)
        1.414214
    """
    if not queries:
        raise InputError("a sampling event needs at least one Gaussian sum query, found none")
    return 1.0 / math.hypot(*(query.sensitivity / query.noise_stddev for query in queries))


@dataclass(frozen=True, slots=True)
class PoissonSample:
    """Each unit takes part independently with the same probability; probability 1 is the full batch."""

    probability: float
    queries: tuple[GaussianSumQuery, ...]

    kind: ClassVar[str] = "poisson"
    neighbours: ClassVar[Neighbours] = "add_remove"

    def __post_init__(self) -> None:
        if not (isinstance(self.probability, int | float) and 0 < self.probability <= 1):
            raise InputError(f"probability must lie in (0, 1], found {self.probability!r}")

    @property
    def noise_multiplier(self) -> float:
        return merged_noise_multiplier(self.queries)


@dataclass(frozen=True, slots=True)
class FixedSizeSample:
    """A uniformly random set of ``size`` units out of a public ``population``, without replacement.

    Both numbers are public, so the neighbours are *replace one*: the sum can move by twice the clip norm.
    """

    size: int
    population: int
    queries: tuple[GaussianSumQuery, ...]

    kind: ClassVar[str] = "fixed_size"
    neighbours: ClassVar[Neighbours] = "replace_one"

    def __post_init__(self) -> None:
        _check_count("size", self.size)
        _check_count("population", self.population)
        if self.size > self.population:
            raise InputError(f"size must be at most the population {self.population}, found {self.size}")

    @property
    def probability(self) -> float:
        return self.size / self.population

    @property
    def noise_multiplier(self) -> float:
        """Noise over the largest change of one unit's *contribution*; replacing one moves the sum by twice that."""
        return merged_noise_multiplier(self.queries)


@dataclass(frozen=True, slots=True)
class BallsInBinsStep:
    """One step of a pass in which each unit was thrown into one of ``bins`` batches, independently and uniformly.

    A pass is ``bins`` such steps. An accountant rounds a started pass up to a whole one.
    """

    bins: int
    queries: tuple[GaussianSumQuery, ...]

    kind: ClassVar[str] = "balls_in_bins"
    neighbours: ClassVar[Neighbours] = "add_remove"

    def __post_init__(self) -> None:
        _check_count("bins", self.bins)

    @property
    def probability(self) -> float:
        return 1 / self.bins

    @property
    def noise_multiplier(self) -> float:
        return merged_noise_multiplier(self.queries)


@dataclass(frozen=True, slots=True)
class ShuffledStep:
    """One step of a pass over randomly permuted batches, recorded so that it can be refused by name."""

    batches: int
    queries: tuple[GaussianSumQuery, ...]

    kind: ClassVar[str] = "shuffled"
    neighbours: ClassVar[Neighbours] = "replace_one"

    def __post_init__(self) -> None:
        _check_count("batches", self.batches)

    @property
    def noise_multiplier(self) -> float:
        return merged_noise_multiplier(self.queries)


SamplingEvent = PoissonSample | FixedSizeSample | BallsInBinsStep | ShuffledStep

_KINDS: dict[str, type[PoissonSample] | type[FixedSizeSample] | type[BallsInBinsStep] | type[ShuffledStep]] = {
    PoissonSample.kind: PoissonSample,
    FixedSizeSample.kind: FixedSizeSample,
    BallsInBinsStep.kind: BallsInBinsStep,
    ShuffledStep.kind: ShuffledStep,
}


def event_to_json(event: SamplingEvent) -> dict[str, Any]:
    """The event as plain JSON values, under the name of its policy."""
    fields = {name: getattr(event, name) for name in event.__slots__ if name != "queries"}
    queries = [{name: getattr(query, name) for name in query.__slots__} for query in event.queries]
    return {"sampling": event.kind, **fields, "queries": queries}


def event_from_json(value: Mapping[str, Any]) -> SamplingEvent:
    """The inverse of :func:`event_to_json`; an unknown policy or field is refused by name."""
    kind = value.get("sampling")
    if kind not in _KINDS:
        raise LedgerError(f"unknown sampling event {kind!r}; this version reads {', '.join(sorted(_KINDS))}")
    try:
        queries = tuple(GaussianSumQuery(**query) for query in value["queries"])
        fields = {name: item for name, item in value.items() if name not in ("sampling", "queries")}
        return _KINDS[kind](**fields, queries=queries)
    except (TypeError, KeyError, InputError) as error:
        raise LedgerError(f"a {kind} event cannot be read: {error}") from error
