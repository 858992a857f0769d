"""From drawn row numbers to records: tensors indexed directly, or any map-style data set, one record at a time."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, TensorDataset

from tacit.errors import InputError, check_count
from tacit.isolation import map_records
from tacit.losses import RecordGroup, count_records, map_tensors, signature, stack_views, take_records
from tacit.randomness import Randomness, RecordChance
from tacit.sampling import Microbatches, Records, UnitOfPrivacy
from tacit.sampling.units import DrawnRows
from tacit.training.reading.items import Asked, Collate, Found, Items, refuse_if_none
from tacit.training.reading.other_rows import refuse_repeats
from tacit.training.reading.samples import Loaded, Portions, twice
from tacit.types import Batch, Indices

Augment = Callable[[Batch], Batch]
_TRIED = 8


@dataclass(frozen=True, slots=True)
class StepChance:
    """The chance of the records of one step: for their items, for each of their views, and inside the losses."""

    items: RecordChance | None
    views: tuple[RecordChance, ...]
    losses: RecordChance


@dataclass(frozen=True, slots=True)
class DataSource:
    """A data set and how its rows become records.

    Args:
        rows: tensors (or numpy arrays, memory-mapped ones too, or columns of pandas): one, or a tuple, list or mapping
            (a ``BatchEncoding``) of them; a table of Arrow; a TensorDataset; or any map-style data set. What a row of a
            data set gives must follow from the row alone, and from the chance of torch, numpy and random, which are
            seeded for every record from the run's secret key.
        collate: makes a batch of one item: it is called for each record alone. Records of different shapes are computed
            in groups of one shape; many shapes are slow (docs/how-to/speed.md). Tensors are indexed directly.
        workers: loading processes, for map-style data sets.
        device: where records are moved.
        augment, views: each record is augmented ``views`` times, and the gradients of its views are averaged before
            the clip. ``augment`` is called with a batch of one record, and with the record's own chance.
        user_ids: the owner of each row, for unit=Users(): numbers or texts.
        record_ids: a declared whole number for each row, for unit=Microbatches(...): those with the same id // size
            share a microbatch. It must not depend on which other records there are.
        own_rows: of several ranks each gives rows (whole users) that no other one has. By default all give the same
            data, and each works on its own part of it.
    """

    rows: Any
    collate: Collate | None = None
    workers: int = 0
    device: torch.device | str | None = None
    augment: Augment | None = None
    views: int | None = None
    user_ids: Sequence[Any] | None = None
    record_ids: Sequence[int] | None = None
    own_rows: bool = False

    def __post_init__(self) -> None:
        if (self.augment is None) != (self.views is None):
            raise InputError("augment and views belong together: give both or neither")
        if self.views is not None:
            check_count("views", self.views)
        if not isinstance(self.workers, int) or isinstance(self.workers, bool) or self.workers < 0:
            raise InputError(f"workers must be a whole number of at least 0, found {self.workers!r}")
        if isinstance(self.rows, IterableDataset):
            raise InputError(
                "rows of an IterableDataset cannot be drawn at random; give a map-style data set (Hugging Face: "
                "load_dataset without streaming=True, which stays on disk), numpy.memmap columns, or tensors"
            )
        if not (_holds_tensors(self.rows) and self.collate is not None):  # else its items are collated
            object.__setattr__(self, "rows", _as_tensors(self.rows))
        if not (hasattr(self.rows, "__len__") and hasattr(self.rows, "__getitem__")):
            raise InputError(
                f"rows must be tensors, columns or a map-style data set, found {type(self.rows).__name__}; a stream or "
                "a DataLoader cannot be drawn from at random: give the data set behind it"
            )
        if self._is_tensors and self.collate is not None:
            raise InputError("collate_fn is for the items of a data set; tensors are indexed directly, use augment")
        if len(self) == 0:
            raise InputError("the data set has no rows: it is empty, there is nothing to learn from")
        for name, ids in (("user_ids", self.user_ids), ("record_ids", self.record_ids)):
            if ids is not None and np.shape(ids) != (len(self),):
                raise InputError(f"{name} needs one id for each of the rows, found {np.shape(ids)}")

    def __len__(self) -> int:
        return count_records(self.rows) if self._is_tensors else len(self.rows)

    @property
    def users(self) -> Indices | None:
        """The owner of each row, numbered."""
        return None if self.user_ids is None else _numbered(self.user_ids)

    @property
    def declared_ids(self) -> Indices | None:
        return None if self.record_ids is None else _whole_numbers(self.record_ids)

    def chance(self, randomness: Randomness, rows: Indices) -> StepChance:
        """The chance of these rows at the next step. How much is asked for does not depend on the data."""
        items = None if self._is_tensors else randomness.record_chance(rows)
        views = tuple(randomness.record_chance(rows) for _ in range(self.views or 0))
        return StepChance(items, views, randomness.record_chance(rows))

    def try_out(self) -> None:
        """Refuse a data set whose rows depend on what was asked before; see :mod:`tacit.training.reading.items`."""
        if not self._is_tensors:
            Items(self.rows, self.collate).try_out()

    def check_rows(self, unit: UnitOfPrivacy) -> None:
        """Where rows are the units, refuse those of which several are seen to hold one record."""
        if not self._is_tensors and isinstance(unit, Records):
            refuse_repeats(self.rows)
            Items(self.rows, self.collate).refuse_other_rows()

    def schema(self) -> Batch:
        """A batch of one record whose shapes and dtypes are public; its values are not to be used."""
        said = ""
        for row in range(min(len(self), _TRIED)):  # a first record that cannot be made must not stop the run
            rows = np.array([row])
            chance = self.chance(Randomness(), rows)
            found = self._read(rows, chance, np.arange(1))
            groups = self._prepared(found.groups, chance)
            if groups:
                batch = groups[0].batch
                return batch if self.views is None else map_tensors(lambda tensor: tensor[:, 0], batch)
            said = said or found.said
        raise InputError(f"none of the first {_TRIED} records could be made: {said}")

    def all(self, randomness: Randomness) -> list[RecordGroup]:
        """Every row, for data that is small enough to be held at once."""
        rows = np.arange(len(self))
        chance = self.chance(randomness, rows)
        return self._prepared(self._fetch(rows, chance), chance)

    def records(
        self, steps: Iterator[tuple[DrawnRows, StepChance]], bounds: Callable[[DrawnRows], list[int]]
    ) -> Iterator[tuple[Portions, DrawnRows, StepChance]]:
        """The records of each step, in order, in portions with these bounds. Workers load ahead of the steps."""
        loaded, number = None, 0
        if self.workers and not self._is_tensors:
            ahead, steps = twice(steps)
            loaded = Loaded(Items(self.rows, self.collate).fetches(self._asked_for(ahead, bounds), self.workers))
        try:
            for drawn, chance in steps:
                read, prepare = partial(self._read, drawn.rows, chance), partial(self._prepared, chance=chance)
                portions = Portions(bounds(drawn), read, prepare, loaded, number)
                number += len(portions.bounds) - 1
                yield portions, drawn, chance
        finally:
            if loaded is not None:
                loaded.close()

    def _asked_for(
        self, steps: Iterator[tuple[DrawnRows, StepChance]], bounds: Callable[[DrawnRows], list[int]]
    ) -> Iterator[Asked]:
        for drawn, chance in steps:
            asked = _asked(drawn.rows, chance)
            yield from (asked[start:end] for start, end in pairwise(bounds(drawn)))

    @property
    def _is_tensors(self) -> bool:
        return isinstance(self.rows, Tensor | tuple | dict)

    def _read(self, rows: Indices, chance: StepChance, places: Indices) -> Found:
        """The records at some places of a sample, which say their places among these."""
        if self._is_tensors:
            group = RecordGroup(take_records(self.rows, torch.from_numpy(rows[places])), np.arange(len(places)))
            return Found([group], len(places))
        return Items(self.rows, self.collate).fetch(_asked(rows, chance, places))

    def _fetch(self, rows: Indices, chance: StepChance) -> list[RecordGroup]:
        found = self._read(rows, chance, np.arange(len(rows)))
        refuse_if_none([found])
        return found.groups

    def _prepared(self, groups: list[RecordGroup], chance: StepChance) -> list[RecordGroup]:
        if self.device is None and self.augment is None:
            return groups
        return [RecordGroup(self._prepare(group, chance), group.places) for group in groups]

    def _prepare(self, group: RecordGroup, chance: StepChance) -> Batch:
        batch = group.batch
        if self.device is not None:
            batch = map_tensors(lambda tensor: tensor.to(self.device), batch)
        if self.augment is None:
            return batch
        views = [map_records(self.augment, batch, one.take(group.places)) for one in chance.views]
        if len({signature(view) for view in views}) > 1:
            raise InputError("augment must give a record's views one shape and type, found several")
        return stack_views(views)


def ids_for(unit: UnitOfPrivacy, source: DataSource) -> Indices | None:
    """The ids by which the unit groups rows; those of another unit are refused."""
    if isinstance(unit, Microbatches):
        if source.user_ids is not None:
            raise InputError("user_ids were given but the unit is the microbatch; pass unit=Users() to protect users")
        return source.declared_ids
    if source.record_ids is not None:
        raise InputError("record_ids were given, which say who shares a microbatch; pass unit=Microbatches(...)")
    return source.users


def _asked(rows: Indices, chance: StepChance, places: Indices | slice = slice(None)) -> Asked:
    assert chance.items is not None  # items of a data set have a chance
    return list(zip(rows[places].tolist(), chance.items.seeds[places].tolist(), strict=True))


def _as_tensors(rows: Any) -> Any:
    """Tensors, a tuple or a dict of them, where the rows are columns of numbers in any form; else a data set."""
    if _holds_tensors(rows):
        rows = rows.tensors
    if _is_column(rows):
        return _tensor(rows)
    if hasattr(rows, "to_pydict") and hasattr(rows, "column_names"):  # a table of Arrow: its columns
        rows = {name: rows[name] for name in rows.column_names}
    if isinstance(rows, Mapping):
        return {name: _tensor(part, name) for name, part in rows.items()}
    if not isinstance(rows, tuple | list) or not rows or not all(map(_is_column, rows)):
        return list(rows) if isinstance(rows, tuple) and not any(map(_is_column, rows)) else rows
    if isinstance(rows, list) and not all(isinstance(part, Tensor) for part in rows):
        raise InputError("a list of arrays may mean columns or records; give columns as a tuple, records as a data set")
    return tuple(_tensor(part, number) for number, part in enumerate(rows))


def _holds_tensors(rows: Any) -> bool:
    """A TensorDataset whose items are the rows of its tensors; those of a class of the user's own may not be."""
    return isinstance(rows, TensorDataset) and type(rows).__getitem__ is TensorDataset.__getitem__


