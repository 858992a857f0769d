"""From drawn row numbers to tensors: any map-style data set, or tensors indexed directly."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset, default_collate

from tacit.errors import InputError, check_count
from tacit.gradients import count_records, take_records
from tacit.gradients.batches import copy_records, map_tensors, stack_views
from tacit.losses import Batch
from tacit.mechanisms import GaussianSumMechanism
from tacit.sampling.units import DrawnRows, Indices

Collate = Callable[[list[Any]], Batch]
Augment = Callable[[Batch], Batch]


@dataclass(slots=True, eq=False)
class Sample:
    """The records of one step, for :meth:`PrivateGradient.backward`. Private: look at ``data`` at your own risk.

    A sample is released once; ``data`` is None when no record was drawn, and even then noise is released.
    """

    data: Batch | None
    sizes: list[int] | None
    views: int | None
    step: int
    mechanism: GaussianSumMechanism
    units: Indices | None = None
    total: int = 0  # of the units that all ranks together drew
    released: bool = False

    def blocks(self, size: int) -> Iterator["Sample"]:
        """The sample in parts of at most ``size`` units, for ranks that share it."""
        if self.data is None or self.units is None:
            return
        sizes = self.sizes or [1] * len(self.units)
        ends = [0, *accumulate(sizes)]
        for start in range(0, len(self.units), size):
            last = min(start + size, len(self.units))
            data = copy_records(self.data, slice(ends[start], ends[last]))
            yield replace(self, data=data, sizes=None if self.sizes is None else sizes[start:last])

    def __repr__(self) -> str:
        return f"Sample(step={self.step})"  # the number of records is private


@dataclass(frozen=True, slots=True)
class DataSource:
    """A data set and how its rows become batches.

    Args:
        rows: tensors (a tensor, or a tuple, list or mapping of them), a TensorDataset, or any map-style data set.
        collate: how items become a batch; tensors are indexed directly and need none.
        workers: loading processes, for map-style data sets.
        device: where batches are moved.
        augment, views: each record is augmented ``views`` times, and the gradients of its views are averaged before
            the clip. ``augment`` must treat records independently.
        user_ids: the owner of each row, for unit=Users().
    """

    rows: Any
    collate: Collate | None = None
    workers: int = 0
    device: torch.device | str | None = None
    augment: Augment | None = None
    views: int | None = None
    user_ids: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        if (self.augment is None) != (self.views is None):
            raise InputError("augment and views belong together: give both or neither")
        if self.views is not None:
            check_count("views", self.views)
        if not isinstance(self.workers, int) or isinstance(self.workers, bool) or self.workers < 0:
            raise InputError(f"workers must be a whole number of at least 0, found {self.workers!r}")
        if not (hasattr(self.rows, "__len__") and hasattr(self.rows, "__getitem__")):
            raise InputError(f"rows must be tensors or a map-style data set, found {type(self.rows).__name__}")
        if len(self) == 0:
            raise InputError("the data set has no rows: it is empty, there is nothing to learn from")
        if self.user_ids is not None and np.shape(self.user_ids)[:1] != (len(self),):
            raise InputError(f"user_ids needs one owner for each of the rows, found {np.shape(self.user_ids)}")

    def __len__(self) -> int:
        tensors = _tensors(self.rows)
        return count_records(tensors) if tensors is not None else len(self.rows)

    @property
    def users(self) -> Indices | None:
        return None if self.user_ids is None else np.unique(np.asarray(self.user_ids), return_inverse=True)[1]

    def schema(self) -> Batch:
        """A batch of one record whose shapes and dtypes are public; its values are not to be used."""
        tensors = _tensors(self.rows)
        if tensors is not None:
            return self._prepare(take_records(tensors, slice(0, 1)))
        return self._prepare((self.collate or default_collate)([self.rows[0]]))

    def all(self) -> Batch:
        """Every row, for data that is small enough to be held at once."""
        tensors = _tensors(self.rows)
        rows = tensors if tensors is not None else (self.collate or default_collate)([*self.rows])
        batch = self._prepare(rows)
        assert batch is not None  # an empty data set was refused
        return batch

    def batches(self, draws: Iterator[DrawnRows]) -> Iterator[tuple[Batch | None, DrawnRows]]:
        """The data of each draw, in order; None where nothing was drawn."""
        tensors = _tensors(self.rows)
        if tensors is not None:
            for drawn in draws:
                data = take_records(tensors, torch.from_numpy(drawn.rows)) if len(drawn.rows) else None
                yield self._prepare(data), drawn
            return
        pending: list[DrawnRows] = []
        loader = DataLoader(
            self.rows,
            batch_sampler=_RowNumbers(draws, pending),
            collate_fn=partial(_collate_some, self.collate or default_collate),
            num_workers=self.workers,
        )
        for data in loader:
            yield self._prepare(data), pending.pop(0)

    def _prepare(self, data: Batch | None) -> Batch | None:
        if data is None:
            return None
        if self.device is not None:
            data = map_tensors(lambda tensor: tensor.to(self.device), data)
        if self.augment is not None and self.views is not None:
            data = stack_views([self.augment(data) for _ in range(self.views)])
        return data


class _RowNumbers:
    """Hands drawn row numbers to the loader, which may run ahead, and remembers which draws are on their way."""

    def __init__(self, draws: Iterator[DrawnRows], pending: list[DrawnRows]) -> None:
        self._draws = draws
        self._pending = pending

    def __iter__(self) -> Iterator[list[int]]:
        for drawn in self._draws:
            self._pending.append(drawn)
            yield drawn.rows.tolist()


def _collate_some(collate: Collate, items: list[Any]) -> Batch | None:
    return collate(items) if items else None


def _tensors(rows: Any) -> Batch | None:
    match rows:
        case TensorDataset():
            return rows.tensors
        case Tensor():
            return rows
        case tuple() | list() if rows and all(isinstance(part, Tensor) for part in rows):
            return tuple(rows)
        case dict() if rows and all(isinstance(part, Tensor) for part in rows.values()):
            return rows
        case _:
            return None
