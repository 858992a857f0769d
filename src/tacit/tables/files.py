"""Tables in files: CSV, Parquet and npz become named columns of text or numbers; what is no table is refused in a line.

A refusal names the file and, where it helps, the line. It goes to the person who holds the data and is no release; it
comes before anything is charged. A faulty *value* is never a reason to refuse: ``encoding`` says what becomes of it.
"""

import csv
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, time
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InputError
from tacit.tables.text_files import open_text, separator_of, text_bytes

Cells = NDArray[Any]  # float64 with NaN where missing, or text with "" where missing
MOST_COLUMNS = 4096  # more are a picture or a mistake, and no epsilon is enough for a model of each
MISSING = frozenset(("", "?", "na", "n/a", "nan", "null", "none"))
_ROWS = 8192  # that are read at once


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of equal length by name. Private, like the file it came from."""

    columns: dict[str, Cells]

    def __post_init__(self) -> None:
        if len({len(cells) for cells in self.columns.values()}) > 1:
            sizes = ", ".join(f"{name} {len(cells)}" for name, cells in list(self.columns.items())[:5])
            raise InputError(f"the columns of a table must be equally long, found {sizes}")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    @property
    def names(self) -> list[str]:
        return list(self.columns)

    def column(self, name: str) -> Cells:
        if name not in self.columns:
            raise InputError(f"the table has no column {name!r}; it has {shown(self.names)}")
        return self.columns[name]


def read_table(path: str | Path, numbers: Collection[str] = ()) -> Table:
    """Read a table by the ending of its name: .csv, .tsv, .parquet, .npz or .xlsx.

    Args:
        numbers: columns of a text file to read as numbers where all their cells are numbers or missing, which takes a
            tenth of the memory of text. Spelling is lost: 007 becomes 7.

    Raises:
        InputError: the file is missing, empty, damaged, ragged, or not a table; in one line.
    """
    path = Path(path)
    readers = _readers(numbers)
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path} should end in {', '.join(readers)}, which says how to read it")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file")
    if not path.exists():
        raise InputError(f"there is no file {path}")
    try:
        table = reader(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    if not len(table):
        raise InputError(f"{path} has names but no rows; there is nothing to learn from")
    return table


def _read_csv(path: Path, numbers: Collection[str]) -> Table:
    data = text_bytes(path)
    mark, text = separator_of(path, data), open_text(data)
    rows = csv.reader(text, delimiter=mark, skipinitialspace=True, strict=True)
    try:
        names = [name.strip() for name in next(rows, [])]
        _check_names(names, path)
        parts: list[list[Cells]] = [[] for _ in names]
        is_number = [name in numbers for name in names]
        blocks = _quoted_blocks(rows, is_number, path) if b'"' in data else _plain_blocks(text, mark, is_number, path)
        for block in blocks:
            for part, cells in zip(parts, block, strict=True):
                part.append(cells)
    except csv.Error as error:
        raise InputError(
            f"{path}, line {rows.line_num}: {error}; is a quotation mark open or a cell too long?"
        ) from error
    return Table({name: _joined(part) for name, part in zip(names, parts, strict=True)})


def _quoted_blocks(rows: Any, is_number: Sequence[bool], path: Path) -> Iterator[list[Cells]]:
    even = _even_rows(rows, len(is_number), path)
    while some := list(islice(even, _ROWS)):
        yield list(map(_from_text, zip(*some, strict=True), is_number))


def _plain_blocks(lines: Iterator[str], mark: str, is_number: Sequence[bool], path: Path) -> Iterator[list[Cells]]:
    """Without a quotation mark every line is a row, and numpy parses numbers in a third of the time."""
    seen, marks = 1, len(is_number) - 1
    while some := list(islice(lines, _ROWS)):
        if {line.count(mark) for line in some} != {marks} or max(map(len, some)) > csv.field_size_limit():
            for place, line in enumerate(some, start=seen + 1):
                _check_line(line, mark, marks, f"{path}, line {place}")
        rows = [line for line in some if line.strip("\r\n")]  # an empty line is no row
        if rows:
            yield _plain_columns(rows, mark, is_number)
        seen += len(some)


def _check_line(line: str, mark: str, marks: int, where: str) -> None:
    if line.strip("\r\n") and line.count(mark) != marks:
        raise InputError(f"{where}: {line.count(mark) + 1} cells, but there are {marks + 1} names in the first line")
    if max(map(len, line.split(mark))) > csv.field_size_limit():
        raise InputError(f"{where}: a cell is too long, of more than {csv.field_size_limit()} signs")


def _plain_columns(rows: list[str], mark: str, is_number: Sequence[bool]) -> list[Cells]:
    """The columns of some rows: numbers together if none of them is missing or odd, the others cell by cell."""
    columns, values = len(is_number), None
    places = [place for place, number in enumerate(is_number) if number]
    with suppress(ValueError):
        if places:
            values = np.loadtxt(rows, delimiter=mark, usecols=places, comments=None, ndmin=2)
    if values is None or np.isnan(values).any():
        return list(map(_from_text, zip(*(line.split(mark) for line in rows), strict=True), is_number))
    found: dict[int, Cells] = dict(zip(places, values.T, strict=True))
    first = next((place for place, number in enumerate(is_number) if not number), columns)
    right = zip(*(line.rsplit(mark, columns - first)[first - columns :] for line in rows), strict=True)
    for place, cells in enumerate(right if first < columns else (), start=first):
        found[place] = found[place] if is_number[place] else _from_text(cells, False)
    return [found[place] for place in range(columns)]


def _from_text(column: Sequence[str], is_number: bool) -> Cells:
    with suppress(ValueError):
        if is_number and not np.isnan(values := np.fromiter(map(float, column), np.float64, len(column))).any():
            return values
    text = np.array(list(map(str.strip, column)), dtype=object)
    if is_number:
        values = to_numbers(text)
        if all(cell.lower() in MISSING for cell in text[np.isnan(values)].tolist()):
            return values
    return text


def _joined(parts: Sequence[Cells]) -> Cells:
    """One column; a single part of text makes all of it text."""
    if len({part.dtype.kind for part in parts}) > 1:
        parts = [to_text(part) for part in parts]
    return np.concatenate(parts) if parts else np.array([], dtype=object)


def _even_rows(rows: Any, names: int, path: Path) -> Iterator[list[str]]:
    for row in rows:
        if len(row) == names:
            yield row
        elif row:  # an empty line is no row
            raise InputError(
                f"{path}, line {rows.line_num}: {len(row)} cells, but there are {names} names in the first line"
            )


def _check_names(names: Sequence[str], path: Path) -> None:
    if len(names) > MOST_COLUMNS:
        raise InputError(f"{path} has {len(names)} columns, at most {MOST_COLUMNS} can be used; keep those that matter")
    if not names or "" in names:
        raise InputError(f"{path}: column {names.index('') + 1 if names else 1} has no name in the first line")
    again = [name for name, count in Counter(names).items() if count > 1]
    if again:
        raise InputError(f"{path} has several columns named {again[0]!r}; names must differ")
    if all(_is_number(name) for name in names):
        raise InputError(f"the first line of {path} holds numbers; put a line with the names of the columns first")


def _read_parquet(path: Path) -> Table:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise InputError(f"{path}: reading Parquet needs pyarrow; install tacit[tables], or save as CSV") from error
    try:
        table = parquet.read_table(path)
    except (pyarrow.ArrowException, ValueError) as error:
        raise InputError(f"{path} is damaged or no Parquet file: {str(error).splitlines()[0]}") from error
    _check_names(table.column_names, path)
    return Table({name: _from_arrow(table.column(name), name, path) for name in table.column_names})


def _from_arrow(column: Any, name: str, path: Path) -> Cells:
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return np.array([np.nan if value is None else float(value) for value in column.to_pylist()])
    if types.is_nested(kind) or types.is_binary(kind):
        raise InputError(f"{path}: column {name!r} holds {kind}, not one number or text for each row")
    return np.array(["" if value is None else _plain(value) for value in column.to_pylist()], dtype=object)


def _read_excel(path: Path) -> Table:
    """The first sheet, every cell as text, as in a CSV file, so that no cell decides how others are read."""
    try:
        load_workbook = import_module("openpyxl").load_workbook
    except ImportError as error:
        raise InputError(f"{path}: reading Excel needs openpyxl; install tacit[excel], or save as CSV") from error
    try:
        with path.open("rb") as file:  # which openpyxl itself would leave open
            rows = load_workbook(file, read_only=True, data_only=True).worksheets[0].iter_rows(values_only=True)
            cells = [[_plain_cell(value) for value in row] for row in rows]
    except Exception as error:  # of a damaged file it raises what its parts raise
        raise InputError(f"{path} is damaged or no Excel file: {error}") from error
    cells = [row for row in cells if any(row)]
    names = [name.strip() for name in (cells[0] if cells else [])]
    _check_names(names, path)
    even = [row + [""] * (len(names) - len(row)) for row in cells[1:]]
    return Table({name: np.array([row[place] for row in even], dtype=object) for place, name in enumerate(names)})


def _plain_cell(value: object) -> str:
    """A cell of a sheet as text: numbers as they are written, a day without a time as a day."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float():
            return number_text(float(value))
        case datetime() if value.time() == time():
            return value.date().isoformat()
        case _:
            return str(value).strip()


