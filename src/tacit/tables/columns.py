"""What a column may hold, declared: the bounds of a number, the levels of a category, the two sides of a flag.

Every declaration is a public fact. Nothing here is learned from records, so no record can change what another becomes.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Literal, get_args

from tacit.errors import InputError, check_positive
from tacit.tables.dates import ISO, PARTS, dates_to_days, days_to_dates, part_columns

Transform = Literal["linear", "sqrt", "log"]
MOST_LEVELS = 1000
DATE = "date"  # the kind of a number column whose cells are dates


@dataclass(frozen=True, slots=True)
class Number:
    """A number within declared bounds, in declared bins, or both.

    Args:
        low, high: bounds that hold for anybody; what lies outside counts as the nearer one.
        transform: how the range is laid out on [-1, 1]; "sqrt" or "log" for amounts that are mostly small.
        bins: rising edges; each stretch between them gets a feature of its own. For relations that are not straight.
        may_be_missing: give "missing" a feature of its own; without it, missing counts as the middle.
        weight: how much more than others it may count, known beforehand; 2 for what is rare but telling.
        missing: codes that stand for a missing value, such as -9 or 999.
        decimal: "," for numbers written as 1.234,5.
        date: how dates are written, for a column of dates, which counts as days; "" for numbers.
        ask: "bounds", "bins" or both, to be found by a charged query (``bounds = "ask"`` in a schema).
        count: it counts something, from 0 on: as a target its rate is learned by Poisson's likelihood.
    """

    name: str
    low: float | None = None
    high: float | None = None
    transform: Transform = "linear"
    bins: tuple[float, ...] = ()
    may_be_missing: bool = False
    weight: float = 1.0
    missing: tuple[float | str, ...] = ()
    decimal: str = "."
    date: str = ""
    ask: tuple[str, ...] = ()
    count: bool = False

    kind: ClassVar[str] = "number"

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and math.isfinite(value)):
                raise InputError(f"column {self.name!r}: {name} must be a finite number, found {value!r}")
        if (self.low is None) != (self.high is None):
            raise InputError(f"column {self.name!r}: low and high belong together, found only one of them")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise InputError(f"column {self.name!r}: low {self.low:g} must be below high {self.high:g}")
        if self.transform not in get_args(Transform):
            raise InputError(f"column {self.name!r}: transform must be linear, sqrt or log, found {self.transform!r}")
        if not all(_is_number(edge) and math.isfinite(edge) for edge in self.bins) or any(
            not a < b for a, b in zip(self.bins, self.bins[1:], strict=False)
        ):
            raise InputError(f"column {self.name!r}: bins must be rising numbers, found {list(self.bins)!r}")
        if self.decimal not in (".", ","):
            raise InputError(f'column {self.name!r}: decimal must be "." or ",", found {self.decimal!r}')
        if not isinstance(self.count, bool) or (self.count and self.low != 0):
            raise InputError(f"column {self.name!r}: count = true needs low = 0, found {self.count!r} and {self.low!r}")
        _check_missing(self.name, self.missing)
        if self.ask and (self.low is not None or ("bins" in self.ask and self.bins)):
            raise InputError(f"column {self.name!r}: what is declared cannot be asked for too")

    @property
    def is_declared(self) -> bool:
        return not self.ask and (self.low is not None or bool(self.bins))

    @property
    def missing_part(self) -> str:
        return "its bounds (low and high) or its bins"


@dataclass(frozen=True, slots=True)
class Category:
    """One of several declared levels, as text; what is none of them has no feature set.

    Args:
        ask: ("levels",) if they are to be found by a charged query (``levels = "ask"`` in a schema).
        of, part, written: it is the part (year, quarter, month or weekday) of the dates in the table's column ``of``,
            which are written so.
    """

    name: str
    levels: tuple[str, ...] = ()
    may_be_missing: bool = False
    weight: float = 1.0
    missing: tuple[float | str, ...] = ()
    ask: tuple[str, ...] = ()
    of: str = ""
    part: str = ""
    written: str = ISO

    kind: ClassVar[str] = "category"

    def __post_init__(self) -> None:
        texts = all(isinstance(text, str) for text in (self.of, self.part, self.written))
        if not texts or bool(self.of) != bool(self.part) or (self.part and self.part not in PARTS):
            raise InputError(
                f"column {self.name!r}: part must be one of {', '.join(PARTS)}, of the name of the dates' column, and "
                "written how they are written, as in %d.%m.%Y"
            )
        if not all(isinstance(level, str) for level in self.levels):
            raise InputError(f'column {self.name!r}: levels must be texts in quotes, as in levels = ["0", "1"]')
        if len(set(self.levels)) != len(self.levels):
            raise InputError(f"column {self.name!r}: a level is declared twice")
        if len(self.levels) > MOST_LEVELS:
            raise InputError(
                f"column {self.name!r} declares {len(self.levels)} levels, at most {MOST_LEVELS} can be used"
            )
        _check_missing(self.name, self.missing)

    @property
    def is_declared(self) -> bool:
        return bool(self.levels)

    @property
    def missing_part(self) -> str:
        return "its levels"


@dataclass(frozen=True, slots=True)
class Flag:
    """Yes or no; what is neither counts as the middle."""

    name: str
    yes: tuple[str, ...] = ("true", "yes", "1", "t", "y")
    no: tuple[str, ...] = ("false", "no", "0", "f", "n")
    may_be_missing: bool = False
    weight: float = 1.0
    missing: tuple[float | str, ...] = ()

    kind: ClassVar[str] = "flag"
    is_declared: ClassVar[bool] = True
    missing_part: ClassVar[str] = ""

    def __post_init__(self) -> None:
        both = (*self.yes, *self.no)
        if not self.yes or not self.no or not all(isinstance(text, str) for text in both):
            raise InputError(f"column {self.name!r}: yes and no must be lists of texts in quotes")
        if len({text.lower() for text in both}) != len(both):
            raise InputError(f"column {self.name!r}: a text stands in yes and no, or twice in one of them")
        _check_missing(self.name, self.missing)

    def in_words_of(self, cells: Iterable[str]) -> "Flag":
        """The same flag, with the words that these cells use for its sides in front.

        Example:
            >>> Flag("smoker").in_words_of(["?", "No", "Yes", "no"]).no[:2]
            ('No', 'false')
        """
        found = {cell.lower(): cell for cell in reversed(list(cells))}  # the first spelling of each

        def own_words_first(words: tuple[str, ...]) -> tuple[str, ...]:
            used = [found[word.lower()] for word in words if word.lower() in found]
            return (*used, *(word for word in words if word.lower() not in found))

        return replace(self, yes=own_words_first(self.yes), no=own_words_first(self.no))


@dataclass(frozen=True, slots=True)
class Ignored:
    """A column that is not used, such as a name or an identifier."""

    name: str

    kind: ClassVar[str] = "ignore"
    is_declared: ClassVar[bool] = True
    missing_part: ClassVar[str] = ""


Column = Number | Category | Flag | Ignored
_KINDS: tuple[Any, ...] = (Number, Category, Flag, Ignored)
KINDS: dict[str, Any] = {kind.kind: kind for kind in _KINDS}


def columns_from_json(facts: object) -> list[Column]:
    """What a schema file says of a column: one, or a date's column and its parts. Dates need no bounds beside parts."""
    if not isinstance(facts, dict) or facts.get("kind") != DATE or "parts" not in facts:
        return [column_from_json(facts)]
    dates = column_from_json(facts)
    assert isinstance(dates, Number)
    parts = [column_from_json(part) for part in part_columns(facts, dates.low, dates.high)]
    return [dates, *parts] if dates.is_declared else parts


