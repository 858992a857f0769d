"""Whose presence is protected: a record, a microbatch of records, or a user with all their rows.

McMahan et al. 2018, table 1.

A unit of privacy says how many units a policy may draw from, and which rows each *clipped vector* is the mean of.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from tacit.errors import InputError, check_count
from tacit.ledger import Neighbours, Unit
from tacit.types import Indices


@dataclass(frozen=True, slots=True)
class DrawnRows:
    """The rows of a sample. ``sizes`` gives the rows of each clipped mean, in order; None: every row by itself.

    ``units`` are the units that were drawn, where each is one clipped mean.
    """

    rows: Indices
    sizes: Indices | None = None
    units: Indices | None = None


class UnitOfPrivacy(Protocol):
    @property
    def unit(self) -> Unit: ...

    @property
    def multiplicity(self) -> int:
        """How many clipped vectors adding or removing one unit can change."""

    def count(self, rows: int, ids: Indices | None) -> int:
        """The number of units that a data set of so many rows holds (private). ``ids``: the declared ones of the rows.

        What a unit cannot do without, and what it has no use for, is refused.
        """

    def rows_of(self, drawn: Indices, rows: int, ids: Indices | None) -> DrawnRows:
        """The rows of the drawn units, grouped by clipped vector."""


@dataclass(frozen=True, slots=True)
class Records:
    """One row is one unit: the default."""

    unit: ClassVar[Unit] = "record"
    multiplicity: ClassVar[int] = 1

    def count(self, rows: int, ids: Indices | None) -> int:
        if ids is not None:
            raise InputError("ids were given but the unit is the record; pass unit=Users() or unit=Microbatches(...)")
        return rows

    def rows_of(self, drawn: Indices, rows: int, ids: Indices | None) -> DrawnRows:
        return DrawnRows(drawn)


RECORDS = Records()


@dataclass(frozen=True, slots=True)
class Microbatches:
    """Records are assigned by their id to microbatches of ``size``, whose mean gradient is clipped as one.

    A record's microbatch is its id // size: the declared ``record_ids`` of the data, else its row number.

    ``protect="microbatch"``: whole microbatches are drawn and protected, sensitivity C. ``protect="record"``: records
    are drawn and protected; one of them can change its microbatch's clipped mean to any other, sensitivity 2 C. Where a
    neighbour has a record more or less, that needs declared ids: after the first of all rows is dropped, every row has
    another number, hence other companions, and all microbatches change.
    """

    size: int
    protect: Literal["microbatch", "record"] = "microbatch"

    def __post_init__(self) -> None:
        check_count("microbatch size", self.size)
        if self.protect not in ("microbatch", "record"):
            raise InputError(f"protect must be 'microbatch' or 'record', found {self.protect!r}")

    @property
    def unit(self) -> Unit:
        return self.protect

    @property
    def multiplicity(self) -> int:
        return 2 if self.protect == "record" and self.size > 1 else 1

    def count(self, rows: int, ids: Indices | None) -> int:
        return rows if self.protect == "record" else len(np.unique(self._microbatches(rows, ids)))

    def rows_of(self, drawn: Indices, rows: int, ids: Indices | None) -> DrawnRows:
        _, owner = np.unique(self._microbatches(rows, ids), return_inverse=True)
        return _by_owner(owner, np.isin(owner if self.protect == "microbatch" else np.arange(rows), drawn))

    def _microbatches(self, rows: int, ids: Indices | None) -> Indices:
        return (np.arange(rows) if ids is None else ids) // self.size


@dataclass(frozen=True, slots=True)
class Users:
    """All rows of one user are one unit: users are drawn, the mean gradient of a user's rows is clipped once."""

    unit: ClassVar[Unit] = "user"
    multiplicity: ClassVar[int] = 1

    def count(self, rows: int, ids: Indices | None) -> int:
        return len(np.unique(_checked(ids, rows)))

    def rows_of(self, drawn: Indices, rows: int, ids: Indices | None) -> DrawnRows:
        _, owner = np.unique(_checked(ids, rows), return_inverse=True)
        return _by_owner(owner, np.isin(owner, drawn))


def check_ids(unit: UnitOfPrivacy, neighbours: Neighbours, ids: Indices | None) -> None:
    """Refuse row numbers in place of ids where one record less would give all others new ones."""
    if unit.multiplicity > 1 and neighbours == "add_remove" and ids is None:
        raise InputError(
            "records inside microbatches need declared record_ids (whole numbers) where neighbours have one record "
            "more or less: by row number, dropping one row moves all later rows to other microbatches"
        )


def _by_owner(owner: Indices, drawn: npt.NDArray[np.bool_]) -> DrawnRows:
    """The drawn rows, those of one owner after each other."""
    order = np.argsort(owner, kind="stable")
    chosen = order[drawn[order]]
    _, sizes = np.unique(owner[chosen], return_counts=True)
    return DrawnRows(chosen, sizes)


def _checked(ids: Indices | None, rows: int) -> Indices:
    if ids is None or len(ids) != rows:
        found = "none" if ids is None else str(len(ids))
        raise InputError(f"unit=Users() needs user_ids with one id per row ({rows}), found {found}")
    return ids