def _is_column(part: Any) -> bool:
    return isinstance(part, Tensor | np.ndarray) or hasattr(part, "to_numpy")


def _tensor(part: Any, name: object = None) -> Tensor:
    where = "rows" if name is None else f"column {name!r} of the rows"
    if isinstance(part, Tensor):
        if part.layout != torch.strided or part.is_nested:
            raise InputError(f"{where} must be dense tensors, found {'nested' if part.is_nested else 'sparse'} ones; "
                             "use to_dense(), or give records as a data set")  # fmt: skip
        return part
    array = part.to_numpy() if hasattr(part, "to_numpy") else part
    if isinstance(part, list) and part and isinstance(part[0], list | int | float):  # of a tokenizer
        array = _array(part, where)
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufc":
        kind = array.dtype if isinstance(array, np.ndarray) else type(part).__name__
        raise InputError(f"{where} must hold numbers, found {kind}; turn texts and dates into numbers beforehand")
    if isinstance(array, np.memmap):  # stays in its file: records are copies of its rows, and nothing writes into it
        with warnings.catch_warnings(action="ignore"):  # that PyTorch has no read-only tensors
            return torch.from_numpy(array)
    array = np.ascontiguousarray(array)
    return torch.from_numpy(array) if array.flags.writeable else torch.tensor(array)


def _array(rows: list[Any], where: str) -> Any:
    try:
        return np.asarray(rows)
    except ValueError as error:
        raise InputError(
            f"{where} holds lists of different lengths; pad them, or give records as a data set"
        ) from error


def _numbered(ids: Sequence[Any]) -> Indices:
    """Equal ids get equal numbers."""
    array = np.asarray(ids)
    kinds = {type(one) for one in ids} if array.dtype.kind in "UO" else set()
    if len(kinds) > 1 or (array.dtype.kind == "f" and np.isnan(array).any()) or kinds == {type(None)}:
        raise InputError("user_ids must all be numbers or all be texts, and none may be missing")
    return np.unique(array, return_inverse=True)[1]


def _whole_numbers(ids: Sequence[int]) -> Indices:
    array = np.asarray(ids)
    if array.dtype.kind not in "iu" or (array.dtype.kind == "u" and (array > np.iinfo(np.int64).max).any()):
        raise InputError(f"record_ids must be whole numbers that fit 64 bits, found {array.dtype}")
    return array.astype(np.int64)
