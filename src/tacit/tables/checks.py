"""What is odd about a table, for the eyes of whoever holds it: every line follows its records and none is charged.

Nothing here is a release. Each finding says what was found, how often, and which line of a schema would deal with it.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.tables.columns import Category, Column, Flag, Ignored, Number, source_of
from tacit.tables.encoding import as_declared, places_among, sides_of
from tacit.tables.files import MISSING, Cells, Table, number_text, shown, to_number, to_numbers, to_text
from tacit.tables.schema import Schema
from tacit.tables.text_files import odd_bytes, separator_of, text_bytes

_CODES = (-1, -7, -8, -9, -99, -999, -9999, 9, 99, 999, 9999, 99999)  # that often stand for a missing value
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([ T].*)?|\d{1,2}[./]\d{1,2}[./]\d{2,4}")
_COMMA = re.compile(r"[-+]?(\d+|\d{1,3}(\.\d{3})+),\d+")
_FEW = 20  # records of a class from which a model can learn little
_ABOUT = 0.1  # how far the declared number of records may be off
_NEARLY_ALL = 0.9  # distinct values of a column that names records


@dataclass(frozen=True, slots=True)
class OddThing:
    """One finding. Private like the table.

    Args:
        column: which, or "" for the whole file.
        count: how many cells, rows or levels.
        schema_line: what to write in the schema, if that helps.
    """

    column: str
    what: str
    count: int = 1
    schema_line: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def check_file(path: Path) -> Iterator[OddThing]:
    """How a text file is written."""
    if path.suffix.lower() not in (".csv", ".tsv"):
        return
    data = text_bytes(path)
    mark = separator_of(path, data)
    usual = "\t" if path.suffix.lower() == ".tsv" else ","
    if mark != usual:
        yield OddThing("", f"cells are separated by {mark!r}; read as such")
    if odd := odd_bytes(data):
        yield OddThing("", "bytes are no UTF-8 and are read as Latin-1, one by one; save the file as UTF-8", odd)


def check_table(table: Table, schema: Schema, target: str | None = None) -> Iterator[OddThing]:
    """What a schema does not say about a table, or says otherwise."""
    declared = {source_of(column) for column in schema.columns} | {schema.unit}
    if others := [name for name in table.names if name not in declared]:
        yield OddThing("", f"columns are in the table but not in the schema: {shown(others)}", len(others))
    yield from _size(table, schema)
    given = as_declared(table, schema)
    for column in schema.columns:
        source = source_of(column)
        if source not in table.columns:
            yield OddThing(source, "the schema declares it, but the table has no such column")
        else:
            yield from _column(column, given.columns[column.name], table.columns[source])
    yield from _repeated(table, schema)
    if target is not None and target in table.columns:
        yield from _rare(given, schema, target)


def shared_rows(table: Table, other: Table) -> int:
    """How many rows of another table are in this one too, in the columns that both have."""
    names = [name for name in table.names if name in other.columns]
    ours = set(_rows(table, names))
    return sum(row in ours for row in _rows(other, names)) if names else 0


def _size(table: Table, schema: Schema) -> Iterator[OddThing]:
    if schema.unit == "record" or schema.unit not in table.columns:
        said, found, what = schema.records, len(table), "records"
    else:
        said, found, what = schema.users, len(set(to_text(table.columns[schema.unit]).tolist()) - {""}), "users"
    if said is not None and abs(said / max(found, 1) - 1) > _ABOUT:
        yield OddThing("", f"the schema declares {said:,} {what}, the table has {found:,}", found, f"{what} = {found}")


def _column(column: Column, cells: Cells, raw: Cells) -> Iterator[OddThing]:
    text = to_text(cells)
    said = [cell for cell in text.tolist() if cell.lower() not in MISSING]
    if isinstance(column, Ignored):
        return
    if len(set(said)) <= 1:
        yield OddThing(column.name, "holds the same value, or none, in all rows", len(text), 'kind = "ignore"')
    if len(said) < len(text) and not column.may_be_missing:
        yield OddThing(column.name, "cells are missing", len(text) - len(said), "may_be_missing = true")
    match column:
        case Number():
            yield from _number(column, cells, to_text(raw).tolist())
        case Category(levels=levels) if levels:
            places = places_among(text.tolist(), levels)
            odd = [cell for cell, place in zip(text.tolist(), places, strict=True) if place < 0]
            yield from _undeclared(column.name, odd, levels)
        case Flag():
            sides = sides_of(column, text.tolist())
            odd = [cell for cell, side in zip(text.tolist(), sides, strict=True) if side == 0]
            yield from _undeclared(column.name, odd, ())


def _number(column: Number, cells: Cells, raw: list[str]) -> Iterator[OddThing]:
    values = to_numbers(cells)
    odd = [cell for cell, value in zip(to_text(cells).tolist(), values, strict=True)
           if np.isnan(value) and cell.lower() not in MISSING]  # fmt: skip
    commas, dates = [c for c in odd if _COMMA.fullmatch(c)], [c for c in odd if _DATE.fullmatch(c)]
    if commas:
        yield OddThing(column.name, f"cells have decimal commas, such as {commas[0]!r}", len(commas), 'decimal = ","')
    if dates:
        yield OddThing(column.name, f"cells are dates, such as {dates[0]!r}; declare their range", len(dates),
                       'kind = "date"')  # fmt: skip
    rest = [cell for cell in odd if cell not in {*commas, *dates}]
    if rest:
        yield OddThing(column.name, f"cells cannot be read as numbers, such as {rest[0]!r}", len(rest))
    yield from _outside(column, values)


def _outside(column: Number, values: Cells) -> Iterator[OddThing]:
    finite = values[np.isfinite(values)]
    if column.low is None or column.high is None:
        codes = [code for code in _CODES if len(finite) and code in (finite.min(), finite.max())]
        out = finite[np.isin(finite, codes)]
    else:
        out = finite[(finite < column.low) | (finite > column.high)]
        codes = [code for code in _CODES if (out == code).any()]
    is_code = np.isin(out, codes)
    if codes:
        listed = ", ".join(number_text(float(code)) for code in codes)
        yield OddThing(column.name, f"cells hold {listed}: a code for missing?", int(is_code.sum()),
                       f"missing = [{listed}]")  # fmt: skip
    if (~is_code).any():
        low, high = (number_text(float(f"{value:.6g}")) for value in (out[~is_code].min(), out[~is_code].max()))
        yield OddThing(column.name, f"cells are out of bounds, from {low} to {high}; they count as the nearer bound",
                       int((~is_code).sum()))  # fmt: skip


def _undeclared(name: str, odd: list[str], levels: tuple[str, ...]) -> Iterator[OddThing]:
    found = Counter(cell for cell in odd if cell.lower() not in MISSING)
    if not found:
        return
    codes = [cell for cell in found if to_number(cell) in _CODES]
    if codes:
        yield OddThing(name, f"cells hold {shown(codes)}: a code for missing?", sum(found[code] for code in codes),
                       f"missing = [{', '.join(codes)}]")  # fmt: skip
    known = {level.strip().lower() for level in levels}
    spelt = [cell for cell in found if cell.strip().lower() in known]
    if spelt:
        yield OddThing(name, f"cells differ from a level by letter case only: {shown(spelt)}",
                       sum(found[cell] for cell in spelt))  # fmt: skip
    others = [cell for cell, _ in found.most_common() if cell not in {*codes, *spelt}]
    if others:
        line = f"levels = [{', '.join(repr(level) for level in (*levels, *others[:8]))}]" if levels else ""
        yield OddThing(name, f"cells hold what is not declared: {shown(others)}", sum(found[c] for c in others),
                       line.replace("'", '"'))  # fmt: skip


def _repeated(table: Table, schema: Schema) -> Iterator[OddThing]:
    rows = Counter(_rows(table, table.names))
    if again := sum(count - 1 for count in rows.values()):
        yield OddThing("", "rows are copies of another row", again)
    used = {column.name for column in schema.columns if not isinstance(column, Ignored | Category)}
    for name in table.names:
        cells = [cell for cell in to_text(table.columns[name]).tolist() if cell]
        distinct = len(set(cells))
        named = name.lower() == "id" or name.lower().endswith(("_id", "-id", " id"))
        unique = name not in used and len(cells) > _FEW and distinct > _NEARLY_ALL * len(cells)
        if name != schema.unit and distinct < len(cells) and (named or unique):
            yield OddThing(name, "ids stand in several rows: is a person the unit of privacy?", len(cells) - distinct,
                           f'unit = "{name}"')  # fmt: skip


def _rare(table: Table, schema: Schema, target: str) -> Iterator[OddThing]:
    classes = schema.classes(target)
    if classes is None:
        return
    text = to_text(table.columns[target]).tolist()
    match schema.column(target):
        case Flag() as flag:
            places = [{-1.0: 0, 1.0: 1}.get(side, -1) for side in sides_of(flag, text)]
        case _:
            places = list(places_among(text, classes))
    counts = Counter(places)
    for number, name in enumerate(classes):
        if counts[number] < _FEW:
            yield OddThing(target, f"class {name!r} is rare: a private model can hardly learn it", counts[number])


def _rows(table: Table, names: list[str]) -> Iterator[tuple[str, ...]]:
    return zip(*(to_text(table.columns[name]).tolist() for name in names), strict=True)
