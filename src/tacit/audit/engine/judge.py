"""One model, released on D and on D with one record more, with the same randomness and nearly without noise.

What one record does is seen as it is, in several chunks, and is judged three times:

- the release may move by what the *ledger* was charged for;
- it must move by the record's gradient as plain autograd gives it, alone and in float64, clipped to the ledger's norm;
- the release on D must be the sum of such gradients.
"""

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import default_collate

from tacit.audit.finding import described, raise_machine_errors
from tacit.audit.replay import ROOM, share_of_charge
from tacit.errors import TacitError
from tacit.layers.record_gradients import ROUNDING
from tacit.ledger import GaussianSumQuery
from tacit.losses import UserLosses, map_tensors
from tacit.mechanisms import Clipping, ClipRecords, GaussianNoise
from tacit.randomness import Randomness
from tacit.sampling import PoissonSampling
from tacit.training import PrivateGradient
from tacit.types import Batch, Vectors

RECORDS, CHUNK, CLIP = 20, 8, 0.5
_CLIPPED = ClipRecords(CLIP)
_SEED = 17
_SILENT = 1e-7  # a noise multiplier at which what is released is the sum
_EVERYBODY = PoissonSampling(probability=1.0, expected_size=4.0)  # a power of two, which no sample has as its size
PRECISION = 2e-5  # of the clip norm: what float32 may do to the gradient of a record of ours; half precision does more
HALF = 0.05  # the same for models in bfloat16, whose forward pass alone errs by a percent


