"""The clipped sum of a sample, in physical chunks of bounded memory. The chunking changes speed only."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from tacit.errors import InputError, LossesError
from tacit.gradients.bookkeeping import Gradients
from tacit.gradients.computing import Again, Computing, guard_of, is_fault_of_a_record
from tacit.gradients.dense_rows import PlainRows, small_rows
from tacit.gradients.known_networks import Arguments, KnownNetwork, learned, linear_model
from tacit.isolation import (
    StateGuard,
    UncoveredError,
    nothing_leaves,
    plain_checkpoints,
    refuse_foreign_watchers,
    run_apart,
)
from tacit.isolation.apart import is_limit_of_vmap
from tacit.kernels.dense import DenseRows
from tacit.layers.record_gradients import Dense, Sums, full_precision, records_a_stretch
from tacit.losses import Fill, Losses, Places, RecordGroup, copy_records, count_records, map_tensors, take_records
from tacit.mechanisms import GaussianSumMechanism
from tacit.randomness import Randomness, RecordChance, global_chance, seed_everything
from tacit.types import Batch, Vectors

Strategy = Literal["auto", "fast", "record"]
Isolation = Literal["records", "trusted"]

_MANY = 8


@dataclass(frozen=True, slots=True)
class Part:
    """Units that can be computed together: ``each`` rows of one shape for every unit.

    ``batches`` holds the rows in one piece, or, for a single unit of rows with different shapes, in several.
    """

    batches: tuple[Batch, ...]
    units: Places
    rows: Places  # the place of each row in the sample, unit by unit
    each: int
    views: int = 1


@dataclass(frozen=True, slots=True)
class ClippedSum:
    """Private until noise is added: the sums, and the squared norms of units.

    Sums are in float64 or, of few records, in float32, or whole if they are strict.

    ``reasons`` says why some records were computed one after the other: operations, never values. ``row_bytes`` is what
    a row takes in memory, about, while it is computed together with others.
    """

    sums: Vectors
    squared_norms: Tensor
    reasons: tuple[str, ...] = ()
    row_bytes: int = 0
    by_formula: bool = False
    is_of_parameters: bool = True  # some record's loss depends on some parameter

    @property
    def path(self) -> str:
        """How the records were computed, in one line: public."""
        if self.by_formula:
            return "a formula: this network needs no calls of its own"
        if self.reasons:
            return f"one record after the other, which is slow: {self.reasons[0]}"
        return "records together"


def clipped_sum(
    losses: Losses,
    params: Mapping[str, Tensor],
    batch: Batch | Sequence[RecordGroup] | Iterator[Sequence[RecordGroup]] | None,
    mechanism: GaussianSumMechanism,
    *,
    chunk: int,
    sizes: Sequence[int] | None = None,
    views: int | None = None,
    chance: RecordChance | None = None,
    strategy: Strategy = "auto",
    isolation: Isolation = "records",
    guard: StateGuard | None = None,
    sample: int | None = None,
) -> ClippedSum:
    """Clip each record (or unit, given ``sizes`` of rows) and add up.

    Args:
        batch: the sample as one batch or in groups of one shape; None or nothing for nobody, whose sum is zero. An
            iterator gives the groups of some whole units at a time, by places in the sample; ``chance`` is needed then.
        chunk: how many rows are processed at once.
        sizes: the rows of each unit, in order; the mean gradient of a unit's rows is clipped as one.
        views: with a number, batch tensors are [records, views, ...] and a record's loss is the mean over its views.
        chance: of each row; a fresh secret one by default.
        strategy: "auto" computes records together where that can be done, "fast" raises where it cannot, "record" takes
            one after the other. The result is the same.
        isolation: "trusted" calls the losses with whole chunks and takes their word that loss i is of record i alone.
        guard: of these losses, which is quicker when it is used again.
        sample: how many units the whole sample has, if it is more than these.
    """
    refuse_foreign_watchers()
    portions = batch if isinstance(batch, Iterator) else [as_groups(batch)]
    if chance is None:
        rows = sum(len(group.places) for groups in portions for group in groups)
        chance = Randomness().record_chance(np.arange(rows))
    units = chance.records if sizes is None else len(sizes)  # of which some may have no record: it could not be made
    strategy = "record" if mechanism.numerics == "strict" else strategy
    summing = _Summing(losses, params, mechanism, units, strategy, max(units, sample or 0), guard)
    add = summing.add_trusted if isolation == "trusted" else summing.add
    may_be_known = isolation == "records" and strategy == "auto" and summing.meeting is None
    for groups in portions:
        if not (may_be_known and summing.add_known(groups, sizes, views, chunk)):
            with _around(losses, guard, summing):
                _add_all(parts_of(groups, sizes, views), add, chance, chunk)
        del groups  # so that the next ones are not read beside them
    if summing.again is not None:
        with _around(losses, guard, summing):
            summing.again.compare()
        summing.computing.learned.seen.confirm(guard)
    summing.refuse_if_all_failed()
    sums = mechanism.sums(summing.sums, summing.device) if summing.meeting is None else {}  # those lie in shards
    reasons = tuple(dict.fromkeys(summing.reasons))
    if summing.by_formula:
        return ClippedSum(sums, summing.squared_norms, reasons, by_formula=True)
    row_bytes, depends = summing.computing.row_bytes, summing.is_of_parameters
    return ClippedSum(sums, summing.squared_norms, reasons, row_bytes, is_of_parameters=depends)


def _add_all(
    parts: Iterator[Part], add: Callable[[Part, RecordChance, int], None], chance: RecordChance, chunk: int
) -> None:
    for part in parts:
        add(part, chance, chunk)


def _around(losses: Losses, guard: StateGuard | None, summing: "_Summing") -> AbstractContextManager[Any]:
    """What the user's code runs in."""
    around = ExitStack()
    around.enter_context(guard or guard_of(losses))
    around.enter_context(nothing_leaves())
    around.enter_context(plain_checkpoints())
    around.enter_context(global_chance(summing.device))
    return around