def _read_npz(path: Path) -> Table:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, zipfile.BadZipFile, EOFError, KeyError, AttributeError) as error:
        raise InputError(f"{path} is damaged or no npz of plain arrays: {error}") from error
    columns: dict[str, Cells] = {}
    for name, array in arrays.items():
        if array.ndim == 1:
            columns[name] = _from_array(array, name, path)
        elif array.ndim == 2 and array.shape[1] <= MOST_COLUMNS:
            columns |= {f"{name}{i}": _from_array(array[:, i], name, path) for i in range(array.shape[1])}
        else:
            raise InputError(f"{path}: array {name!r} has shape {list(array.shape)}; use columns, or rows by columns")
    _check_names(list(columns), path)
    return Table(columns)


def _from_array(array: Cells, name: str, path: Path) -> Cells:
    match array.dtype.kind:
        case "i" | "u" | "f":
            return array.astype(np.float64)
        case "b" | "U":
            return np.array([_plain(value) for value in array.tolist()], dtype=object)
        case _:
            raise InputError(f"{path}: array {name!r} holds {array.dtype}, neither numbers nor text")


def _readers(numbers: Collection[str]) -> dict[str, Callable[[Path], Table]]:
    text = partial(_read_csv, numbers=numbers)
    return {".csv": text, ".tsv": text, ".parquet": _read_parquet, ".npz": _read_npz,
            ".xlsx": _read_excel}  # fmt: skip


