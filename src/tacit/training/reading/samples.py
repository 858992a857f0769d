"""Samples: what is drawn for one step, released once, by the engine and in the process that drew it.

Records come in portions that fit into memory, read while they are summed, by workers ahead of it. The first portion is
read when the sample is drawn, the others by whoever goes over them, and none is kept but the only one of a small
sample. A row gives the same record whenever it is read: its chance is its own (:mod:`.items`).
"""

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise, tee
from typing import TypeVar
from weakref import WeakValueDictionary

import numpy as np
import torch

from tacit.errors import InputError
from tacit.losses import RecordGroup, join, signature, take_records
from tacit.mechanisms import GaussianSumMechanism
from tacit.randomness import RecordChance
from tacit.sampling.units import DrawnRows
from tacit.training.reading.items import Found, refuse_if_none
from tacit.types import Batch, Indices

Step = TypeVar("Step")
Read = Callable[[Indices], Found]  # by places in the sample


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Drawn:
    """What one step works on: records, the mechanism that was charged for it, and their chance. Private.

    ``units`` are the drawn ones, of several ranks this one's, and ``sizes`` the rows of each where it has several.
    """

    step: int
    portions: Iterable[list[RecordGroup]]
    sizes: list[int] | None
    views: int | None
    units: Indices
    mechanism: GaussianSumMechanism
    chance: RecordChance

    @property
    def rows(self) -> int:
        """How many rows are computed, each view one."""
        return int(self._ends[-1]) * (self.views or 1)

    def only(self, units: Indices) -> "Drawn":
        """The units at these ascending places of the sample."""
        ends = self._ends
        rows = np.concatenate([np.arange(0), *(np.arange(*ends[unit : unit + 2]) for unit in units)])
        return self._some(units, rows, Some(self.portions, rows))

    def blocks(self, width: int) -> Iterator["Drawn"]:
        """The drawn ones of every ``width`` units that there are, which do not depend on the ranks: each a portion."""
        ends = self._ends
        for (start, end), groups in zip(pairwise(block_bounds(self.units, width)), self.portions, strict=True):
            units, rows = np.arange(start, end), np.arange(ends[start], ends[end])
            here = [RecordGroup(group.batch, group.places - ends[start]) for group in groups]
            yield self._some(units, rows, [here])

    @property
    def _ends(self) -> Indices:
        return np.array([0, *accumulate(self.sizes or [1] * len(self.units))])

    def _some(self, units: Indices, rows: Indices, portions: Iterable[list[RecordGroup]]) -> "Drawn":
        sizes = None if self.sizes is None else [self.sizes[unit] for unit in units]
        chance = self.chance.take(rows)
        return replace(self, portions=portions, sizes=sizes, units=self.units[units], chance=chance)


class Sample:
    """The records of one step, for :meth:`PrivateGradient.backward`. Private: look at ``data`` at your own risk.

    A sample is released once, by the PrivateGradient and in the process that drew it. What it holds is only to be
    looked at: the release takes what was drawn, and whether it was released is known to the engine, not to the sample.
    One that is larger than the memory it may take is read while it is released: leave the data as it is until then.
    """

    __slots__ = ("_drawn", "token")

    def __init__(self, drawn: Drawn, token: tuple[str, int]) -> None:
        self._drawn = drawn
        self.token = token

    @property
    def step(self) -> int:
        return self._drawn.step

    @property
    def data(self) -> Batch | None:
        """A copy of the drawn records: None if there are none, a list of batches if they have several shapes.

        All of them at once: a sample that is too large for the memory it may take is read anew for each look.
        """
        portions = self._drawn.portions
        found = merged(portions.read_again() if isinstance(portions, Portions) else iter(portions))
        return None if not found else found[0] if len(found) == 1 else found

    @property
    def units(self) -> Indices:
        """A copy of the drawn units' numbers."""
        return self._drawn.units.copy()

    def __repr__(self) -> str:
        return f"Sample(step={self.step})"  # the number of records is private