class _Summing:
    """The sum so far."""

    def __init__(
        self,
        losses: Losses,
        params: Mapping[str, Tensor],
        mechanism: GaussianSumMechanism,
        units: int,
        strategy: Strategy,
        sample: int,
        guard: StateGuard | None,
    ) -> None:
        self.mechanism, self.strategy = mechanism, strategy
        self._losses, self._params, self._guard = losses, params, guard
        self._seen = learned(losses).seen  # asked now: kernels may have to be compiled before the losses run
        self.by_formula = False  # what came last
        self.meeting = getattr(losses, "meeting", None)  # of ranks that share one model; see tacit.distributed.shards
        self.device = next(iter(params.values())).device
        self.sums, self._sample = Sums(), sample
        self.squared_norms = torch.zeros(units, len(mechanism.shapes), dtype=torch.float64)
        self.faults: list[Exception] = []
        self.reasons: list[str] = []
        self._calls = 0
        self.is_of_parameters = False
        self.again: Again | None = None

    @cached_property
    def several(self) -> int:
        """How many records may be added up in float32."""
        return records_a_stretch(self._sample, self.mechanism.bound_by_name().values())

    @cached_property
    def computing(self) -> Computing:
        """The user's losses, made ready when they have to run."""
        return Computing(self._losses, self._params, self._guard)

    def add_known(
        self, groups: Sequence[RecordGroup], sizes: Sequence[int] | None, views: int | None, chunk: int
    ) -> bool:
        """All records by a formula, if the losses are known as one that takes them; otherwise nothing is added."""
        model, alone = self._known(), sizes is None and views is None
        given = [] if model is None else [model.arguments(self._params, group.batch) for group in groups]
        fits = None not in given and (sizes is None or len(groups) == 1)  # no unit lies in two groups
        self.by_formula = model is not None and fits
        if model is None or not fits:
            return False
        small = alone and not model.front
        rows = [small_rows(model, one, self.mechanism) if small else None for one in given if one is not None]
        for place, part in enumerate(parts_of(groups, sizes, views)):
            one = given[place] if alone else model.arguments(self._params, part.batches[0])
            assert one is not None  # as their group
            if (found := rows[place] if alone else None) is not None:
                self._add_rows(part.units, found)
            else:
                self.faults += _no_class(model.faults(one)) if alone else []
                self._add_by_formula(model, one, part, chunk)
        return True

    def _known(self) -> KnownNetwork | None:
        if self._seen.is_known_as_other:
            return None
        return linear_model(self._losses, self._params) or self._seen.still(self._guard, self._params)

    def _add_by_formula(self, model: KnownNetwork, given: Arguments, part: Part, chunk: int) -> None:
        """All units of a part, as many at a time as fit into a chunk, filled up like those whose losses run."""
        step, fill = even_share(len(part.units), max(1, chunk // part.each)), Fill(model.multiple(given))
        for start in range(0, len(part.units), step):
            some = np.arange(start, min(start + step, len(part.units)))
            whole = fill(some, part.each)
            self._add(model.gradients(given.take(rows_of(whole, part.each)), len(whole)), part.units[some], len(whole))

    def _add_rows(self, places: Places, rows: DenseRows | PlainRows) -> None:
        sums = rows.weighted_sum(self.mechanism.factors(rows.squares)) if rows.sums is None else rows.sums
        for name, value in (
            *zip(self.mechanism.shapes, sums, strict=True),
            *self.mechanism.counts(rows.squares).items(),
        ):
            self.sums.add(name, value)
        if len(places) == len(self.squared_norms):
            self.squared_norms = rows.squares
        else:
            self.squared_norms[torch.from_numpy(places)] = rows.squares
        self.faults += _no_class(rows.faults)

    def add(self, part: Part, chance: RecordChance, chunk: int) -> None:
        """All units of a part, as many at a time as fit into a chunk, in parts of about one size."""
        step = min(chunk // part.each, even_share(len(part.units), chunk // part.each))
        if self.strategy == "record" or len(part.batches) > 1 or step == 0:
            self.reasons += ["strict numerics"] if self.mechanism.numerics == "strict" else []
            self._add_alone(part, chance, np.arange(len(part.units)))
            return
        for start in range(0, len(part.units), step):
            places = np.arange(start, min(start + step, len(part.units)))
            reasons = run_apart(
                places,
                partial(self._add_together, part, chance),
                partial(self._add_alone, part, chance),
                part.each,
                self.computing.learned.fill,
            )
            if reasons and self.strategy == "fast":
                raise UncoveredError(reasons[0])
            self.reasons += reasons

    def add_trusted(self, part: Part, chance: RecordChance, chunk: int) -> None:
        """Whole chunks in one call, and then one backward pass for each unit: no rule looks into trusted losses."""
        if len(part.batches) > 1:
            raise InputError("trusted losses need the rows of a unit in one shape, found several")
        seed_everything(int.from_bytes(chance.key[:8], "little") + self._calls)
        self._calls += 1
        step = max(1, chunk // part.each)
        for start in range(0, len(part.units), step):
            units = np.arange(start, min(start + step, len(part.units)))
            rows = torch.from_numpy(rows_of(units, part.each))
            gradients = self.computing.trusted(take_records(part.batches[0], rows), part.each)
            for unit, gradient in zip(units, gradients, strict=True):
                self._add({name: Dense(value[None]) for name, value in gradient.items()}, part.units[[unit]], 1)

    def _add_together(self, part: Part, chance: RecordChance, some: Places, whole: Places) -> None:
        self._calls += 1
        if self._calls == 2:
            self.again = self.again or Again(self.computing, part.batches[0], chance.take(part.rows), alone=False)
        rows = rows_of(whole, part.each)
        seeds = chance.take(part.rows[rows]).spread(part.views)
        gradients = self.computing.together(part.batches[0], rows, len(whole), seeds)
        self._add(gradients, part.units[some], len(whole))

    def _add_alone(self, part: Part, chance: RecordChance, places: Places) -> None:
        """Units one after the other; one that makes the losses raise contributes zero (failure-modes.md, F5)."""
        if self.meeting is not None:
            self._leave_out()
            return
        self.again = self.again or Again(self.computing, part.batches[0], chance.take(part.rows), alone=True)
        pieces = [row for batch in part.batches for row in one_by_one(batch)]
        for place in places:
            rows = rows_of(np.array([place]), part.each)
            seeds = chance.take(part.rows[rows]).spread(part.views).seeds
            try:
                gradient = self.computing.alone([pieces[row] for row in rows], [int(seed) for seed in seeds])
            except Exception as error:
                if not is_fault_of_a_record(error):
                    raise
                error.__suppress_context__ = True  # of the same error among other records, which says no more
                self.faults.append(error)
                continue
            self._add({name: Dense(value[None]) for name, value in gradient.items()}, part.units[[place]], 1)

    def _leave_out(self) -> None:
        """A record that makes the losses raise. Ranks that share a model have no other way to compute one."""
        error = sys.exception()
        if not isinstance(error, Exception) or isinstance(error, UncoveredError) or is_limit_of_vmap(error):
            raise LossesError(
                f"a sharded model needs records that can be computed together: {error or 'several shapes'}"
            )
        self.faults.append(error)

    def _add(self, gradients: Gradients, units: Places, held: int) -> None:
        """Measure, clip and add the gradients of some units; what they are filled up with has no share."""
        self.is_of_parameters = self.is_of_parameters or bool(gradients)
        with torch.no_grad(), full_precision(self.device):
            nothing = torch.zeros(held, dtype=torch.float64, device=self.device)
            columns = [gradients[n].squared_norms() if n in gradients else nothing for n in self.mechanism.shapes]
            squares = torch.stack(columns).mT
            factors = self.mechanism.factors(squares)
            if held > len(units):
                factors = factors.clone()
                factors[len(units) :] = 0.0
            squares = squares[: len(units)]
            if self.mechanism.numerics == "strict":
                self._add_on_grid(gradients, factors)
            elif self.meeting is not None:
                self.meeting.add(partial(self._taken, gradients, factors))
            else:
                self.sums.take(gradients, list(self.mechanism.shapes), factors, self.several)
                for name, count in self.mechanism.counts(squares).items():
                    self.sums.add(name, count)
            self.squared_norms[torch.from_numpy(units)] = squares.cpu()

    def _taken(self, gradients: Gradients, factors: Tensor, name: str) -> Tensor | None:
        """One parameter's sum, whose activations are then free again."""
        column = list(self.mechanism.shapes).index(name)
        found = gradients.pop(name, None)
        return None if found is None else found.weighted_sum(factors[:, column].contiguous(), self.several)

    def _add_on_grid(self, gradients: Gradients, factors: Tensor) -> None:
        """The contribution of a single unit, in whole steps."""
        clipped = {}
        for column, (name, shape) in enumerate(self.mechanism.shapes.items()):
            factor = factors[0, column]
            if name in gradients and factor > 0:
                clipped[name] = gradients[name].materialise(0, 1)[0].double() * factor
            else:
                clipped[name] = torch.zeros(shape, dtype=torch.float64, device=self.device)
        for name, value in self.mechanism.on_grid(clipped).items():
            self.sums.add(name, value)

    def refuse_if_all_failed(self) -> None:
        """A fault of one record is its secret and stays silent. That every one of many fails is the program's error.

        The refusal goes to the data holder alone and is no release; one record more or less does not decide it unless
        all others are faulty too.
        """
        if len(self.faults) == len(self.squared_norms) >= _MANY:
            error = self.faults[0]
            said = (str(error).splitlines() or [""])[0]
            raise LossesError(f"the losses fail on every record: {type(error).__name__}: {said}") from error


def _no_class(records: int) -> list[Exception]:
    return [IndexError("the target is no class")] * records


# The rows of a sample as units of privacy that can be computed together


def as_groups(batch: Batch | Sequence[RecordGroup] | None) -> list[RecordGroup]:
    """A batch is one group; nobody is none."""
    if batch is None:
        return []
    if isinstance(batch, list | tuple) and all(isinstance(group, RecordGroup) for group in batch):
        return list(batch)
    return [RecordGroup(batch, np.arange(count_records(batch)))]


def parts_of(groups: Sequence[RecordGroup], sizes: Sequence[int] | None, views: int | None) -> Iterator[Part]:
    """Units of as many rows of one shape; one whose rows have several shapes is a part of its own."""
    if sizes is None:
        for group in groups:
            batch = group.batch
            if views is not None:
                batch = map_tensors(lambda tensor: tensor.flatten(0, 1), batch)
            yield Part((batch,), group.places, group.places.repeat(views or 1), views or 1, views or 1)
        return
    owner = np.repeat(np.arange(len(sizes)), sizes)
    count = np.bincount(owner[np.concatenate([np.arange(0), *(g.places for g in groups)])], minlength=len(sizes))
    homes: dict[int, set[int]] = {}
    for number, group in enumerate(groups):
        for unit in owner[group.places]:
            homes.setdefault(int(unit), set()).add(number)
    for number, group in enumerate(groups):
        here = {unit for unit, found in homes.items() if found == {number} and count[unit] == sizes[unit]}
        for size in sorted({sizes[unit] for unit in here}):
            units = np.array([unit for unit in sorted(here) if sizes[unit] == size])
            index = np.concatenate([np.flatnonzero(owner[group.places] == unit) for unit in units])
            yield Part((take_records(group.batch, torch.from_numpy(index)),), units, group.places[index], size)
    for unit in sorted(unit for unit, found in homes.items() if len(found) > 1 and count[unit] == sizes[unit]):
        pieces = [(group, np.flatnonzero(owner[group.places] == unit)) for group in groups]
        pieces = [(group, index) for group, index in pieces if len(index)]
        batches = tuple(take_records(group.batch, torch.from_numpy(index)) for group, index in pieces)
        rows = np.concatenate([group.places[index] for group, index in pieces])
        yield Part(batches, np.array([unit]), rows, len(rows))


def even_share(units: int, most: int) -> int:
    """How many at a time, if no more than ``most`` may be."""
    return -(-units // -(-units // most)) if most and units else most


def one_by_one(batch: Batch) -> list[Batch]:
    """Each row as a batch of one, in memory of its own."""
    return [copy_records(batch, slice(row, row + 1)) for row in range(count_records(batch))]


def rows_of(places: Places, each: int) -> Places:
    """The rows of units that have ``each`` of them."""
    if each == 1:
        return places
    return (places[:, None] * each + np.arange(each)).reshape(-1)
