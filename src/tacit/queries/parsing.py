"""Queries as words: ``count``, ``mean:age``, ``quantile:age:.25,.5``, ``histogram:job``, ``mean:age:by:job,sex``."""

from collections.abc import Sequence
from typing import Protocol

from tacit.errors import InputError
from tacit.queries.answers import Answer
from tacit.queries.kinds.bounds import Bounds
from tacit.queries.kinds.columns import MOST_CELLS, Cells, Values
from tacit.queries.kinds.levels import Levels
from tacit.queries.kinds.moments import Correlation, Counts, Moments, Sums
from tacit.queries.kinds.quantiles import Quantiles
from tacit.queries.release import Contribution, Noisy, Part
from tacit.tables import Category, Number, Schema, Table
from tacit.tables.files import to_number

KINDS = (
    "count, sum:X, mean:X, variance:X, quantile:X:.5, histogram:X, count:X,Y, correlation:X,Y, bounds:X, "
    "levels:X or mean:X:by:Y"
)


class Query(Protocol):
    """What can be asked: which sums are released, what a row adds to them, and what follows from them with noise."""

    @property
    def text(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def parts(self) -> tuple[Part, ...]:
        """In public facts; their shares add up to 1."""
        ...

    def contributions(self, table: Table) -> list[Contribution]:
        """The one function that sees records: one contribution for each part."""
        ...

    def answers(self, noisy: Sequence[Noisy], level: float) -> list[Answer]:
        """Post-processing."""
        ...


def parse_query(text: str, schema: Schema) -> Query | Levels:
    """A query in words, checked against the declared columns.

    Example:
        >>> from tacit.tables import Category, Number
        >>> schema = Schema((Number("age", 0, 100), Category("job", ("cook", "clerk"))))
        >>> [part.width for part in parse_query("mean:age:by:job", schema).parts]
        [2, 2]
    """
    kind, *words = text.split(":")
    by: tuple[str, ...] = ()
    if len(words) >= 2 and words[-2] == "by":
        by, words = _names(words[-1]), words[:-2]
    try:
        return _query(text, kind, words, by, schema)
    except InputError as error:
        raise InputError(f"query {text!r}: {error}") from error


def _query(text: str, kind: str, words: list[str], by: tuple[str, ...], schema: Schema) -> Query | Levels:
    match kind, words:
        case "count", [] if not by:
            return Counts(text, Cells())
        case "count", [] | [_]:
            return Counts(text, Cells.declared(schema, (*(_names(words[0]) if words else ()), *by)))
        case "histogram", [name] if not by:
            return Counts(text, Cells.declared(schema, (name,)))
        case "histogram", [name, bins] if not by:
            return Counts(text, Cells.declared(schema, (name,), _bins(bins)))
        case "sum", [name]:
            return Sums(text, Values.declared(schema, name), Cells.declared(schema, by))
        case ("mean" | "variance") as moment, [name]:
            return Moments(text, moment, Values.declared(schema, name), Cells.declared(schema, by))
        case "quantile", [name, shares] if not by:
            return Quantiles(text, Values.declared(schema, name), tuple(_share(word) for word in shares.split(",")))
        case "bounds", [name] if not by:
            column = schema.column(name)
            if not isinstance(column, Number):
                raise InputError(f"column {name!r} is a {column.kind}; only numbers have bounds")
            return Bounds(text, column)
        case "levels", [name] if not by:
            column = schema.column(name)
            if not isinstance(column, Category) or column.levels:
                raise InputError(f"column {name!r} must be a category without declared levels; with them, count:{name}")
            return Levels(text, column)
        case "correlation", [both] if not by and len(_names(both)) == 2:
            first, second = _names(both)
            if first == second:
                raise InputError("a column's correlation with itself is 1")
            return Correlation(text, Values.declared(schema, first), Values.declared(schema, second))
    raise InputError(f"expected one of {KINDS}")


def _names(words: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in words.split(","))


def _share(word: str) -> float:
    share = to_number(word)
    if not 0 < share < 1:
        raise InputError(f"a quantile lies strictly between 0 and 1, as in quantile:age:.5, found {word!r}")
    return share


def _bins(word: str) -> int:
    if not word.isdecimal() or not 2 <= int(word) <= MOST_CELLS:
        raise InputError(f"bins must be a whole number from 2 to {MOST_CELLS:,}, found {word!r}")
    return int(word)
