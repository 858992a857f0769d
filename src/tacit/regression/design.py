"""From declared columns to covariates: linear in the table's own numbers, with reference levels, each record by itself.

Inside, a number is (v - middle) / half range, within [-1, 1], and a level a corner of a regular simplex around 0: no
coordinate exceeds 1, and unknown counts as the average of the levels. Outside, coefficients are those of any regression
table: per unit of a number, and against the first level of a category. Both describe one predictor:

    x = C r,   theta'x = (C'theta)'r

with r the row (1, number, indicators of levels, products) and C a matrix of declared facts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.errors import InputError
from tacit.tables import Category, Flag, Number, Schema, Table
from tacit.tables.encoding import level_places, missing_cells
from tacit.tables.files import number_text, shown, to_numbers
from tacit.tables.weights import weighs
from tacit.types import Floats

Feature = Number | Category | Flag
INTERCEPT = "(intercept)"


@dataclass(frozen=True, slots=True)
class Block:
    """Some coordinates x = shift + slope r of a column or of a product of columns.

    Args:
        names: of r, as they are reported.
        square: the mean of |x|^2 where numbers are even over their range and levels equally frequent.
        most: the largest |x|^2.
        units: for each name, one over half the number's range, 1 for a level.
    """

    names: tuple[str, ...]
    shift: Floats
    slope: Floats
    square: float
    most: float = 1.0
    units: tuple[float, ...] = (1.0,)


@dataclass(frozen=True)
class Design:
    """The covariates of a regression, from declared columns and interactions.

    Example:
        >>> design = Design((Number("age", 20, 60), Category("job", ("cook", "clerk", "nurse"))))
        >>> design.names
        ('(intercept)', 'age', 'job = clerk', 'job = nurse')
        >>> theta = np.array([0.0, 10.0, 0.0, 0.0])  # 10 per half range of 20 years, and 0 in their middle
        >>> [round(float(value), 6) + 0.0 for value in design.reported @ theta]
        [-20.0, 0.5, 0.0, 0.0]
    """

    columns: tuple[Feature, ...]
    interactions: tuple[tuple[str, str], ...] = ()

    @cached_property
    def blocks(self) -> dict[tuple[str, ...], Block]:
        """Every column, "is missing" where it has a feature of its own, and the products."""
        found: dict[tuple[str, ...], Block] = {}
        for column in self.columns:
            found[(column.name,)] = _block(column)
            if column.may_be_missing:
                name = f"{column.name} is missing"
                found[(name,)] = Block((name,), np.zeros(1), np.ones((1, 1)), 0.25)
        for pair in self.interactions:
            found[pair] = _product(found[(pair[0],)], found[(pair[1],)])
        return found

    @cached_property
    def names(self) -> tuple[str, ...]:
        return (INTERCEPT, *(name for block in self.blocks.values() for name in block.names))

    @property
    def reach(self) -> float:
        """R: the root mean square of |x| over even numbers and equally frequent levels."""
        return float(np.sqrt(1 + sum(block.square for block in self.blocks.values())))

    @property
    def longest(self) -> float:
        """The largest |x| that the declarations allow."""
        return float(np.sqrt(1 + sum(block.most for block in self.blocks.values())))

    @cached_property
    def reported(self) -> Floats:
        """C', from coefficients of x to those of r."""
        place = {name: number for number, name in enumerate(self.names)}
        found = np.zeros((len(self.names), len(self.names)))
        found[0, 0] = 1
        start = 1
        for columns, block in self.blocks.items():
            rows = slice(start, start + len(block.shift))
            found[rows, 0] += block.shift
            found[rows, [place[name] for name in block.names]] += block.slope
            if len(columns) == 2:
                self._lower_terms(found, rows, columns, place)
            start = rows.stop
        return found.T

    def _lower_terms(self, found: Floats, rows: slice, pair: tuple[str, ...], place: dict[str, int]) -> None:
        """A product of shifted coordinates holds each of its columns alone too."""
        one, other = self.blocks[(pair[0],)], self.blocks[(pair[1],)]
        found[rows, [place[name] for name in one.names]] += np.kron(one.slope, other.shift[:, None])
        found[rows, [place[name] for name in other.names]] += np.kron(one.shift[:, None], other.slope)

    def x(self, table: Table) -> Floats:
        """Private: one row for each record, with 1 in front."""
        parts: dict[tuple[str, ...], Floats] = {}
        for column in self.columns:
            parts[(column.name,)], missing = _coordinates(column, table)
            if column.may_be_missing:
                parts[(f"{column.name} is missing",)] = missing[:, None]
        for pair in self.interactions:
            one, other = parts[(pair[0],)], parts[(pair[1],)]
            parts[pair] = (one[:, :, None] * other[:, None, :]).reshape(len(one), -1)
        return np.concatenate([np.ones((len(table), 1)), *(parts[columns] for columns in self.blocks)], axis=1)

    def level(self, name: str, text: str) -> str | None:
        """The level of a column that a text means, in the words of the table of coefficients; None if it is none."""
        column = next((one for one in self.columns if one.name == name), None)
        if column is None or _is_linear(column):
            return None
        if isinstance(column, Flag):
            place = int(level_places(np.array([text], dtype=object), column)[0])
            return None if place < 0 else levels_of(column)[place]
        return text if text in levels_of(column) else None

    @property
    def references(self) -> dict[str, str]:
        """The level that each category is compared with."""
        return {column.name: levels_of(column)[0] for column in self.columns if not _is_linear(column)}