def to_numbers(cells: Cells) -> NDArray[np.float64]:
    """Cells as numbers; what is missing or cannot be read as one is NaN, by itself.

    Example:
        >>> to_numbers(np.array(["3", "three", ""], dtype=object))
        array([ 3., nan, nan])
    """
    if cells.dtype.kind == "f":
        return cells
    try:
        return cells.astype(np.float64)
    except (ValueError, OverflowError):
        return np.array([to_number(cell) for cell in cells], dtype=np.float64)


def to_text(cells: Cells) -> Cells:
    """Cells as text; whole numbers without a point, missing ones as "".

    Example:
        >>> to_text(np.array([1.0, 2.5, np.nan])).tolist()
        ['1', '2.5', '']
    """
    if cells.dtype.kind != "f":
        return cells
    values, place = np.unique(cells, return_inverse=True)
    return np.array([number_text(value) for value in values.tolist()], dtype=object)[place]


def number_text(value: float) -> str:
    """The shortest text of a number: 3 for 3.0, "" for NaN."""
    if value != value:
        return ""
    whole = abs(value) < 2**53 and value == int(value)
    return str(int(value)) if whole else repr(value)


def shown(names: Sequence[str], most: int = 8) -> str:
    """Some names, for a message."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _plain(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value).strip()


def to_number(cell: str) -> float:
    """A cell as a number; NaN if it is none."""
    try:
        return float(cell)
    except (ValueError, OverflowError):
        return np.nan


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", text) is not None
