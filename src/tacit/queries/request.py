"""What is asked of a table, in public facts: queries, budget and shares, and the noise that follows from them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tacit.accountants import Budget, calibrate_noise, check_delta
from tacit.accountants.failures import RESERVED
from tacit.errors import InputError, check_inside, is_number
from tacit.ledger import Charge, LedgerHeader, ThresholdedSample
from tacit.queries.kinds.levels import FAILURE_SHARE, Levels
from tacit.queries.parsing import Query, parse_query
from tacit.queries.release import ReleasePlan
from tacit.tables import Schema, Table, default_delta
from tacit.tables.encoding import check_readable

_DELTA = 1e-6  # where no number of records is declared


@dataclass(frozen=True)
class QueryRequest:
    """Queries about a table of a declared schema, and what they may cost together.

    Args:
        texts: the queries in words.
        shares: how much of the precision each gets, in any unit; equal ones if left out.
        delta: by default below one over the declared number of records or users.
        shared: the budget of a ledger that several runs share, some of them still to be designed: RDP calibrates.

    Example:
        >>> from tacit.tables import Number
        >>> asked = QueryRequest(Schema((Number("age", 0, 100),), records=1000), ("count", "mean:age"), 1.0)
        >>> asked.delta, round(asked.plan.multiplier, 2), [round(noise, 2) for noise in asked.plan.stddevs]
        (1e-05, 3.73, [5.28, 9.14, 6.46])
    """

    schema: Schema
    texts: tuple[str, ...]
    epsilon: float
    delta: float = 0.0
    level: float = 0.95
    shares: tuple[float, ...] = ()
    shared: Budget | None = None

    def __post_init__(self) -> None:
        if not self.texts:
            raise InputError("what is to be asked? name one or more queries, as in count mean:age")
        again = [text for text in self.texts if self.texts.count(text) > 1]
        if again:
            raise InputError(f"query {again[0]!r} is asked twice; ask once with a larger share")
        check_inside("level", self.level)
        if self.shares and (
            len(self.shares) != len(self.texts) or not all(is_number(share) and share > 0 for share in self.shares)
        ):
            raise InputError(f"shares must be {len(self.texts)} numbers above 0, one for each query in their order")
        if not self.delta:
            object.__setattr__(self, "delta", _DELTA if self.units is None else default_delta(self.units))
        check_delta(self.delta, self.units)
        _ = self.queries

    @property
    def units(self) -> int | None:
        return self.schema.records if self.schema.unit == "record" else self.schema.users

    @cached_property
    def queries(self) -> tuple[Query | Levels, ...]:
        return tuple(parse_query(text, self.schema) for text in self.texts)

    @property
    def failure(self) -> float:
        """The chance that a level of one unit alone is shown, for each query that asks for levels."""
        asking = sum(isinstance(query, Levels) for query in self.queries)
        return FAILURE_SHARE * self.delta / asking if asking else 0.0

    @property
    def charge(self) -> Charge:
        """What the ledger is charged for all of them."""
        asking, event = sum(isinstance(query, Levels) for query in self.queries), self.plan.charge.event
        return Charge(ThresholdedSample(asking * self.failure, event.queries) if asking else event, 1)

    @cached_property
    def plan(self) -> ReleasePlan:
        """The least noise with which all parts together stay within the budget, by a certified accountant."""
        accountant, aside = ("pld", FAILURE_SHARE) if self.shared is None else ("rdp", RESERVED)
        delta = self.delta * (1 - (aside if self.failure else 0.0)) * (1 - 1e-9)
        found = calibrate_noise(self.epsilon, delta, probability=1.0, steps=1, accountant=accountant)
        weights = self.shares or (1.0,) * len(self.texts)
        total = math.fsum(weights)
        parts = tuple(
            replace(part, share=part.share * weight / total)
            for query, weight in zip(self.queries, weights, strict=True)
            for part in query.parts
        )
        # a hair above, because the squares of the parts' shares round
        return ReleasePlan(parts, found.noise_multiplier * (1 + 1e-9))

    def header(self, randomness: str) -> LedgerHeader:
        """What the ledger is opened with."""
        budget = self.shared or Budget(self.epsilon, self.delta)
        return LedgerHeader(
            unit="record" if self.schema.unit == "record" else "user",
            dataset=self.schema.dataset,
            dataset_size=self.units,
            epsilon=budget.epsilon,
            delta=budget.delta,
            schedule="fixed" if self.shared is None else "adaptive",
            randomness=randomness,  # type: ignore[arg-type]
            assumptions=self.schema.assumptions,
        )

    def to_json(self) -> dict[str, Any]:
        """All that it takes to ask again."""
        shared = None if self.shared is None else [self.shared.epsilon, self.shared.delta]
        return {"schema": self.schema.to_json(), "texts": list(self.texts), "epsilon": self.epsilon,
                "delta": self.delta, "level": self.level, "shares": list(self.shares), "shared": shared}  # fmt: skip

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> "QueryRequest":
        """The inverse; the file may have been changed by hand."""
        try:
            return cls(
                Schema.from_json(facts["schema"]), tuple(facts["texts"]), facts["epsilon"], facts["delta"],
                facts["level"], tuple(facts["shares"]), None if facts["shared"] is None else Budget(*facts["shared"]),
            )  # fmt: skip
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"what was asked for cannot be read: {type(error).__name__} {error}") from error

    def check_table(self, table: Table) -> None:
        """Refuse a table that lacks a column, or whose numbers are none, before anything is charged."""
        if self.schema.unit != "record":
            table.column(self.schema.unit)
        for name in dict.fromkeys(_columns(self.queries)):
            column = self.schema.column(name)
            check_readable(table, column)  # type: ignore[arg-type]


def _columns(queries: Sequence[Query | Levels]) -> list[str]:
    return [name for query in queries for name in query.columns]
