"""Drafts of schemas: names and types of a table, or also bounds and levels, from a public one or marked as not."""

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.tables.columns import Category, Column, Flag, Ignored, Number, Transform
from tacit.tables.files import MISSING, Cells, Table, to_numbers, to_text
from tacit.tables.schema import Schema

_LOOKED_AT = 1000  # rows from which the type of a text column is guessed
_MOSTLY = 0.95
_MOST_LEVELS = 100  # a column with more is taken for a name or an identifier
_CLASSES = 10  # a target of so many whole numbers is a class


def draft_schema(table: Table, dataset: str = "unnamed") -> Schema:
    """Names and types only; the rest is for a person to declare. Types are guessed, so look at them.

    Example:
        >>> cells = {"age": np.array([39.0, 50.0]), "job": np.array(["clerk", "cook"], dtype=object)}
        >>> [column.kind for column in draft_schema(Table(cells)).columns]
        ['number', 'category']
    """
    return Schema(tuple(_typed(name, cells) for name, cells in table.columns.items()), dataset)


def schema_from_values(table: Table, dataset: str, source: str, *, private: bool, target: str | None = None) -> Schema:
    """Bounds, levels and types from the values of a table. If it is the private one, the schema says so for ever."""
    columns = tuple(_filled(name, cells, name == target) for name, cells in table.columns.items())
    return Schema(
        columns,
        dataset,
        records=len(table) if private else None,
        target=target,
        derived_from_private_data=private,
        source=source,
    )


def public_schema(public: Table, private_names: list[str], path: str | Path, target: str | None) -> Schema:
    """Bounds and levels from a public sample, for the columns that the private table has too."""
    shared = Table({name: cells for name, cells in public.columns.items() if name in private_names})
    return schema_from_values(shared, "unnamed", f"public sample {Path(path).name}", private=False, target=target)


def _typed(name: str, cells: Cells) -> Column:
    match _kind(cells[:_LOOKED_AT]):
        case "number":
            return Number(name)
        case "flag":
            return Flag(name)
        case _:
            return Category(name)


def _kind(cells: Cells) -> str:
    if cells.dtype.kind == "f":
        return "number"
    said = [cell for cell in cells.tolist() if cell.lower() not in MISSING]
    flag = Flag("any")
    words = {text for text in (*flag.yes, *flag.no) if text not in ("0", "1")}
    if said and np.mean([cell.lower() in words for cell in said]) >= _MOSTLY:
        return "flag"
    numbers = np.isfinite(to_numbers(np.array(said, dtype=object))) if said else np.zeros(0)
    return "number" if len(said) and numbers.mean() >= _MOSTLY else "category"


def _filled(name: str, cells: Cells, is_target: bool) -> Column:
    typed = _typed(name, cells)
    if isinstance(typed, Flag):
        return typed.in_words_of(to_text(cells).tolist())
    if isinstance(typed, Number):
        values = to_numbers(cells)
        values = values[np.isfinite(values)]
        distinct = np.unique(values)
        if is_target and len(distinct) <= _CLASSES and (distinct == distinct.round()).all():
            return Category(name, tuple(to_text(distinct).tolist()))
        return _bounded(name, values)
    levels = sorted({cell for cell in to_text(cells).tolist() if cell.lower() not in MISSING})
    return Category(name, tuple(levels)) if 1 < len(levels) <= _MOST_LEVELS else Ignored(name)


def _bounded(name: str, values: NDArray[np.float64]) -> Column:
    if not len(values) or values.min() == values.max():
        return Ignored(name)  # the same for everybody, so it says nothing
    low, high = _outward(float(values.min()), float(values.max()))
    middle = (float(np.median(values)) - low) / (high - low)
    transform: Transform = "linear"
    if low >= 0 and middle < 0.35:  # amounts that are mostly small
        transform = "log" if middle < 0.05 and high - low > 20 else "sqrt"
    return Number(name, low, high, transform)


def _outward(low: float, high: float) -> tuple[float, float]:
    """Rounded to a tenth of the range's order of magnitude, outward; an amount that may be 0 starts there."""
    grain = 10.0 ** (math.floor(math.log10(high - low)) - 1)
    rounded = math.floor(low / grain) * grain, math.ceil(high / grain) * grain
    start = 0.0 if 0 <= low < 0.2 * high else rounded[0]
    return float(f"{start:.10g}"), float(f"{rounded[1]:.10g}")
