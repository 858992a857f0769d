"""The public facts of a regression: which outcome by which columns, of which family, within which budget."""

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, get_args

import numpy as np

from tacit.accountants import check_delta
from tacit.errors import InputError, check_choice, check_positive, check_share
from tacit.regression.design import INTERCEPT, Design, covariates, parse_interaction
from tacit.regression.families import Family, FamilyName, Linear, Logistic, Multinomial, Ordered, Poisson, fold
from tacit.regression.newton.plan import ReleasePlan, is_blind, release_plan
from tacit.regression.newton.sums import Rows
from tacit.tables import Category, Flag, Ignored, Number, Schema, Table, default_delta
from tacit.tables.columns import source_of
from tacit.tables.encoding import as_declared, level_places
from tacit.tables.files import to_numbers, to_text
from tacit.types import Floats


@dataclass(frozen=True)
class RegressionProblem:
    """What is asked, before any record is looked at.

    Args:
        schema: declared columns.
        outcome: the column that is explained.
        epsilon, delta: the budget; delta is by default that of ``tacit train``.
        family: None takes it from the outcome's kind: number linear, flag or two levels logistic, more multinomial.
        exposure: a number column, for counts: time or people at risk.
        interactions: pairs of columns as ``a:b``.
        shared: the budget is shared with other runs, some of them still to be designed, so that RDP must calibrate.
        assume_spread: declared: any weighted sum of the standardised covariates keeps at least this share of the
            variance that it would have if they were uncorrelated (:func:`tacit.regression.spread_of`); by default
            what the schema says of its columns.

    Example:
        >>> schema = Schema((Number("age", 20, 60), Category("job", ("cook", "clerk")), Flag("ill")), records=5000)
        >>> problem = RegressionProblem(schema, "ill", epsilon=1.0)
        >>> problem.family, problem.names
        (Logistic(), ('(intercept)', 'age', 'job = clerk'))
    """

    schema: Schema
    outcome: str
    epsilon: float
    delta: float = 0.0
    family_name: FamilyName | None = None
    exposure: str | None = None
    interactions: tuple[str, ...] = ()
    shared: bool = False
    assume_spread: float | None = None

    def __post_init__(self) -> None:
        if self.is_by_person and self.schema.unit in (self.outcome, self.exposure):
            raise InputError(
                f"column {self.schema.unit!r} says whose row it is: it can be neither outcome nor exposure"
            )
        check_positive("epsilon", self.epsilon)
        if not self.delta:
            object.__setattr__(self, "delta", default_delta(self.size or 10_000))
        check_delta(self.delta, self.size)
        if self.family_name is not None:
            check_choice("family", self.family_name, get_args(FamilyName))
        _ = self.family, self.design
        if self.assume_spread is not None:
            check_share("assume_spread", self.assume_spread)
            if self.family.outputs > 1:
                raise InputError(f"assume_spread belongs to linear, logistic and poisson, found {self.family.name}")
        elif self.schema.assume_spread is not None and self.family.outputs == 1:
            if self.interactions:
                raise InputError("the schema's assume_spread says nothing of products: give --assume-spread for all")
            object.__setattr__(self, "assume_spread", self.schema.assume_spread)

    @property
    def spread(self) -> float | None:
        """The declared spread, where there are columns to have one: a single one has a spread of 1."""
        return self.assume_spread if len(self.names) > 2 else None

    @property
    def is_by_person(self) -> bool:
        """Whether a column says whose row it is, so that whole people are protected."""
        return self.schema.unit != "record"

    @property
    def size(self) -> int | None:
        """The declared number of units of privacy, if there is one."""
        return self.schema.users if self.is_by_person else self.schema.records

    @cached_property
    def family(self) -> Family:
        column = self.schema.column(self.outcome)
        name = self.family_name or _usual_family(column)
        if self.exposure is not None and name != "poisson":
            raise InputError(f"an exposure belongs to counts, as in --family poisson; the family is {name}")
        match name, column:
            case "linear", Number(low=low, high=high) if low is not None and high is not None:
                return Linear()
            case "poisson", Number(low=low, high=high) if low is not None and high is not None and low >= 0:
                middle, longest = self._exposures
                return Poisson(float(high), exposure=middle, longest=longest)
            case (("linear" | "poisson"), Number()):
                raise InputError(f"outcome {self.outcome!r}: declare its bounds, low and high, counts from 0 on")
            case "logistic", Flag():
                return Logistic()
            case "logistic", Category(levels=levels) if len(levels) == 2:
                return Logistic()
            case "multinomial", Category(levels=levels) if len(levels) > 2:
                return Multinomial(len(levels))
            case "ordered", Category(levels=levels) if len(levels) > 2:
                return Ordered(len(levels))
        raise InputError(
            f"outcome {self.outcome!r} is a {column.kind}, which does not fit the family {name}: linear and poisson "
            "need a number, logistic a flag or two levels, multinomial and ordered three levels or more"
        )

    @property
    def _exposures(self) -> tuple[float, float]:
        """The middle and the upper one of the declared bounds."""
        if self.exposure is None:
            return 1.0, 0.0
        column = self.schema.column(self.exposure)
        if not isinstance(column, Number) or column.low is None or column.high is None or column.low <= 0:
            raise InputError(f"exposure {self.exposure!r} must be a number with declared bounds above 0")
        return (column.low + column.high) / 2, float(column.high)

    @cached_property
    def design(self) -> Design:
        columns = covariates(self.schema, self.outcome, self.exposure)
        return Design(columns, tuple(parse_interaction(text, columns) for text in self.interactions))

    @cached_property
    def plan(self) -> ReleasePlan:
        laid_out = partial(
            release_plan, self.family, len(self.names), self.epsilon, self.delta, "rdp" if self.shared else "pld",
            clustered=self.is_by_person,
        )  # fmt: skip
        if self.spread is None:
            return laid_out()
        full = laid_out(declared=True)
        blind = self.size is not None and is_blind(full, self.design.reach, len(self.names), self.size)
        return laid_out(declared=True, blind=True) if blind else full

    @property
    def reach(self) -> float:
        """R: how long a record may be before it weighs less."""
        return self.design.longest if self.plan.is_ample else self.design.reach

    @property
    def levels(self) -> tuple[str, ...]:
        """Of the outcome; the first is the reference, or the lowest."""
        return self.schema.classes(self.outcome) or ()

    @property
    def is_ratio(self) -> str | None:
        """What exp of a coefficient is called."""
        return {"linear": None, "poisson": "rate ratio"}.get(self.family.name, "odds ratio")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of the coefficients, as they are reported."""
        match self.family:
            case Multinomial():
                return tuple(f"{level}: {name}" for level in self.levels[1:] for name in self.design.names)
            case Ordered():
                return (*(f"{INTERCEPT} > {level}" for level in self.levels[:-1]), *self.design.names[1:])
            case _:
                return self.design.names

    @cached_property
    def reported(self) -> tuple[Floats, Floats]:
        """(A, shift) with coefficients = A theta + shift on the table's own scale."""
        to_names, family = self.design.reported, self.family
        whole = np.kron(np.eye(family.outputs), to_names) @ fold(family, len(to_names))
        if isinstance(family, Ordered):
            d = len(to_names)
            whole = np.concatenate([whole[0::d][: family.outputs], whole[1:d]])
        shift = np.zeros(len(whole))
        column = self.schema.column(self.outcome)
        if isinstance(family, Linear) and isinstance(column, Number):
            low, high = float(column.low or 0), float(column.high or 0)
            whole, shift[0] = whole * (high - low) / 2, (low + high) / 2
        return whole, shift

    @cached_property
    def effect_units(self) -> Floats:
        """For each coefficient, what makes a unit effect of half a number's range, or of a level; intercepts: inf."""
        units = np.array([math.inf, *(unit for block in self.design.blocks.values() for unit in block.units)])
        if isinstance(self.family, Ordered):
            return np.concatenate([np.full(self.family.outputs, math.inf), units[1:]])
        return np.tile(units, self.family.outputs)

    @property
    def prior_units(self) -> Floats:
        """The same where the outcome is a number in units of half its range, so that a prior needs no units."""
        column = self.schema.column(self.outcome)
        if isinstance(self.family, Linear) and isinstance(column, Number):
            return self.effect_units * (float(column.high or 0) - float(column.low or 0)) / 2
        return self.effect_units

    def rows(self, table: Table) -> Rows:
        """Private: the records that have an outcome and, where it matters, an exposure and an owner."""
        table = as_declared(table, self.schema)
        y, known = self._outcomes(table)
        exposure = np.ones(len(table))
        if self.exposure is not None:
            column = self.schema.column(self.exposure)
            assert isinstance(column, Number)
            cells = to_numbers(table.column(self.exposure))
            known = known & ~np.isnan(cells)
            exposure = np.clip(np.nan_to_num(cells, nan=1.0), column.low, column.high)
        owners = to_text(table.column(self.schema.unit)) if self.is_by_person else None
        if owners is not None:
            known = known & (owners != "")  # a row of nobody cannot be protected as somebody's
        if not known.any():
            raise InputError(f"no value of the outcome {self.outcome!r} is one of those declared; look at the schema")
        kept = np.flatnonzero(known)
        part = Table({name: cells[kept] for name, cells in table.columns.items()})
        units = None if owners is None else np.unique(owners[kept].astype(str), return_inverse=True)[1]
        return Rows(self.design.x(part), y[kept], exposure[kept], units)

    def _outcomes(self, table: Table) -> tuple[Floats, np.ndarray[Any, np.dtype[np.bool_]]]:
        column, cells = self.schema.column(self.outcome), table.column(self.outcome)
        if isinstance(column, Category | Flag):
            place = level_places(cells, column)
            return place.astype(np.float64), place >= 0
        assert isinstance(column, Number)
        values = to_numbers(cells)
        low, high = float(column.low or 0), float(column.high or 0)
        inside = np.clip(np.nan_to_num(values, posinf=np.inf, neginf=-np.inf), low, high)
        scaled = (2 * inside - low - high) / (high - low) if isinstance(self.family, Linear) else inside
        return scaled, ~np.isnan(values)

    def check_table(self, table: Table) -> None:
        """Refuse a table that lacks a column, before anything is charged."""
        for name in (self.outcome, *(source_of(column) for column in self.design.columns)):
            table.column(name)
        for named in (self.exposure, self.schema.unit if self.is_by_person else None):
            if named is not None:
                table.column(named)

    def to_json(self) -> dict[str, Any]:
        said = {"outcome": self.outcome, "family": self.family.name, "exposure": self.exposure,
                "interactions": list(self.interactions)}  # fmt: skip
        return said if self.assume_spread is None else said | {"assume_spread": self.assume_spread}


def _usual_family(column: Number | Category | Flag | Ignored) -> FamilyName:
    match column:
        case Number():
            return "linear"
        case Flag():
            return "logistic"
        case Category(levels=levels):
            return "logistic" if len(levels) == 2 else "multinomial"
        case Ignored(name=name):
            raise InputError(f"column {name!r} is the outcome, but the schema ignores it")
