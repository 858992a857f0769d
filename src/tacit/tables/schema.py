"""A schema: all that would otherwise be learned from private records, declared in a file that a person can edit.

Bounds, levels, classes and the number of records leak if they are taken from the data (failure-modes.md, F15). They are
public knowledge more often than not: an age lies between 0 and 120 whoever is in the table.
"""

import json
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from tacit.errors import InputError, check_count, check_positive, check_share
from tacit.tables.columns import Category, Column, Flag, Ignored, Number, column_to_json, columns_from_json
from tacit.tables.files import shown

Task = Literal["classification", "regression"]
Scaling = Literal["linear", "norm"]
FORMAT = 1
_FACTS = ("dataset", "records", "users", "target", "unit", "derived_from_private_data", "source", "registry", "asked",
          "scaling", "sample_weight", "class_weight", "assume_spread")  # fmt: skip
ASK = "ask"


@dataclass(frozen=True, slots=True)
class Schema:
    """The declared facts of a table.

    Args:
        columns: what each column may hold; columns of the table that are not here are not used.
        dataset: a public name.
        records: about how many rows there are; a round number is fine.
        users: about how many people own them, where people are the unit of privacy.
        target: the column to predict, if the schema says so.
        unit: "record", or the column that says whose row it is.
        derived_from_private_data: bounds, levels or counts were read off the private table: the guarantee does not
            cover them.
        source: where the declarations come from, in words.
        registry: the file that every run on this data enters itself in, seen from the schema's folder.
        ask_units: the number of records, or users, is to be found by a charged query (``records = "ask"``).
        asked: what was found by charged queries: names of columns, and "records" or "users".
        scaling: how a model's records are kept bounded. "linear": by weights on their losses, so that a linear model
            is linear in the columns; "norm": each record is scaled to norm 1.
        sample_weight: the number column that says how much each record counts, from 0 to its declared ``high``.
        class_weight: how much records of a class count; those that are not named, 1.
        assume_spread: for coefficients: any weighted sum of the standardised columns keeps at least this share of the
            variance that it would have if they were uncorrelated.

    Example:
        >>> schema = Schema((Number("age", 0, 120), Category("smoker", ("no", "yes"))), records=1000)
        >>> [column.name for column in schema.features("smoker")], schema.task("smoker")
        (['age'], 'classification')
    """

    columns: tuple[Column, ...]
    dataset: str = "unnamed"
    records: int | None = None
    users: int | None = None
    target: str | None = None
    unit: str = "record"
    derived_from_private_data: bool = False
    source: str = "declared"
    registry: str | None = None
    ask_units: bool = False
    asked: tuple[str, ...] = ()
    scaling: Scaling = "linear"
    sample_weight: str | None = None
    class_weight: Mapping[str, float] = field(default_factory=dict)
    assume_spread: float | None = None

    def __post_init__(self) -> None:
        again = [name for name, count in Counter(column.name for column in self.columns).items() if count > 1]
        if again:
            raise InputError(f"the schema declares column {again[0]!r} more than once")
        for name in ("records", "users"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        for name, kind in (("dataset", str), ("target", str), ("unit", str), ("derived_from_private_data", bool),
                           ("registry", str), ("sample_weight", str)):  # fmt: skip
            value = getattr(self, name)
            if not isinstance(value, kind) and not (name in ("target", "registry", "sample_weight") and value is None):
                raise InputError(f"the schema's {name} must be a {kind.__name__}, found {value!r}")
        if self.assume_spread is not None:
            check_share("assume_spread", self.assume_spread)
        if self.scaling not in get_args(Scaling):
            raise InputError(f"the schema's scaling must be 'linear' or 'norm', found {self.scaling!r}")
        if not isinstance(self.class_weight, Mapping):
            raise InputError(f"class_weight must be like {{no = 1, yes = 3}}, found {self.class_weight!r}")
        for name, weight in self.class_weight.items():
            check_positive(f"class_weight of {name!r}", weight)

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise InputError(f"the schema declares no column {name!r}; it has {shown([c.name for c in self.columns])}")

    def features(self, target: str) -> tuple[Number | Category | Flag, ...]:
        """The columns to predict from."""
        used = tuple(
            column
            for column in self.columns
            if column.name not in (target, self.unit, self.sample_weight) and not isinstance(column, Ignored)
        )
        if not used:
            raise InputError("the schema leaves no column to predict from; declare at least one")
        return used

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns to read as numbers; owners, dates and decimal commas are read by their spelling."""
        numbers = (
            column
            for column in self.columns
            if isinstance(column, Number) and column.decimal == "." and not column.date
        )
        return tuple(column.name for column in numbers if column.name != self.unit)

    def task(self, target: str) -> Task:
        return "regression" if isinstance(self.column(target), Number) else "classification"

    def classes(self, target: str) -> tuple[str, ...] | None:
        match self.column(target):
            case Category(levels=levels):
                return levels
            case Flag(yes=yes, no=no):
                return no[0], yes[0]
            case _:
                return None

    @property
    def units(self) -> int:
        """The declared number of units of privacy."""
        count = self.records if self.unit == "record" else self.users
        if count is None and self.ask_units:
            raise InputError("the number of units is still to be asked for: tacit train does it, or tacit schema --ask")
        if count is None:
            what = "records" if self.unit == "record" else "users"
            raise InputError(
                f"the number of {what} is not declared; write {what} = ... in the schema or pass --records "
                "(a round number is fine)"
            )
        return count

    def check(self, target: str) -> None:
        """Refuse a schema that is not filled in, before any data is looked at."""
        column = self.column(target)
        for one in (column, *self.features(target)):
            if isinstance(one, Number | Category) and one.ask:
                what = " and ".join(one.ask)
                raise InputError(f"column {one.name!r}: its {what} are still to be asked for, by tacit schema --ask")
            if not one.is_declared:
                raise InputError(f"column {one.name!r}: {one.missing_part} must be declared in the schema")
        match column:
            case Ignored():
                raise InputError(f"column {target!r} is the target, but the schema ignores it")
            case Category(levels=levels) if len(levels) < 2:
                raise InputError(f"target {target!r} declares one class, {levels[0]!r}; a classifier needs two or more")
            case Number(date=written) if written:
                raise InputError(f"target {target!r} is a date; predict a number, such as an age")
            case Number(low=None):
                raise InputError(f"target {target!r} is a number: declare its bounds, low and high")
        if self.unit != "record" and self.unit == target:
            raise InputError(f"column {target!r} cannot be both the target and the unit of privacy")
        self._check_weights(target)
        _ = self.units

    def _check_weights(self, target: str) -> None:
        classes = self.classes(target) or ()
        unknown = [name for name in self.class_weight if name not in classes]
        if unknown:
            raise InputError(f"class_weight names {unknown[0]!r}; the classes of {target!r} are {shown(list(classes))}")
        if self.sample_weight is None:
            return
        match self.column(self.sample_weight):
            case Number(low=float() | int() as low, high=float() | int(), date="") if low >= 0 and (
                self.sample_weight not in (target, self.unit)
            ):
                return
        raise InputError(
            f"sample_weight {self.sample_weight!r} must be a number column of its own, declared from low = 0 (or more) "
            "to the largest weight there can be"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What every statement about a run with this schema has to repeat."""
        if self.derived_from_private_data:
            return (
                "bounds, levels or the number of records were read off the private data; epsilon does not cover that",
            )
        rest = f"levels, classes and the number of records are taken as public ({self.source})"
        if self.asked:
            asked = shown(list(self.asked))
            return (f"asked of the table, and charged where that was: {asked}; all other bounds, {rest}",)
        return (f"bounds, {rest}",)

    @property
    def questions(self) -> tuple[str, ...]:
        """What is to be asked of the table before it can be used: columns, and "records" or "users"."""
        units = ("records" if self.unit == "record" else "users",) if self.ask_units else ()
        return units + tuple(c.name for c in self.columns if isinstance(c, Number | Category) and c.ask)

    def to_json(self) -> dict[str, Any]:
        facts = {name: getattr(self, name) for name in _FACTS if getattr(self, name) not in (None, (), {})}
        if self.ask_units:
            facts["records" if self.unit == "record" else "users"] = ASK
        if self.asked:
            facts["asked"] = list(self.asked)
        return {"format": FORMAT, **facts, "columns": [column_to_json(column) for column in self.columns]}

    @classmethod
    def from_json(cls, facts: object) -> "Schema":
        if not isinstance(facts, dict) or not isinstance(facts.get("columns"), list):
            raise InputError("a schema needs columns: [[columns]] with a name and a kind for each")
        if facts.get("format", FORMAT) != FORMAT:
            raise InputError(f"the schema has format {facts['format']!r}, this version reads {FORMAT}")
        unknown = sorted(set(facts) - {*_FACTS, "columns", "format"})
        if unknown:
            raise InputError(f"a schema has no {unknown[0]!r}; it has {', '.join(_FACTS)} and columns")
        columns = tuple(column for said in facts["columns"] for column in columns_from_json(said))
        given = {name: facts[name] for name in _FACTS if name in facts and facts[name] != ASK}
        given["asked"] = tuple(given.get("asked", ()))
        return cls(columns, ask_units=ASK in (facts.get("records"), facts.get("users")), **given)

    def with_facts(self, **facts: Any) -> "Schema":
        """The same schema with what is given and not None."""
        return replace(self, **{name: value for name, value in facts.items() if value is not None})


def read_schema(path: str | Path) -> Schema:
    """Read a schema from a .toml or .json file; a mistake is one line that names the column."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
        facts = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
        return Schema.from_json(facts)
    except (json.JSONDecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is no readable schema: {error}") from error
    except OSError as error:
        raise InputError(f"the schema {path} cannot be read: {error.strerror}") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def schema_text(schema: Schema) -> str:
    """A schema as TOML, with a word on what is still to be filled in."""
    facts = schema.to_json()
    lines = [
        "# A Tacit schema: what is public about the table. Nothing in it may be looked up in the private records.",
        "# Kinds: number (low, high; transform sqrt or log for amounts mostly small; bins), category (levels),",
        "# flag (yes, no), ignore. Values outside are clamped, other levels and missing values count as unknown.",
    ]
    lines += [f"{name} = {_toml(facts[name])}" for name in ("format", *_FACTS) if name in facts]
    if schema.records is None and not schema.ask_units:
        lines.append("# records = 1000        # about how many rows; a round number is fine")
    for column, said in zip(schema.columns, facts["columns"], strict=True):
        lines += ["", "[[columns]]", *(f"{key} = {_toml(value)}" for key, value in said.items())]
        match column:
            case Number() | Category() if column.ask:
                pass
            case Number() if not column.is_declared:
                lines.append("# low = 0                # declare both: bounds that hold for anybody\n# high = 100")
            case Category() if not column.is_declared:
                lines.append('# levels = ["a", "b"]    # declare every level')
            case _:
                pass
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list():
            return "[" + ", ".join(_toml(item) for item in value) + "]"
        case dict():
            return "{" + ", ".join(f"{_toml(str(key))} = {_toml(item)}" for key, item in value.items()) + "}"
        case _:
            return repr(value)