@dataclass(frozen=True, slots=True)
class Workload:
    """A model, its losses and its records, of which the last few are added to the others, one at a time.

    Args:
        build: makes the model, always the same.
        rows: tensors with a row for each record, or a map-style data set.
        loading: what ``samples`` gets besides: collate_fn, augment, views.
        precision: how far a release may lie from plain autograd's; None if plain autograd would see other chance.
    """

    name: str
    build: Callable[[], nn.Module]
    losses: UserLosses
    rows: Any
    clipping: Clipping = _CLIPPED
    loading: Mapping[str, Any] = field(default_factory=dict)
    precision: float | None = PRECISION

    def take(self, places: Sequence[int]) -> Any:
        """Some of the records, in the form in which users give them."""
        if isinstance(self.rows, tuple):
            return tuple(column[list(places)] for column in self.rows)
        return [self.rows[place] for place in places]

    def neighbours(self) -> Iterator[list[int]]:
        """The others with one record more, for each that is there to be added."""
        total = len(self.rows[0]) if isinstance(self.rows, tuple) else len(self.rows)
        for added in range(RECORDS, total):
            yield [*range(RECORDS), added]

    def model(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(_SEED)
            return self.build()


@dataclass(frozen=True, slots=True)
class Released:
    """What left the engine, as sums in float64; or why it refused to work."""

    sums: Vectors = field(default_factory=dict)
    queries: tuple[GaussianSumQuery, ...] = ()
    rounding: float = 0.0  # the length of what rounding to the parameters' type may have done
    refused: str = ""


@dataclass(slots=True)
class Judgement:
    """What is wrong with the releases of a model, and the figures."""

    broke: list[str] = field(default_factory=list)
    moved: float = 0.0
    off: float = 0.0
    releases: int = 0


def judge(workload: Workload) -> Judgement:
    """Add each record in turn and compare with the charge and with plain autograd."""
    found = Judgement()
    base = release(workload, range(RECORDS))
    found.releases += 1
    if base.refused:
        found.broke.append(f"{workload.name}: a sound model was refused: {base.refused}")
        return found
    slack = min(query.slack for query in base.queries)
    if slack < ROUNDING:
        found.broke.append(f"the ledger's slack is {slack:g}, rounding may add {ROUNDING:g} to a record")
    plain = None if workload.precision is None else Plain(workload, base.queries)
    if plain is not None:
        wanted = plain.sum(range(RECORDS))
        _compare(found, workload, f"the release of {RECORDS} records", base.sums, wanted, base.rounding, RECORDS)
    for places in workload.neighbours():
        more = release(workload, places)
        found.releases += 1
        number = f"record {places[-1]}"
        if more.refused:
            found.broke.append(f"{workload.name}: {number} more made the engine refuse: {more.refused}")
            continue
        moves = {name: more.sums[name] - base.sums[name] for name in base.sums}
        room = base.rounding + more.rounding
        share = share_of_charge(moves, base.queries, room)
        found.moved = max(found.moved, share)
        if not share <= 1 + ROOM:
            found.broke.append(f"{workload.name}: {number} moved the release by {share:.7g} of what was charged for")
        if plain is not None:
            _compare(found, workload, f"the move by {number}", moves, plain.clipped(places[-1]), room, 1)
    return found


def _compare(
    found: Judgement, workload: Workload, what: str, got: Vectors, wanted: Vectors, room: float, records: int
) -> None:
    """Equal to plain autograd, up to float32 and the rounding of the release."""
    assert workload.precision is not None
    distance = math.sqrt(sum(float((got[name] - wanted[name]).square().sum()) for name in wanted))
    off = max(0.0, distance - room) / (CLIP * records)
    if workload.precision < HALF:
        found.off = max(found.off, off)
    if not off <= workload.precision:
        found.broke.append(f"{workload.name}: {what} is {off:.2g} of the clip norm away from the one of plain autograd")


def release(
    workload: Workload,
    places: Sequence[int],
    *,
    randomness: Randomness | None = None,
    chunk: int = CHUNK,
) -> Released:
    """One step on some of the records, all of whom are drawn."""
    model, source = workload.model(), randomness or Randomness.seeded(_SEED)
    try:
        with engine(model, workload.losses, workload.clipping, chunk=chunk, randomness=source) as private:
            for sample in private.samples(workload.take(places), 1, **workload.loading):
                private.backward(sample)
            queries = private.ledger.charges[0].event.queries
    except TacitError as error:
        raise_machine_errors(error)
        return Released(refused=described(error))
    gradients = {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
    sums = {name: value.double() * _EVERYBODY.denominator for name, value in gradients.items()}
    rounding = [torch.finfo(value.dtype).eps / 2 * float(sums[name].norm()) for name, value in gradients.items()]
    return Released(sums, queries, math.hypot(*rounding))


@contextmanager
def engine(
    model: nn.Module,
    losses: UserLosses,
    clipping: Clipping = _CLIPPED,
    *,
    sampling: PoissonSampling = _EVERYBODY,
    multiplier: float = _SILENT,
    chunk: int = CHUNK,
    randomness: Randomness | None = None,
) -> Iterator[PrivateGradient]:
    """As a user makes it, with a ledger of its own."""
    with tempfile.TemporaryDirectory() as folder:
        private = PrivateGradient(
            model,
            losses,
            sampling,
            clipping,
            GaussianNoise(multiplier=multiplier),
            ledger=Path(folder) / "ledger.jsonl",
            physical_batch=chunk,
            randomness=randomness,
        )
        with private:
            yield private


class Plain:
    """The gradients of single records by plain autograd, in float64, clipped by what the ledger says."""

    def __init__(self, workload: Workload, queries: Sequence[GaussianSumQuery]) -> None:
        self._workload, self._queries = workload, queries
        half = workload.precision == HALF  # there the model's own roundings are part of what is trained
        self._model = workload.model() if half else workload.model().double()
        self._half = half

    def sum(self, places: Sequence[int]) -> Vectors:
        found = [self.clipped(place) for place in places]
        return {name: torch.stack([one[name] for one in found]).sum(0) for name in found[0]}

    def clipped(self, place: int) -> Vectors:
        gradient = self._gradient(place)
        for query in self._queries:
            names = list(gradient) if query.group == "all" else query.group.split(",")
            norm = math.sqrt(sum(float(gradient[name].square().sum()) for name in names))
            for name in names:
                gradient[name] = gradient[name] * min(1.0, query.clip_norm / max(norm, 1e-300))
        return gradient

    def _gradient(self, place: int) -> Vectors:
        params = dict(self._model.named_parameters())
        found = torch.autograd.grad(
            self._workload.losses(self._model, self._batch(place)).sum(), list(params.values()), materialize_grads=True,
            allow_unused=True,
        )  # fmt: skip
        return {name: value.double() for name, value in zip(params, found, strict=True)}

    def _batch(self, place: int) -> Batch:
        rows, loading = self._workload.take([place]), self._workload.loading
        batch = rows if isinstance(rows, tuple) else loading.get("collate_fn", default_collate)(rows)
        if self._half:
            return batch
        return map_tensors(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor, batch)
