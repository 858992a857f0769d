"""Data sets of which one record is in several rows: oversampled ones, and items that are made of other rows too.

A row is what is drawn and clipped. A record that is in several of them (indices with repeats, a partner for mixup,
windows that overlap) moves the sum by several clip norms. Not all of that can be seen; what the usual tools do is
refused before anything is charged:

- ``Subset`` and ``ConcatDataset`` that lead to one row twice, and lists that hold one object twice;
- an item that reads, beside its own row, others of a column (a tensor, an array, a list or a data set) which has as
  many rows as the data set, or somewhat more; and items that go over a shorter column several times. A few items are
  asked for, and their reads noted.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import suppress
from operator import floordiv, mod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset

from tacit.errors import InputError
from tacit.isolation.libraries import is_library

_SO = "one record would move the sum by several clip norms"
_ASKED = 4  # items that are asked for
_MORE = 1.5  # times as many rows as the data set a column of it may have
_SHORT, _OFTEN = 16, 64  # rows of a shorter one, and how often it may be gone over


def refuse_repeats(rows: Any) -> None:
    """Refuse a data set that is seen to hold a record twice.

    Example:
        >>> try:
        ...     refuse_repeats(Subset([1.0, 2.0], [0, 1, 1]))
        ... except InputError as error:
        ...     print(str(error)[:49])
        rows 1 and 2 of the data set are the same record:
    """
    if type(rows) not in _CONTAINERS:
        return
    first: dict[Any, int] = {}
    for row, record in enumerate(_records(rows)):
        if record is not None and first.setdefault(record, row) != row:
            raise InputError(
                f"rows {first[record]} and {row} of the data set are the same record: {_SO}; leave repeats out and "
                "weigh the loss instead, or pass user_ids, equal for equal records, with unit=tacit.Users()"
            )


_CONTAINERS = (Subset, ConcatDataset, list)


def _records(rows: Any) -> Iterator[Any]:
    """What stands for the record of each row; None where nothing is known."""
    if type(rows) is Subset:
        behind = [*_records(rows.dataset)] if type(rows.dataset) in _CONTAINERS[:2] else None
        yield from ((id(rows.dataset), int(one)) if behind is None else behind[one] for one in rows.indices)
    elif type(rows) is ConcatDataset:
        for part in rows.datasets:
            yield from _records(part)
    elif type(rows) is list:
        yield from (id(item) if _holds_numbers(item) else None for item in rows)
    else:
        yield from ((id(rows), index) for index in range(len(rows)))


def _holds_numbers(item: Any) -> bool:
    """Whether it was made for one record: equal constants of Python are one object."""
    parts = item.values() if isinstance(item, dict) else item if isinstance(item, tuple | list) else (item,)
    return any(isinstance(part, Tensor | np.ndarray) for part in parts)


def refuse_other_rows(rows: Any, seed: Callable[[int], None]) -> None:
    """Refuse a data set whose items read other rows beside their own, or go over its rows several times.

    Args:
        seed: called with a row before it is asked for, so that an item that draws a partner can do so.
    """
    if not isinstance(rows, Dataset) and is_library(type(rows)):
        return
    count, name, spied = len(rows), type(rows).__name__, None
    with suppress(Exception):  # it does not bear being copied
        spied = _Spied(rows, [])
    if spied is None or count <= 2 * _ASKED:
        return
    for row in np.linspace(count // 2, count - 1, _ASKED).astype(int).tolist():
        seed(row)
        with suppress(Exception):  # it does not bear being looked at, or the record is at fault: others say so
            spied.copy[row]
    for reads in spied.noted:
        if reads.beside:
            raise InputError(
                f"an item of the data set {name} reads other rows of {reads.name} beside its own (mixup, pairs, "
                f"windows): {_SO}; make an item of one row, and mix or pair within the record, or pass user_ids with "
                "unit=tacit.Users()"
            )
        if reads.again:
            raise InputError(
                f"the data set {name} goes over {reads.name} several times: {_SO}; take each row once, and vary it by "
                "augment= and views=, or pass user_ids with unit=tacit.Users()"
            )


class _Reads(set[int]):
    """Which rows of a column one item has read, and what all items had in common.

    Args:
        count: how many items there are.
    """

    def __init__(self, name: str, rows: int, count: int) -> None:
        super().__init__()
        self.name, self.rows, self.count = name, rows, count
        self.beside = False  # an item has read its own row and others
        self._times = count // rows if rows >= _SHORT and count % rows == 0 else 1
        self._ways: list[Callable[[int, int], int]] = [mod, floordiv] if 1 < self._times <= _OFTEN else []

    @property
    def again(self) -> bool:
        """Whether each item has read one row, as if there were that many of each."""
        return bool(self._ways)

    def note(self, key: Any) -> None:
        key = key[0] if isinstance(key, tuple) and key else key
        if isinstance(key, slice):
            self.update(range(*key.indices(self.rows)))
        elif isinstance(key, int | np.integer | np.ndarray | Tensor | list) and not isinstance(key, bool):
            places = np.asarray(key)
            places = np.flatnonzero(places) if places.dtype == bool else places
            self.update((places.reshape(-1).astype(int) % self.rows).tolist())

    def compare(self, own: int) -> None:
        if self.count <= self.rows <= _MORE * self.count:
            self.beside |= own in self and len(self) > 1
        by = {mod: self.rows, floordiv: self._times}
        self._ways = [way for way in self._ways if self == {way(own, by[way])}]


class _Spied:
    """A copy of a data set whose columns note which rows are read, also those of data sets behind it.

    Args:
        noted: grows by what was read.
        by_outer: notes the items that a data set around this one asks for.
    """

    def __init__(self, rows: Any, noted: list[_Reads], by_outer: _Reads | None = None) -> None:
        self.noted, self._by_outer, self._depth = noted, by_outer, 0
        self._kind, self._count, self.copy = type(rows), len(rows), copy.copy(rows)
        self._columns: list[_Reads] = []
        vars(self.copy).update({name: self._column(name, value) for name, value in vars(rows).items()})
        noted += self._columns
        self.copy.__class__ = type(self._kind.__name__, (self._kind,), {"__getitem__": lambda _, row: self._item(row)})

    def _column(self, name: str, value: Any) -> Any:
        kind = next((kind for kind in (*_NOTING, Dataset) if isinstance(value, kind)), None)
        if kind is None or (kind in (Tensor, np.ndarray) and not value.ndim):
            return value
        reads = _Reads(f"{self._kind.__name__}.{name}", len(value), self._count)
        self._columns.append(reads)
        return _Spied(value, self.noted, reads).copy if kind is Dataset else _NOTING[kind](value, reads)

    def _item(self, row: Any) -> Any:
        """An item; one that asks for another item of its own data set reads that row too."""
        if self._by_outer is not None:
            self._by_outer.note(row)
        if self._depth == 0:
            for reads in self._columns:
                reads.clear()
        self._depth += 1
        try:
            return self._kind.__getitem__(self.copy, row)
        finally:
            self._depth -= 1
            for reads in self._columns if self._depth == 0 else ():
                reads.compare(int(row) % self._count)


class _NotingList(list[Any]):
    def __init__(self, values: list[Any], reads: _Reads) -> None:
        super().__init__(values)
        self._reads = reads

    def __getitem__(self, key: Any) -> Any:
        self._reads.note(key)
        return super().__getitem__(key)


class _NotingArray(np.ndarray):
    _reads: _Reads | None = None

    def __getitem__(self, key: Any) -> Any:
        if self._reads is not None:
            self._reads.note(key)
        found = super().__getitem__(key)
        return found.view(np.ndarray) if isinstance(found, _NotingArray) else found


class _NotingTensor(Tensor):
    _reads: _Reads

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__getitem__ and isinstance(args[0], cls):
            args[0]._reads.note(args[1])
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def _noting_array(values: Any, reads: _Reads) -> Any:
    found = values.view(_NotingArray)
    found._reads = reads
    return found


def _noting_tensor(values: Tensor, reads: _Reads) -> Any:
    found = values.as_subclass(_NotingTensor)
    found._reads = reads
    return found


_NOTING: dict[type, Callable[[Any, _Reads], Any]] = {
    Tensor: _noting_tensor,
    np.ndarray: _noting_array,
    list: _NotingList,
}