def source_of(column: Column) -> str:
    """The table's column that it is read from."""
    return column.of or column.name if isinstance(column, Category) else column.name


def column_from_json(facts: object) -> Column:
    """A column from what a schema file says of it; unknown words are refused by name."""
    if not isinstance(facts, dict) or not isinstance(facts.get("name"), str):
        raise InputError(f"every column of a schema needs a name, found {facts!r}")
    if facts.get("kind") == DATE:
        return _checked(Number, dates_to_days(facts))
    rest = {key: tuple(value) if isinstance(value, list) else value for key, value in facts.items() if key != "kind"}
    asked = tuple(key for key in ("bounds", "bins", "levels") if rest.get(key) == "ask")
    rest = {key: value for key, value in rest.items() if key not in asked}
    kind = KINDS.get(str(facts.get("kind")))
    if kind is None:
        words = ", ".join([*KINDS, DATE])
        raise InputError(f"column {facts['name']!r}: kind must be one of {words}, found {facts.get('kind')!r}")
    if "date" in rest:
        raise InputError(f'column {facts["name"]!r}: a column of dates has kind = "date"')
    known = {field.name for field in fields(kind)} - {"ask"}
    wrong = [key for key in asked if key not in _ASKED.get(kind.kind, ())]
    unknown = sorted(set(rest) - known) + wrong
    if unknown:
        raise InputError(f"column {facts['name']!r}: a {kind.kind} has no {unknown[0]!r}; see docs/tables.md")
    for key in ("bins", "levels", "yes", "no", "missing"):
        if key in rest and not isinstance(rest[key], tuple):
            raise InputError(f"column {facts['name']!r}: {key} must be a list, found {rest[key]!r}")
    if not isinstance(rest.get("may_be_missing", False), bool):
        raise InputError(f"column {facts['name']!r}: may_be_missing must be true or false")
    if "weight" in rest:
        check_positive(f"column {facts['name']!r}: weight", rest["weight"])
    return _checked(kind, rest | ({"ask": asked} if asked else {}))


def _checked(kind: Any, facts: Mapping[str, Any]) -> Column:
    unknown = sorted(set(facts) - {field.name for field in fields(kind)})
    if unknown:
        raise InputError(f"column {facts['name']!r}: a date has no {unknown[0]!r}; see docs/tables.md")
    column: Column = kind(**facts)
    return column


_ASKED = {"number": ("bounds", "bins"), "category": ("levels",)}


def column_to_json(column: Column) -> dict[str, Any]:
    """What a schema file says of a column: what differs from the defaults."""
    said = {field.name: field.default for field in fields(column)}
    values = {key: value for key, value in asdict(column).items() if value != said[key]}
    asked = dict.fromkeys(values.pop("ask", ()), "ask")
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()} | asked
    if plain.get("date"):
        plain = days_to_dates(plain)
        return {"name": plain.pop("name"), "kind": DATE, **plain}
    return {"name": plain.pop("name"), "kind": column.kind, **plain}


def _check_missing(name: str, codes: tuple[object, ...]) -> None:
    if not all(isinstance(code, str) or _is_number(code) for code in codes):
        raise InputError(f"column {name!r}: missing must be a list of codes, as in missing = [-9, 999]")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
