"""What a row says in declared columns: a clamped number, or one of finitely many cells. Each row by itself."""

import math
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from tacit.errors import InputError
from tacit.queries.release import Places
from tacit.tables import Category, Flag, Number, Schema, Table
from tacit.tables.encoding import places_among, sides_of
from tacit.tables.files import number_text, to_numbers, to_text
from tacit.types import Floats

MOST_CELLS = 10_000
_EQUAL_BINS = 10


@dataclass(frozen=True, slots=True)
class Values:
    """A column as numbers within declared bounds; a flag is 1 for yes and 0 for no.

    Example:
        >>> age = Values(Number("age", 0, 100))
        >>> age.of(Table({"age": np.array(["30", "130", "?"], dtype=object)}))
        array([ 30., 100.,  nan])
    """

    column: Number | Flag

    @classmethod
    def declared(cls, schema: Schema, name: str) -> "Values":
        column = schema.column(name)
        match column:
            case Flag():
                return cls(column)
            case Number(low=None):
                raise InputError(f"column {name!r}: {column.missing_part.replace(' or its bins', '')} must be declared")
            case Number():
                return cls(column)
            case _:
                raise InputError(f"column {name!r} is a {column.kind}; only numbers and flags have sums and quantiles")

    @property
    def bounds(self) -> tuple[float, float]:
        match self.column:
            case Number(low=float() | int() as low, high=float() | int() as high):
                return float(low), float(high)
            case _:
                return 0.0, 1.0

    def of(self, table: Table) -> Floats:
        """Clamped; NaN where it is missing or no number."""
        cells = table.column(self.column.name)
        if isinstance(self.column, Flag):
            sides = sides_of(self.column, to_text(cells).tolist())
            return np.where(sides == 0, np.nan, (sides + 1) / 2)
        return np.asarray(np.clip(to_numbers(cells), *self.bounds))

    def scaled(self, table: Table) -> Floats:
        """The same on [-1, 1] by the bounds."""
        low, high = self.bounds
        return np.asarray(np.clip((self.of(table) - (low + high) / 2) / ((high - low) / 2), -1.0, 1.0))


@dataclass(frozen=True, slots=True)
class Cells:
    """Combinations of the levels, sides or bins of several columns; a row lies in one of them, or in none.

    Example:
        >>> cells = Cells((Category("job", ("cook", "clerk")), Number("age", bins=(30.0,))))
        >>> cells.labels
        ['job=cook, age<30', 'job=cook, age>=30', 'job=clerk, age<30', 'job=clerk, age>=30']
    """

    columns: tuple[Category | Flag | Number, ...] = ()
    equal_bins: int = _EQUAL_BINS

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @classmethod
    def declared(cls, schema: Schema, names: tuple[str, ...], equal_bins: int = _EQUAL_BINS) -> "Cells":
        if len(set(names)) < len(names):
            raise InputError(f"a column is named twice in {', '.join(names)}")
        columns = []
        for name in names:
            column = schema.column(name)
            if not isinstance(column, Category | Flag | Number):
                raise InputError(f"column {name!r} is ignored by the schema; declare it to ask about it")
            if not column.is_declared:
                raise InputError(f"column {name!r}: {column.missing_part} must be declared in the schema")
            columns.append(column)
        found = cls(tuple(columns), equal_bins)
        if found.count > MOST_CELLS:
            raise InputError(f"{', '.join(names)} make {found.count:,} cells, at most {MOST_CELLS:,} can be asked for")
        return found

    @property
    def count(self) -> int:
        return math.prod(len(self._labels(column)) for column in self.columns)

    @property
    def labels(self) -> list[str]:
        return [", ".join(parts) for parts in product(*(self._labels(column) for column in self.columns))]

    def places(self, table: Table) -> Places:
        """The number of each row's cell; -1 if a level is unknown or a number missing."""
        place, known = np.zeros(len(table), dtype=np.int64), np.ones(len(table), dtype=bool)
        for column in self.columns:
            found = self._places(column, table)
            known &= found >= 0
            place = place * len(self._labels(column)) + found
        return np.where(known, place, -1)

    def _labels(self, column: Category | Flag | Number) -> list[str]:
        match column:
            case Category(name=name, levels=levels):
                return [f"{name}={level}" for level in levels]
            case Flag(name=name):
                return [f"{name}={column.no[0]}", f"{name}={column.yes[0]}"]
            case Number(name=name):
                edges = [number_text(float(f"{edge:.10g}")) for edge in self._edges(column)]
                between = [f"{low}<={name}<{high}" for low, high in pairwise(edges)]
                return [f"{name}<{edges[0]}", *between, f"{name}>={edges[-1]}"]

    def _edges(self, column: Number) -> list[float]:
        """Between bins: as declared, or of equal bins within the bounds."""
        if column.bins:
            return list(column.bins)
        low, high = Values(column).bounds
        return [low + (high - low) * i / self.equal_bins for i in range(1, self.equal_bins)]

    def _places(self, column: Category | Flag | Number, table: Table) -> Places:
        cells = table.column(column.name)
        match column:
            case Category(levels=levels):
                return places_among(to_text(cells).tolist(), levels)
            case Flag():
                sides = sides_of(column, to_text(cells).tolist())
                return np.where(sides == 0, -1, (sides > 0).astype(np.int64))
            case Number():
                values = to_numbers(cells)
                return np.where(np.isnan(values), -1, np.digitize(values, self._edges(column))).astype(np.int64)