def levels_of(column: Feature) -> tuple[str, ...]:
    """The levels of a category, a flag, or a number that is declared by bins alone; the first is the reference."""
    match column:
        case Category(levels=levels):
            return levels
        case Flag(name=name, yes=yes, no=no):
            return ("no", "yes") if column == Flag(name, may_be_missing=column.may_be_missing) else (no[0], yes[0])
        case Number(bins=bins):
            return (*(f"< {number_text(edge)}" for edge in bins), f">= {number_text(bins[-1])}")


def parse_interaction(text: str, columns: Sequence[Feature]) -> tuple[str, str]:
    """The two columns of ``a:b``."""
    known = [column.name for column in columns]
    for left in known:
        right = text.removeprefix(f"{left}:")
        if right != text and right in known and right != left:
            return left, right
    raise InputError(f"--interaction {text!r} must be two columns as in a:b; there are {shown(known)}")


def covariates(schema: Schema, outcome: str, exposure: str | None = None) -> tuple[Feature, ...]:
    """The declared columns that explain the outcome."""
    if weighs(schema):
        raise InputError(
            "tacit regress counts all records alike: leave sample_weight and class_weight out of the schema"
        )
    found = tuple(column for column in schema.features(outcome) if column.name != exposure)
    for column in found:
        if not column.is_declared:
            raise InputError(f"column {column.name!r}: {column.missing_part} must be declared in the schema")
        if not _is_linear(column) and len(levels_of(column)) < 2:
            raise InputError(f"column {column.name!r} declares one level, which explains nothing; declare it ignore")
    return found


def _is_linear(column: Feature) -> bool:
    return isinstance(column, Number) and column.low is not None


def _block(column: Feature) -> Block:
    if isinstance(column, Number) and column.low is not None and column.high is not None:
        middle, half = (column.low + column.high) / 2, (column.high - column.low) / 2
        return Block((column.name,), np.array([-middle / half]), np.array([[1 / half]]), 1 / 3, units=(1 / half,))
    levels, corners = levels_of(column), _corners(len(levels_of(column)))
    between = "" if isinstance(column, Number) else "= "
    names, share = tuple(f"{column.name} {between}{level}" for level in levels[1:]), 1 - 1 / len(levels)
    return Block(names, corners[0], (corners[1:] - corners[0]).T, share, share, (1.0,) * len(names))


def _product(one: Block, other: Block) -> Block:
    names = tuple(f"{a}:{b}" for a in one.names for b in other.names)
    units = tuple(a * b for a in one.units for b in other.units)
    shift: Floats = np.asarray(np.kron(one.shift, other.shift), dtype=np.float64)
    slope: Floats = np.asarray(np.kron(one.slope, other.slope), dtype=np.float64)
    return Block(names, shift, slope, one.square * other.square, one.most * other.most, units)


def _corners(levels: int) -> Floats:
    """The corners of a regular simplex around 0, [levels, levels - 1]: no coordinate exceeds 1."""
    centred = np.eye(levels) - 1 / levels
    values, vectors = np.linalg.eigh(centred)
    return np.asarray(vectors[:, values > 0.5])


def _coordinates(column: Feature, table: Table) -> tuple[Floats, Floats]:
    """The coordinates of each record, and whether its cell is missing."""
    cells = table.column(column.name)
    if isinstance(column, Number):
        values = to_numbers(cells)
        missing = np.isnan(values)
        if column.low is not None and column.high is not None:
            inside = np.clip(np.where(missing, 0.0, values), column.low, column.high)
            middle, half = (column.low + column.high) / 2, (column.high - column.low) / 2
            return np.where(missing, 0.0, np.clip((inside - middle) / half, -1, 1))[:, None], missing * 1.0
        place = np.where(missing, -1, np.digitize(values, column.bins))
    else:
        place, missing = level_places(cells, column), missing_cells(cells, column)
    corners = np.concatenate([_corners(len(levels_of(column))), np.zeros((1, len(levels_of(column)) - 1))])
    return corners[place], missing * 1.0
