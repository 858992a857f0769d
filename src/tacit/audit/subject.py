"""What is audited: a mechanism as a ledger describes it, and the real engine made to do it on records of our making.

A record's gradient is the record itself: the loss is linear in the parameters, one vector of them for each group.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from tacit.errors import InputError
from tacit.ledger import (
    BallsInBinsStep,
    FixedSizeSample,
    GaussianSumQuery,
    PoissonSample,
    SamplingEvent,
    Unit,
)
from tacit.losses import ModelLosses
from tacit.mechanisms import ClipGroups, Clipping, GaussianNoise, VectorGroup
from tacit.sampling import (
    RECORDS,
    BallsInBinsSampling,
    FixedSizeSampling,
    Microbatches,
    PoissonSampling,
    SamplingPolicy,
    UnitOfPrivacy,
    Users,
)
from tacit.training import PrivateSum, TrainingPlan

_MOST_UNITS = 100_000
ROWS_OF_A_UNIT = 2  # where a unit has several


@dataclass(frozen=True, slots=True)
class Subject:
    """A mechanism under audit.

    Args:
        name: for the reader.
        sampling, clipping, noise, unit: what the engine is told to do.
        groups: how many vectors it releases.
        claimed: the queries by which its outputs are judged; None takes those that it writes itself.
    """

    name: str
    sampling: SamplingPolicy
    clipping: Clipping
    noise: GaussianNoise | None
    unit: UnitOfPrivacy = RECORDS
    groups: int = 1
    claimed: tuple[GaussianSumQuery, ...] | None = None

    def names(self) -> list[str]:
        return vector_names(self.groups)

    @contextmanager
    def engine(self, width: int, dtype: torch.dtype = torch.float64, steps: int = 1) -> Iterator["Audited"]:
        """The real engine with secure randomness and a ledger of its own, for vectors of ``width`` coordinates."""
        model = Linear(self.groups, width, dtype)
        losses = ModelLosses(model, gradient_is_the_record)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ledger.jsonl"
            plan = TrainingPlan(
                self.sampling, self.clipping, self.noise, steps, path, unit=self.unit, block=min(steps, 1000)
            )
            private = PrivateSum(losses, losses.params, plan)
            try:
                yield Audited(private, losses, path)
            finally:
                private.close()


@dataclass(frozen=True, slots=True)
class Audited:
    """An engine at work and the losses that it was given."""

    private: PrivateSum
    losses: ModelLosses
    path: Path


class Linear(nn.Module):
    """One vector of parameters for each group, at zero; only gradients matter here."""

    def __init__(self, groups: int, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        layers = [nn.Linear(width, 1, bias=False, dtype=dtype) for _ in range(groups)]
        self.groups = nn.ModuleList(layers)


def vector_names(groups: int) -> list[str]:
    return [f"groups.{number}.weight" for number in range(groups)]


def gradient_is_the_record(model: nn.Module, batch: Tensor) -> Tensor:
    """Losses whose gradient with respect to every group is the record."""
    layers = model.get_submodule("groups").children()
    values: Tensor = torch.stack([layer(batch)[:, 0] for layer in layers]).sum(0)
    return values


def subject_of(event: SamplingEvent, unit: Unit) -> Subject:
    """The mechanism that a ledger's event speaks of, with the very numbers of the event."""
    queries = event.queries
    groups = tuple(
        VectorGroup((name,), query.clip_norm, query.noise_stddev)
        for name, query in zip(vector_names(len(queries)), queries, strict=True)
    )
    clipping = ClipGroups(groups)
    units: UnitOfPrivacy = RECORDS if unit == "record" else Users() if unit == "user" else Microbatches(ROWS_OF_A_UNIT)
    return Subject(event.kind, _policy(event), clipping, None, units, len(queries), queries)


def _policy(event: SamplingEvent) -> SamplingPolicy:
    match event:
        case PoissonSample(probability=q):
            return PoissonSampling(q, expected_size=1.0)  # the denominator divides signal and noise alike
        case FixedSizeSample(size=size, population=population):
            smaller = min(1.0, _MOST_UNITS / population)  # the same rate from fewer units, for the sake of memory
            return FixedSizeSampling(max(1, round(size * smaller)), round(population * smaller))
        case BallsInBinsStep(bins=bins):
            return BallsInBinsSampling(bins, expected_size=1.0)
        case _:
            raise InputError(f"a {event.kind} event releases no sum that could be audited")
