"""One record at a time: from a row and its secret seed to a batch of one; then records of one shape together.

``__getitem__``, transforms and ``collate_fn`` see a single record and the chance that is its own, so that they cannot
pad, scale or mix it by what the other records are. What a row gives must follow from the row and its seed alone:

- enforced: one record at a time, chance of torch, numpy and random seeded for each record from the run's secret key;
- checked at every step: nothing that can be reached from the data set or the collate_fn changes
  (:mod:`tacit.isolation.guard`), and one record of each portion that is read, chosen at random, is the same when it is
  asked for again, last;
- checked before the run: three rows are the same in both orders, each time from a fresh start;
- assumed: no state elsewhere (module globals, files that change) lets one row change another.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

from tacit.errors import InputError
from tacit.isolation.guard import StateGuard
from tacit.losses import RecordGroup, count_records, join, map_tensors, signature, tensors_of
from tacit.randomness import global_chance, seed_everything
from tacit.training.reading.other_rows import refuse_other_rows
from tacit.types import Batch

Collate = Callable[[list[Any]], Batch]
Asked = list[tuple[int, int]]  # (row, seed)
AHEAD = 2  # portions that each worker loads before they are wanted
_MANY = 8  # records that all fail: then it is the program's error


@dataclass(frozen=True, slots=True)
class Found:
    """Records in groups of one shape, how many were asked for and are missing, and why the first of those is."""

    groups: list[RecordGroup]
    asked: int
    missing: int = 0
    said: str = ""
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Items:
    """The rows of a map-style data set, each as a batch of one."""

    rows: Any
    collate: Collate | None = None

    def fetch(self, asked: Asked) -> Found:
        """Some records, in groups of one shape; the global generators are as before."""
        with global_chance():
            return self._fetch(asked)

    def fetches(self, asked: Iterator[Asked], workers: int) -> Iterator[Found]:
        """One portion after the other, by worker processes, which run ahead."""
        loader = DataLoader(
            _InWorkers(self),
            batch_sampler=_Asked(asked),
            collate_fn=_as_it_is,
            num_workers=workers,
            prefetch_factor=AHEAD,
            generator=torch.Generator(),  # the user's own is left alone
        )
        for found in loader:
            if isinstance(found, InputError):
                raise found
            yield found

    def try_out(self) -> None:
        """Three rows in both orders, each time as if they were the first: all must give the same."""
        last = len(self.rows) - 1
        asked = [(row, row + 1) for row in sorted({0, last // 2, last})]
        with global_chance():
            with StateGuard(
                on_demand="data", **self._owners
            ):  # loaded from a first row it would differ in another order
                once = [self._one_or_none(row, seed) for row, seed in asked]
            again = [self._one_or_none(row, seed) for row, seed in reversed(asked)][::-1]
        for one, other in zip(once, again, strict=True):
            if not isinstance(one, Exception):
                self._check_same(one, other)

    def refuse_other_rows(self) -> None:
        """Refuse items that are made of other rows too; see :mod:`tacit.training.reading.other_rows`."""
        with global_chance(), StateGuard(on_demand="data", **self._owners):
            refuse_other_rows(self.rows, lambda row: seed_everything(row + 1))

    def _fetch(self, asked: Asked) -> Found:
        if not asked:
            return Found([], 0)
        with StateGuard(on_demand="handles", **self._owners):
            found = [self._one_or_none(row, seed) for row, seed in asked]
            chosen = asked[0][1] % len(asked)
            again = self._one_or_none(*asked[chosen])
        if not isinstance(found[chosen], Exception):
            self._check_same(found[chosen], again)
        errors = [one for one in found if isinstance(one, Exception)]
        if not errors:
            return Found(grouped(found), len(asked))
        said = f"{type(errors[0]).__name__}: {(str(errors[0]).splitlines() or [''])[0]}"
        return Found(grouped(found), len(asked), len(errors), said, errors[0])

    def _one_or_none(self, row: int, seed: int) -> Batch | Exception:
        """A record, or why it could not be made: then it contributes nothing, and the others count."""
        try:
            return self._one(row, seed)
        except InputError:
            raise
        except Exception as error:
            return error

    def _one(self, row: int, seed: int) -> Batch:
        seed_everything(seed)
        batch = (self.collate or default_collate)([self.rows[row]])
        try:
            rows = count_records(batch)
        except InputError as error:
            raise InputError(f"{self._maker} must make tensors with one row of one item: {error}") from error
        if rows != 1:
            raise InputError(f"{self._maker} must make one row of one item, found {rows}; it gets each record alone")
        return batch if self.collate is None else map_tensors(torch.clone, batch)  # it may hand out one buffer for all

    def _check_same(self, one: Batch, other: Batch) -> None:
        if not same_records(one, other):
            raise InputError(
                f"the data set {type(self.rows).__name__} gave another record when the same row was asked for again "
                "with the same seed; a row must not depend on what was asked before, nor on chance other than that of "
                "torch, numpy and random"
            )

    @property
    def _maker(self) -> str:
        return "the data set's item" if self.collate is None else "collate_fn"

    @property
    def _owners(self) -> dict[str, Any]:
        return {type(self.rows).__name__: self.rows, "collate_fn": self.collate}


def refuse_if_none(found: Sequence[Found]) -> None:
    """A record that cannot be made is silent; that every one of many cannot is the program's error."""
    if not found or not found[0].missing:
        return
    asked = sum(one.asked for one in found)
    if asked >= _MANY and sum(one.missing for one in found) == asked:
        raise InputError(f"no record could be made: {found[0].said}") from found[0].error


def grouped(records: Sequence[Batch | Exception]) -> list[RecordGroup]:
    """Batches of one as groups that agree in tree, types and shapes; a group comes where its first record does."""
    places: dict[object, list[int]] = {}
    for place, record in enumerate(records):
        if isinstance(record, Exception):
            continue
        places.setdefault(signature(record), []).append(place)
    return [RecordGroup(join([records[i] for i in some]), np.array(some)) for some in places.values()]


def same_records(one: Batch, other: Batch) -> bool:
    """Whether two batches are equal; what is not a number equals itself."""
    return signature(one) == signature(other) and all(map(_equal, tensors_of(one), tensors_of(other)))


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(((one == other) | ((one != one) & (other != other))).all())


class _InWorkers(Dataset[Any]):
    """Runs in a worker process, whose generators nobody else uses."""

    def __init__(self, items: Items) -> None:
        self._items = items

    def __getitems__(self, asked: Asked) -> Found | InputError:
        try:
            return replace(self._items._fetch(asked), error=None)  # it stays here: not every error can travel
        except InputError as error:  # raised again at home, without the worker's traceback
            return error


class _Asked(Sampler[Asked]):
    """Hands rows and seeds to the loader as they are drawn."""

    def __init__(self, asked: Iterator[Asked]) -> None:
        self._asked = asked

    def __iter__(self) -> Iterator[Asked]:
        return self._asked


def _as_it_is(found: Any) -> Any:
    return found
