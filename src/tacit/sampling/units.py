"""Whose presence is protected: a record, a microbatch of records, or a user with all their rows (paper G, table 1).

A unit of privacy says how many units a policy may draw from, and which rows each *clipped vector* is the mean of.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from tacit.errors import InputError, check_count
from tacit.ledger import Unit

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DrawnRows:
    """The rows of a sample. ``sizes`` gives the rows of each clipped mean, in order; None: every row by itself.

    ``units`` are the units that were drawn, where each is one clipped mean; ``total`` counts those of all ranks.
    """

    rows: Indices
    sizes: Indices | None = None
    units: Indices | None = None
    total: int = 0


class UnitOfPrivacy(Protocol):
    @property
    def unit(self) -> Unit: ...

    @property
    def multiplicity(self) -> int:
        """How many clipped vectors adding or removing one unit can change."""

    def count(self, rows: int, users: Indices | None) -> int:
        """The number of units that a data set of so many rows holds (private)."""

    def rows_of(self, drawn: Indices, rows: int, users: Indices | None) -> DrawnRows:
        """The rows of the drawn units, grouped by clipped vector."""


@dataclass(frozen=True, slots=True)
class Records:
    """One row is one unit: the default."""

    unit: ClassVar[Unit] = "record"
    multiplicity: ClassVar[int] = 1

    def count(self, rows: int, users: Indices | None) -> int:
        if users is not None:
            raise InputError("user_ids were given but the unit is the record; pass unit=Users() to protect users")
        return rows

    def rows_of(self, drawn: Indices, rows: int, users: Indices | None) -> DrawnRows:
        return DrawnRows(drawn)


RECORDS = Records()


@dataclass(frozen=True, slots=True)
class Microbatches:
    """Records are assigned by their id to microbatches of ``size``, whose mean gradient is clipped as one.

    ``protect="microbatch"``: whole microbatches are drawn and protected, sensitivity C. ``protect="record"``: records
    are drawn and protected; one of them can change its microbatch's clipped mean to any other, sensitivity 2 C.
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

    def count(self, rows: int, users: Indices | None) -> int:
        return rows if self.protect == "record" else -(-rows // self.size)

    def rows_of(self, drawn: Indices, rows: int, users: Indices | None) -> DrawnRows:
        if self.protect == "microbatch":
            every = np.arange(rows)
            drawn = every[np.isin(every // self.size, drawn)]
        _, sizes = np.unique(drawn // self.size, return_counts=True)
        return DrawnRows(drawn, sizes)


@dataclass(frozen=True, slots=True)
class Users:
    """All rows of one user are one unit: users are drawn, the mean gradient of a user's rows is clipped once."""

    unit: ClassVar[Unit] = "user"
    multiplicity: ClassVar[int] = 1

    def count(self, rows: int, users: Indices | None) -> int:
        return len(np.unique(_checked(users, rows)))

    def rows_of(self, drawn: Indices, rows: int, users: Indices | None) -> DrawnRows:
        _, owner = np.unique(_checked(users, rows), return_inverse=True)
        order = np.argsort(owner, kind="stable")
        chosen = order[np.isin(owner[order], drawn)]
        _, sizes = np.unique(owner[chosen], return_counts=True)
        return DrawnRows(chosen, sizes)


def _checked(users: Indices | None, rows: int) -> Indices:
    if users is None or len(users) != rows:
        found = "none" if users is None else str(len(users))
        raise InputError(f"unit=Users() needs user_ids with one id per row ({rows}), found {found}")
    return users
