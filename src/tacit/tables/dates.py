"""Dates as numbers: a day is its number, each cell is read by itself, and a schema writes bounds as dates.

A part of a date, such as its month, is a category of its own, with levels that need no look at the table.
"""

from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InputError

ISO = "%Y-%m-%d"
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
PARTS: dict[str, Callable[[date], str]] = {
    "year": lambda day: str(day.year),
    "quarter": lambda day: str(1 + (day.month - 1) // 3),
    "month": lambda day: str(day.month),
    "weekday": lambda day: _WEEKDAYS[day.weekday()],
}
_LEVELS = {"quarter": tuple("1234"), "month": tuple(map(str, range(1, 13))), "weekday": _WEEKDAYS}


def day_numbers(cells: NDArray[Any], written: str) -> NDArray[np.float64]:
    """Day numbers of dates as text; NaN for what is none.

    Example:
        >>> day_numbers(np.array(["2001-01-31", "2001-01-31 10:00", "?", "2001-02-30"], dtype=object), ISO)
        array([730516., 730516.,     nan,     nan])
    """
    return np.array([_day(cell, written) for cell in cells.tolist()], dtype=np.float64)


def _day(cell: object, written: str) -> float:
    text = str(cell).strip()
    if written == ISO:
        text = text[:10]  # a time of day after it is left out
    try:
        return float(datetime.strptime(text, written).toordinal())
    except ValueError:
        return float("nan")


def date_parts(cells: NDArray[Any], written: str, part: str) -> NDArray[np.object_]:
    """The part of each date, which is text or a number of days; no text for what is no date.

    Example:
        >>> date_parts(np.array(["2001-01-31", "?"], dtype=object), ISO, "weekday").tolist()
        ['Wed', '']
    """
    days = cells if cells.dtype.kind == "f" else day_numbers(cells, written)
    known = {day: PARTS[part](date.fromordinal(int(day))) for day in np.unique(days[np.isfinite(days)]) if day >= 1}
    return np.array([known.get(day, "") for day in days.tolist()], dtype=object)


def part_columns(facts: Mapping[str, Any], low: float | None, high: float | None) -> list[dict[str, Any]]:
    """What the ``parts`` of a date column declare: a category each, such as "visit month" of "visit"."""
    name, parts = str(facts["name"]), facts.get("parts", [])
    if not isinstance(parts, list) or not parts or not all(part in list(PARTS) for part in parts):
        raise InputError(f"column {name!r}: parts must be a list of {', '.join(PARTS)}, found {parts!r}")
    if "year" in parts and (low is None or high is None):
        raise InputError(f"column {name!r}: the part 'year' needs low and high, which say which years there are")
    shared = {key: facts[key] for key in ("may_be_missing", "weight", "missing", "written") if key in facts}
    return [
        {"name": f"{name} {part}", "kind": "category", "of": name, "part": part,
         "levels": list(_LEVELS[part]) if part in _LEVELS else _years(low, high)} | shared
        for part in parts
    ]  # fmt: skip


def _years(low: float | None, high: float | None) -> list[str]:
    assert low is not None
    assert high is not None
    return [str(year) for year in range(date.fromordinal(int(low)).year, date.fromordinal(int(high)).year + 1)]


def as_day(name: str, key: str, value: object) -> float:
    """A bound of a date column, written as a date."""
    day = value.toordinal() if isinstance(value, date) else _day(value, ISO)
    if not day > 0:
        raise InputError(f"column {name!r}: {key} must be a date such as 2001-12-31, found {value!r}")
    return float(day)


def dates_to_days(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a schema says of a date column, as a number column of days."""
    name, said = str(facts["name"]), {key: value for key, value in facts.items() if key not in ("kind", "parts")}
    for key in ("low", "high"):
        if key in said:
            said[key] = as_day(name, key, said[key])
    if "bins" in said:
        said["bins"] = tuple(as_day(name, "bins", edge) for edge in said["bins"])
    written = said.pop("written", ISO)
    if not isinstance(written, str) or "%" not in written:
        raise InputError(f"column {name!r}: written says how dates are written, as in %d.%m.%Y, found {written!r}")
    return said | {"date": written}


def days_to_dates(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse."""
    said = {key: value for key, value in facts.items() if key != "date"}
    for key in ("low", "high"):
        if key in said:
            said[key] = date.fromordinal(int(said[key])).isoformat()
    if "bins" in said:
        said["bins"] = [date.fromordinal(int(edge)).isoformat() for edge in said["bins"]]
    return said if facts["date"] == ISO else said | {"written": facts["date"]}
