"""Samples: what is drawn for one step, released once, by the engine and in the process that drew it."""

import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from weakref import WeakValueDictionary

import numpy as np

from tacit.errors import InputError
from tacit.isolation import RecordGroup
from tacit.mechanisms import GaussianSumMechanism
from tacit.randomness import RecordChance
from tacit.training.reading.portions import Portions, Some, block_bounds, merged
from tacit.types import Batch, Indices


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
