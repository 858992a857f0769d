"""From declared columns to features: every record by itself, so that it costs no privacy.

A number goes to [-1, 1] by its bounds, clamped; bins and levels become features of 0 or 1; a bias is added. All records
are divided by one public number, so that a linear model stays linear in the columns; what exceeds norm 1 then is
bounded by a weight on its loss (``likelihoods.Weighed``). With ``scaling = "norm"`` each record is scaled to norm 1
instead. What is missing or unknown has its place:

- a number that is missing, text or NaN: the middle, 0, and in no bin; an infinite one: the nearer bound
- a level that was not declared: no level's feature is set
- a target that is missing, or a class that was not declared: the record is left out
- with ``may_be_missing``, a missing value sets a feature of its own

None of it is an error, because an error that one record's value causes would reveal it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InputError
from tacit.tables.columns import Category, Flag, Ignored, Number, source_of
from tacit.tables.dates import date_parts, day_numbers
from tacit.tables.files import MISSING, Cells, Table, number_text, to_number, to_numbers, to_text
from tacit.tables.schema import Schema
from tacit.tables.weights import Weights, record_weights

Inputs = NDArray[np.float32]
Feature = Number | Category | Flag
_ROWS = 1 << 15  # that are encoded at once


@dataclass(frozen=True, slots=True)
class Encoded:
    """Records ready for a model, and for each the row of the table that it was. Private.

    ``targets`` are class numbers, or numbers on [-1, 1] by the declared bounds; ``weights``, if records count
    differently, shares of the largest weight there can be.
    """

    inputs: Inputs
    targets: NDArray[np.float32] | NDArray[np.int64]
    users: NDArray[np.object_] | None
    rows: NDArray[np.int64]
    weights: Weights | None = None

    def at(self, kept: NDArray[np.bool_]) -> "Encoded":
        """Some of the records."""
        users = None if self.users is None else self.users[kept]
        weights = None if self.weights is None else self.weights[kept]
        return Encoded(self.inputs[kept], self.targets[kept], users, self.rows[kept], weights)


def feature_names(schema: Schema, target: str) -> list[str]:
    """One name for each feature, the bias first.

    Example:
        >>> schema = Schema((Number("age", 0, 120, bins=(18, 65)), Category("job", ("cook", "clerk")), Flag("well")))
        >>> feature_names(schema, "well")
        ['(bias)', 'age', 'age < 18', 'age < 65', 'age >= 65', 'job = cook', 'job = clerk']
    """
    return ["(bias)", *(name for column in schema.features(target) for name in _names(column))]


def as_declared(table: Table, schema: Schema) -> Table:
    """The table with declared codes for "missing" taken out and decimal commas read, each cell by itself.

    Example:
        >>> schema = Schema((Number("age", 0, 120, missing=(-9,), decimal=","),))
        >>> as_declared(Table({"age": np.array(["39,5", "-9", "1.000"], dtype=object)}), schema).columns["age"]
        array([  39.5,    nan, 1000. ])
    """
    return Table(table.columns | dict(_declared_cells(table, schema)))


def _declared_cells(table: Table, schema: Schema) -> Iterator[tuple[str, NDArray[Any]]]:
    for column in schema.columns:
        cells = table.columns.get(source_of(column))
        if cells is None or isinstance(column, Ignored):
            continue
        if isinstance(column, Category) and column.part:
            yield column.name, date_parts(_without(cells, column), column.written, column.part)
        elif isinstance(column, Number) and column.date:
            yield column.name, cells if cells.dtype.kind == "f" else day_numbers(_without(cells, column), column.date)
        elif isinstance(column, Number) and column.decimal == "," and cells.dtype.kind != "f":
            commas = [cell.replace(".", "").replace(",", ".") if isinstance(cell, str) else cell for cell in cells]
            yield column.name, _without(np.array([to_number(cell) for cell in commas]), column)
        elif column.missing:
            yield column.name, _without(cells, column)


def _without(cells: NDArray[Any], column: Feature) -> NDArray[Any]:
    """The cells with NaN, or no text, in place of codes for missing."""
    if not column.missing:
        return cells
    if cells.dtype.kind == "f":
        codes = [to_number(str(code)) for code in column.missing]
        return np.where(np.isin(cells, codes), np.nan, cells)
    said = {str(code) for code in column.missing} | {number_text(to_number(str(code))) for code in column.missing}
    return np.array(["" if cell in said or number_text(to_number(cell)) in said - {""} else cell for cell in cells],
                    dtype=object)  # fmt: skip


def encode_inputs(table: Table, schema: Schema, target: str) -> Inputs:
    """Features [rows, features], of norm about 1 for every row, or exactly 1 if the schema asks for it."""
    table = as_declared(table, schema)
    columns = schema.features(target)
    for column in columns:
        check_readable(table, column)
    inputs = np.empty((len(table), len(feature_names(schema, target))), np.float32)
    for start in range(0, len(table), _ROWS):
        rows = slice(start, start + _ROWS)
        some = Table({name: cells[rows] for name, cells in table.columns.items()})
        parts = [np.ones((len(some), 1)), *(_encode(some, column) for column in columns)]
        inputs[rows] = _bounded(np.concatenate(parts, axis=1), schema, target)
    return inputs


def _bounded(rows: NDArray[np.float64], schema: Schema, target: str) -> NDArray[np.float64]:
    """The bias keeps norms above 0."""
    rows /= np.linalg.norm(rows, axis=1, keepdims=True) if schema.scaling == "norm" else reach(schema, target)
    return rows


def reach(schema: Schema, target: str) -> float:
    """The root mean square of a record's norm, were numbers spread evenly over their bounds: a public number.

    Example:
        >>> round(reach(Schema((Number("age", 0, 120), Category("job", ("cook", "clerk")), Flag("well"))), "well"), 8)
        1.52752523
    """
    return math.sqrt(1 + sum(_mean_square(column) for column in schema.features(target)))


def _mean_square(column: Feature) -> float:
    match column:
        case Number(low=low, bins=bins, weight=weight):
            return weight**2 * ((low is not None) / 3 + bool(bins))
        case _:
            return column.weight**2


def encode(table: Table, schema: Schema, target: str, *, public: bool = False) -> Encoded:
    """Features, targets and owners of the records that have a target and, where they matter, an owner and a weight.

    Public records need no owner, as nobody has to be protected there, and no column of weights.
    """
    table = as_declared(table, schema)
    targets, known = _targets(table, schema, target)
    users = None
    if schema.unit != "record" and not public:
        users = to_text(table.column(schema.unit))
        known = known & (users != "")  # a row of nobody cannot be protected as somebody's
    if schema.sample_weight is not None and not public:
        table.column(schema.sample_weight)
    weights = record_weights(table, schema, target, targets)
    if weights is not None:
        known = known & (weights > 0)
        if not (weights > 0).any():
            raise InputError("all weights are zero; look at sample_weight")
    rows = np.flatnonzero(known)
    if not len(rows):
        what = "classes" if schema.classes(target) else "numbers"
        raise InputError(f"no value of the target {target!r} is one of the declared {what}; look at the schema")
    kept = table if known.all() else Table({name: cells[rows] for name, cells in table.columns.items()})
    inputs = encode_inputs(kept, schema, target)
    weights = None if weights is None else weights[rows]
    return Encoded(inputs, targets[rows], None if users is None else users[rows], rows, weights)


def target_scale(schema: Schema, target: str) -> tuple[float, float]:
    """(middle, half range) of a number to predict: value = middle + half range * encoded."""
    column = schema.column(target)
    if not isinstance(column, Number) or column.low is None or column.high is None:
        raise InputError(f"target {target!r} has no declared bounds")
    return (column.low + column.high) / 2, (column.high - column.low) / 2


def unreadable_cells(table: Table, schema: Schema, target: str) -> dict[str, int]:
    """How many cells of each number column are neither numbers nor missing, as 12,5 is not. Private like the table.

    Example:
        >>> schema = Schema((Number("age", 0, 120), Flag("well")), records=3)
        >>> unreadable_cells(Table({"age": np.array(["39,5", "", "40"], dtype=object)}), schema, "well")
        {'age': 1}
    """
    table, found = as_declared(table, schema), {}
    for column in (*schema.features(target), schema.column(target)):
        cells = table.columns.get(column.name)
        if isinstance(column, Number) and cells is not None and cells.dtype.kind != "f":
            odd = cells[np.isnan(to_numbers(cells))]
            found[column.name] = sum(cell.lower() not in MISSING for cell in odd.tolist())
    return {name: count for name, count in found.items() if count}


def _targets(
    table: Table, schema: Schema, target: str
) -> tuple[NDArray[np.float32] | NDArray[np.int64], NDArray[np.bool_]]:
    cells = table.column(target)
    match schema.column(target):
        case Category(levels=levels):
            found = places_among(to_text(cells).tolist(), levels)
            return found, found >= 0
        case Flag() as flag:
            sides = sides_of(flag, to_text(cells).tolist())
            return (sides > 0).astype(np.int64), sides != 0
        case _:
            middle, half = target_scale(schema, target)
            values = to_numbers(cells)
            known = ~np.isnan(values)
            scaled = np.clip((values - middle) / half, -1, 1)
            return np.nan_to_num(scaled).astype(np.float32), known


def check_readable(table: Table, column: Feature) -> None:
    """A fault of type: a number column none of whose cells is a number. Single faulty cells are no fault."""
    cells = table.column(column.name)
    if isinstance(column, Number) and cells.dtype.kind != "f" and np.isnan(to_numbers(cells)).all():
        said = any(cell.lower() not in MISSING for cell in cells.tolist())
        if said:
            raise InputError(
                f"column {column.name!r} is declared a number, but none of its cells is one; "
                "declare it a category, or write numbers as 1234.5"
            )


def _encode(table: Table, column: Feature) -> NDArray[np.float64]:
    cells = table.column(column.name)
    match column:
        case Number():
            return _encode_number(to_numbers(cells), column)
        case Category(levels=levels):
            text = to_text(cells).tolist()
            place = places_among(text, levels)
            missing = _are_missing(text) & (place < 0)
            return _with_missing([place[:, None] == np.arange(len(levels))], missing, column)
        case Flag():
            text = to_text(cells).tolist()
            missing = _are_missing(text)
            return _with_missing([sides_of(column, text)[:, None]], missing, column)


def _encode_number(values: NDArray[np.float64], column: Number) -> NDArray[np.float64]:
    missing = np.isnan(values)
    parts = []
    if column.low is not None and column.high is not None:
        inside = np.clip(np.nan_to_num(values, posinf=np.inf, neginf=-np.inf), column.low, column.high)
        share = (inside - column.low) / (column.high - column.low)
        match column.transform:
            case "sqrt":
                share = np.sqrt(share)
            case "log":
                share = np.log1p(inside - column.low) / np.log1p(column.high - column.low)
        parts.append(np.where(missing, 0.0, 2 * share - 1)[:, None])
    if column.bins:
        place = np.where(missing, -1, np.digitize(values, column.bins))
        parts.append(place[:, None] == np.arange(len(column.bins) + 1))
    return _with_missing(parts, missing, column)


def _with_missing(parts: list[NDArray[np.generic]], missing: NDArray[np.bool_], column: Feature) -> NDArray[np.float64]:
    parts = [*parts, missing[:, None]] if column.may_be_missing else parts
    return column.weight * np.concatenate([part.astype(np.float64) for part in parts], axis=1)


def level_places(cells: Cells, column: Category | Flag) -> NDArray[np.int64]:
    """The number of each cell's level, for a flag 0 (no) or 1 (yes); -1 for what was not declared.

    Example:
        >>> level_places(np.array(["yes", "No", "?"], dtype=object), Flag("smoker")).tolist()
        [1, 0, -1]
    """
    text = to_text(cells).tolist()
    if isinstance(column, Category):
        return places_among(text, column.levels)
    sides = sides_of(column, text)
    return np.where(sides == 0, -1, sides > 0).astype(np.int64)


def missing_cells(cells: Cells, column: Category | Flag) -> NDArray[np.bool_]:
    """Whether a cell says that its value is missing, and is no declared level."""
    return _are_missing(to_text(cells).tolist()) & (level_places(cells, column) < 0)


def places_among(text: list[str], levels: tuple[str, ...]) -> NDArray[np.int64]:
    """The number of each cell's level, -1 for an undeclared one; 1.0 is the level 1."""
    place = {level: number for number, level in enumerate(levels)}

    def find(cell: str) -> int:
        return place.get(cell, place.get(number_text(to_number(cell)), -1))

    known = {cell: find(cell) for cell in set(text)}
    return np.array([known[cell] for cell in text], dtype=np.int64)


def _are_missing(text: list[str]) -> NDArray[np.bool_]:
    known = {cell: cell.lower() in MISSING for cell in set(text)}
    return np.array([known[cell] for cell in text], dtype=np.bool_)


def sides_of(flag: Flag, text: list[str]) -> NDArray[np.float64]:
    """1 for yes, -1 for no, 0 for neither."""
    side = {word.lower(): 1.0 for word in flag.yes} | {word.lower(): -1.0 for word in flag.no}
    return np.array([side.get(cell.lower(), 0.0) for cell in text])


def _names(column: Feature) -> list[str]:
    names: list[str] = []
    match column:
        case Number(name=name, low=low, bins=bins):
            names += [name] if low is not None else []
            names += [f"{name} < {number_text(edge)}" for edge in bins]
            names += [f"{name} >= {number_text(bins[-1])}"] if bins else []
        case Category(name=name, levels=levels):
            names += [f"{name} = {level}" for level in levels]
        case Flag(name=name):
            names.append(name)
    return [*names, f"{column.name} is missing"] if column.may_be_missing else names
