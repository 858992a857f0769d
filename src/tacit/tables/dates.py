"""Dates as numbers: a day is its number, each cell is read by itself, and a schema writes bounds as dates."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InputError

ISO = "%Y-%m-%d"


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


def as_day(name: str, key: str, value: object) -> float:
    """A bound of a date column, written as a date."""
    day = value.toordinal() if isinstance(value, date) else _day(value, ISO)
    if not day > 0:
        raise InputError(f"column {name!r}: {key} must be a date such as 2001-12-31, found {value!r}")
    return float(day)


def dates_to_days(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a schema says of a date column, as a number column of days."""
    name, said = str(facts["name"]), {key: value for key, value in facts.items() if key != "kind"}
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
