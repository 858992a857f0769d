"""What a schema leaves open, found by one charged release: bounds, bins, levels and the number of units.

The noise of all parts is fixed before a record is read, whatever is found, so that what follows can be planned and
accounted for as if nothing had been asked adaptively: settings that are chosen by an answer (clip norm, learning rate,
features) do not change what a step costs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tacit.accountants import check_delta, gaussian_mu
from tacit.errors import InputError
from tacit.ledger import PoissonSample, ThresholdedSample
from tacit.queries.kinds.bounds import EDGES, Bounds, found_bounds
from tacit.queries.kinds.columns import Cells
from tacit.queries.kinds.levels import FAILURE_SHARE, found_levels, level_counts, threshold
from tacit.queries.kinds.moments import Counts
from tacit.queries.release import Contribution, Part, ReleasePlan, exact_sums, unit_weights
from tacit.tables import Category, Column, Ignored, Number, Schema, Table
from tacit.tables.columns import Transform
from tacit.tables.encoding import as_declared, check_readable
from tacit.tables.files import to_text
from tacit.types import Floats

DELTA = 1e-6  # where the number of units is not known before
SHARE = 0.1  # of mu^2, for what is asked before training
_FEWEST = 0.01  # of all units, in a bin that is found
_SEEN = 3.0  # standard deviations of the noise that a cell must hold to count at all
_CLEAR = 5.0  # and a bin
Normals = Callable[[int], Floats]


@dataclass(frozen=True)
class Questions:
    """The open parts of a schema, and the noise with which they are answered.

    Args:
        epsilon, delta: of the whole run.
        share: of its mu^2.

    Example:
        >>> schema = Schema((Number("age", ask=("bounds",)), Category("job", ask=("levels",))), ask_units=True)
        >>> asked = Questions(schema, 1.0, 1e-6)
        >>> [part.name for part in asked.release_plan.parts], asked.event.failure
        (['records', 'bounds:age', 'levels:job'], 1e-07)
    """

    schema: Schema
    epsilon: float
    delta: float
    share: float = SHARE

    def __post_init__(self) -> None:
        check_delta(self.delta)
        if not self.schema.questions:
            raise InputError('the schema leaves nothing open; write bounds = "ask", levels = "ask" or records = "ask"')

    @property
    def columns(self) -> tuple[Number | Category, ...]:
        return tuple(one for one in self.schema.columns if isinstance(one, Number | Category) and one.ask)

    @property
    def _levels(self) -> int:
        return sum(isinstance(column, Category) for column in self.columns)

    @property
    def failure(self) -> float:
        """Of each column whose levels are asked for."""
        return FAILURE_SHARE * self.delta / max(1, self._levels)

    @cached_property
    def release_plan(self) -> ReleasePlan:
        names = [f"{'levels' if isinstance(one, Category) else 'bounds'}:{one.name}" for one in self.columns]
        units = [self.schema.questions[0]] if self.schema.ask_units else []
        parts = [Part(name, 1, 1.0) for name in units] + [Part(name, len(EDGES) - 1, 1.0) for name in names]
        mu = gaussian_mu(self.epsilon, self.delta)
        shared = tuple(replace(part, share=1 / len(parts)) for part in parts)
        return ReleasePlan(shared, 1 / (math.sqrt(self.share) * mu) * (1 + 1e-9))

    @property
    def event(self) -> PoissonSample | ThresholdedSample:
        """What the ledger is charged."""
        queries = self.release_plan.charge.event.queries
        return ThresholdedSample(self._levels * self.failure, queries) if self._levels else PoissonSample(1.0, queries)

    def placeholder(self) -> Schema:
        """The schema as if all were answered, for what has to be known before: it agrees in all that is charged for."""
        return self._filled(1000, [_placeholder(column) for column in self.columns])

    def answered(self, table: Table, normals: Normals) -> Schema:
        """The schema with what was found. It has been charged; this is the only function that sees records."""
        cells = Answering(as_declared(table, self.schema), self.schema.unit, normals)
        noise = list(self.release_plan.stddevs)
        units = cells.units(noise.pop(0)) if self.schema.ask_units else None
        found = [cells.column(column, stddev, self.failure) for column, stddev in zip(self.columns, noise, strict=True)]
        return self._filled(units, found)

    def check_table(self, table: Table) -> None:
        """Refuse a table that lacks a column, or whose numbers are none, before anything is charged."""
        if self.schema.unit != "record":
            table.column(self.schema.unit)
        for column in self.columns:
            check_readable(as_declared(table, self.schema), column)

    def _filled(self, units: int | None, columns: list[Column]) -> Schema:
        found = {column.name: column for column in columns}
        counted = {} if not self.schema.ask_units else {self.schema.questions[0]: units}
        kept = tuple(found.get(column.name, column) for column in self.schema.columns)
        return replace(self.schema, columns=kept, ask_units=False, asked=self.schema.questions, **counted)  # type: ignore[arg-type]


class Answering:
    """A table that answers questions with noise: each is charged for before. Private, but for what it returns."""

    def __init__(self, table: Table, unit: str, normals: Normals) -> None:
        self._table, self._normals = table, normals
        self._owners = None if unit == "record" else to_text(table.column(unit))
        self._weights = None if self._owners is None else unit_weights(self._owners)

    def units(self, stddev: float) -> int:
        [given] = Counts("count", Cells()).contributions(self._table)
        return max(1, round(float(self.sums(given, 1, stddev)[0])))

    def sums(self, given: Contribution, width: int, stddev: float) -> Floats:
        return np.asarray(exact_sums(given, width, self._weights) + stddev * self._normals(width))

    def column(self, column: Number | Category, stddev: float, failure: float) -> Column:
        """The column with its levels, or with its bounds and bins."""
        if isinstance(column, Category):
            counts = level_counts(self._table, column, self._owners)
            found = found_levels(counts, stddev * self._normals(len(counts)), threshold(stddev, failure))
            return _with_levels(column, found)
        [given] = Bounds("", column).contributions(self._table)
        return _with_bounds(column, self.sums(given, len(EDGES) - 1, stddev), stddev)


def _placeholder(column: Number | Category) -> Column:
    if isinstance(column, Category):
        return replace(column, levels=("a", "b"), ask=())
    return replace(column, low=0.0, high=1.0, ask=())


def _with_levels(column: Category, levels: tuple[str, ...]) -> Column:
    """A column of one level, or of none that is frequent, says nothing."""
    return Ignored(column.name) if len(levels) < 2 else replace(column, levels=levels, ask=())


def _with_bounds(column: Number, counts: Floats, stddev: float) -> Column:
    bounds = found_bounds(counts, stddev)
    if bounds is None:
        return Ignored(column.name)
    low, high = bounds
    bins = found_bins(counts, stddev, low, high) if "bins" in column.ask else column.bins
    if "bounds" not in column.ask:
        return replace(column, bins=bins or ((low + high) / 2,), ask=())
    shape = _transform(counts, low, high) if column.transform == "linear" else column.transform
    return replace(column, low=low, high=high, bins=bins, transform=shape, ask=())


def found_bins(counts: Floats, stddev: float, low: float, high: float) -> tuple[float, ...]:
    """Edges between cells, so that each bin clearly holds units and not too few of them.

    Example:
        >>> counts = np.histogram(np.arange(18.0, 91.0).repeat(10), EDGES)[0]
        >>> found_bins(counts.astype(float), 1.0, 16.0, 90.6)
        (19.0273, 22.6274, 26.9087, 32.0, 38.0546, 45.2548, 53.8174, 64.0, 76.1093)
    """
    first, last = (int(np.clip(np.digitize(edge, EDGES) - 1, 0, len(EDGES) - 2)) for edge in (low, high))
    inside = np.where(counts > _SEEN * stddev, counts, 0.0)[first : last + 1]  # many empty cells add up to much noise
    enough = max(_CLEAR * stddev, _FEWEST * float(inside.sum()))
    edges, held = [], 0.0
    for place, count in enumerate(inside[:-1], start=first + 1):
        held += float(count)
        if held >= enough and float(inside[place - first :].sum()) >= enough:
            edges.append(float(f"{EDGES[place]:.6g}"))
            held = 0.0
    return tuple(edges)


def _transform(counts: Floats, low: float, high: float) -> Transform:
    """As drafts choose it: for amounts that are mostly small."""
    middle = float(EDGES[1:][np.searchsorted(np.cumsum(np.maximum(counts, 0.0)), 0.5 * np.maximum(counts, 0.0).sum())])
    place = (min(max(middle, low), high) - low) / (high - low)
    if low < 0 or place >= 0.35:
        return "linear"
    return "log" if place < 0.05 and high - low > 20 else "sqrt"