class Outstanding:
    """The samples that one engine has given out and not yet released, in the process that made it.

    A sample holds a number of ours; what was drawn for it is kept here, so that a copy of a sample is no second one.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._name = secrets.token_hex(16)  # samples carry it, so that no other engine takes them for its own
        self._given = 0
        self._drawn: WeakValueDictionary[int, Drawn] = WeakValueDictionary()

    @property
    def is_home(self) -> bool:
        return os.getpid() == self._process

    def check_process(self) -> None:
        """After a fork two processes would release under the same charges."""
        if not self.is_home:
            raise InputError(
                "this PrivateGradient belongs to the process that made it, and this is another one (a fork); make a "
                "new one here, with a ledger of its own"
            )

    def give(self, drawn: Drawn) -> Sample:
        self._given += 1
        self._drawn[self._given] = drawn
        return Sample(drawn, (self._name, self._given))

    def take(self, sample: Sample) -> Drawn:
        """What was drawn for the sample, for the only time."""
        if not isinstance(sample, Sample):
            raise InputError(f"backward takes what private.samples(...) yields, found {type(sample).__name__}")
        engine, number = sample.token
        if engine != self._name:
            raise InputError("this sample was drawn by another PrivateGradient; release it by the one that drew it")
        drawn = self._drawn.pop(number, None)
        if drawn is None:
            raise InputError("this sample was released before; a second release would cost privacy that nobody charged")
        return drawn


class Loaded:
    """What workers load ahead, one portion after the other, each to be taken once and in order."""

    def __init__(self, found: Iterator[Found]) -> None:
        self._found = found
        self._next: float = 0

    def take(self, number: int) -> Found | None:
        """The portion of this number; None if it has gone by, or nothing is loaded any more."""
        found = None
        while self._next <= number:
            found = self._load()
        return found

    def _load(self) -> Found:
        self._next += 1
        try:
            return next(self._found)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._found, self._next = iter(()), float("inf")


def twice(steps: Iterator[Step]) -> tuple[Iterator[Step], Iterator[Step]]:
    """The steps for workers, which run ahead, and for the loop, which alone hears of an error, when it gets there."""
    ahead, here = tee(_with_error(steps))
    return (step for step in ahead if not isinstance(step, Exception)), map(_or_raise, here)


def _with_error(steps: Iterator[Step]) -> Iterator[Step | Exception]:
    try:
        yield from steps
    except Exception as error:
        yield error


def _or_raise(step: Step | Exception) -> Step:
    if isinstance(step, Exception):
        raise step
    return step


class Portions:
    """The records of one sample, as groups of one shape for each portion, by their places in the sample.

    Args:
        bounds: the rows at which portions begin, and the end; see :func:`cut`.
        read: makes some records.
        prepare: moves and augments groups whose places are those in the sample.
        loaded, first: where workers load ahead, and the number that this sample's first portion has there.
    """

    def __init__(
        self,
        bounds: Sequence[int],
        read: Read,
        prepare: Callable[[list[RecordGroup]], list[RecordGroup]],
        loaded: Loaded | None = None,
        first: int = 0,
    ) -> None:
        self.bounds = bounds
        self._read, self._prepare, self._loaded, self._number = read, prepare, loaded, first
        self._kept: tuple[list[RecordGroup], Found] | None = self._portion(0) if len(bounds) > 1 else None
        if self._kept is not None and self._is_small:
            refuse_if_none([self._kept[1]])

    @property
    def _is_small(self) -> bool:
        return len(self.bounds) <= 2

    def __iter__(self) -> Iterator[list[RecordGroup]]:
        """Once for the release: what workers have loaded is used up."""
        return self._all(self._portion)

    def read_again(self) -> Iterator[list[RecordGroup]]:
        """As often as one likes; the release still finds what was loaded for it."""
        return self._all(lambda number: self._made(number, None))

    def _all(self, portion: Callable[[int], tuple[list[RecordGroup], Found]]) -> Iterator[list[RecordGroup]]:
        found = []
        for number in range(len(self.bounds) - 1):
            groups, facts = self._kept if number == 0 and self._kept is not None else portion(number)
            if not self._is_small:
                self._kept = None  # a second look reads it again
            found.append(facts)
            yield groups
            del groups
        if found and found[0].missing:
            refuse_if_none(found)

    def _portion(self, number: int) -> tuple[list[RecordGroup], Found]:
        return self._made(number, None if self._loaded is None else self._loaded.take(self._number + number))

    def _made(self, number: int, found: Found | None) -> tuple[list[RecordGroup], Found]:
        start, end = self.bounds[number : number + 2]
        found = self._read(np.arange(start, end)) if found is None else found
        groups = [RecordGroup(group.batch, group.places + start) for group in found.groups] if start else found.groups
        return self._prepare(groups), Found([], found.asked, found.missing, found.said, found.error)


def block_bounds(units: Indices, width: int) -> list[int]:
    """Where ascending units pass from one block of ``width`` numbers to another.

    Example:
        >>> block_bounds(np.array([0, 3, 4, 11]), width=4)
        [0, 2, 3, 4]
    """
    inside = np.flatnonzero(np.diff(units // width)) + 1
    return [0, *inside.tolist(), len(units)] if len(units) else [0]


def cut(drawn: DrawnRows, most: int, width: int | None = None) -> list[int]:
    """Where to cut a sample into portions: by blocks of units, or of at most ``most`` rows where no unit has more.

    Example:
        >>> cut(DrawnRows(np.arange(10)), most=4)
        [0, 4, 8, 10]
        >>> cut(DrawnRows(np.arange(10), sizes=np.array([1, 5, 1, 1, 2])), most=4)
        [0, 1, 6, 10]
    """
    rows = len(drawn.rows)
    if rows <= most and width is None:
        return [0, rows] if rows else [0]
    ends = np.arange(1, rows + 1) if drawn.sizes is None else np.cumsum(drawn.sizes)
    if width is not None:
        units = drawn.rows if drawn.units is None else drawn.units
        return [0, *(int(ends[bound - 1]) for bound in block_bounds(units, width)[1:])]
    found = [0]
    while found[-1] < rows:
        fit = int(np.searchsorted(ends, found[-1] + most, side="right")) - 1  # the last unit that fits
        further = int(ends[max(fit, 0)])
        found.append(further if further > found[-1] else int(ends[fit + 1]))
    return found


def take_places(groups: Sequence[RecordGroup], kept: Indices) -> list[RecordGroup]:
    """Some rows of a sample, by ascending places, numbered anew and in memory of their own."""
    found = []
    for group in groups:
        mine = np.isin(group.places, kept)
        if mine.any():
            rows = torch.from_numpy(np.flatnonzero(mine))
            found.append(RecordGroup(take_records(group.batch, rows), np.searchsorted(kept, group.places[mine])))
    return found


class Some:
    """The portions of a sample with some of their rows only, numbered anew."""

    def __init__(self, portions: Iterable[list[RecordGroup]], kept: Indices) -> None:
        self._portions, self._kept = portions, kept

    def __iter__(self) -> Iterator[list[RecordGroup]]:
        return (take_places(groups, self._kept) for groups in self._portions)


def merged(portions: Iterator[list[RecordGroup]]) -> list[Batch]:
    """All records as if they had been read at once: one batch for each shape."""
    found: dict[object, list[Batch]] = {}
    for groups in portions:
        for group in groups:
            found.setdefault(signature(group.batch), []).append(group.batch)
    return [join(batches) for batches in found.values()]
