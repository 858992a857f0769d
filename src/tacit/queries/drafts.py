"""A schema asked of a table of which only the names of columns are known: kinds, bounds, levels and the number of rows.

For every column, a count of cells that are numbers, words for yes or no, other text, or missing gives its kind; what
follows is asked for by the kind that was found. Noise is fixed beforehand, so that all of it is one charged release.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.accountants import Budget, check_delta, get_accountant
from tacit.accountants.budget import charge_within
from tacit.accountants.search import smallest_within
from tacit.errors import InputError
from tacit.ledger import Charge, Ledger, LedgerFile, LedgerHeader, ThresholdedSample
from tacit.queries.kinds.levels import FAILURE_SHARE
from tacit.queries.questions import DELTA, Answering, Normals
from tacit.queries.release import Contribution, Part, ReleasePlan
from tacit.runs import RunFolder
from tacit.runs.facts import FORMAT, QUERIES
from tacit.storage.json_files import write_json
from tacit.tables import Category, Column, Flag, Ignored, Number, Schema, Table
from tacit.tables.files import MISSING, Cells, to_numbers, to_text

if TYPE_CHECKING:
    from tacit.randomness import Randomness

_KINDS = ("number", "flag", "category")
_SEEN = 4.0  # standard deviations of the noise that the most frequent kind must hold


@dataclass(frozen=True)
class OpenTable:
    """The columns of a table by name, and what asking for all the rest may cost.

    Example:
        >>> asked = OpenTable(("age", "job"), 0.5)
        >>> [part.name for part in asked.release_plan.parts], asked.event.failure
        (['records', 'kind:age', 'kind:job', 'values:age', 'values:job'], 1e-07)
    """

    names: tuple[str, ...]
    epsilon: float
    delta: float = DELTA
    dataset: str = "unnamed"
    target: str | None = None

    def __post_init__(self) -> None:
        check_delta(self.delta)
        if not self.names:
            raise InputError("the table has no columns to ask for")

    @property
    def failure(self) -> float:
        return FAILURE_SHARE * self.delta / len(self.names)

    @cached_property
    def release_plan(self) -> ReleasePlan:
        parts = [Part("records", 1, 1.0), *(Part(f"kind:{name}", len(_KINDS), 1.0) for name in self.names),
                 *(Part(f"values:{name}", 1, 1.0) for name in self.names)]  # fmt: skip
        shared = tuple(Part(part.name, part.width, 1 / len(parts)) for part in parts)

        def cost(multiplier: float) -> float:
            charge = Charge(self._event(ReleasePlan(shared, multiplier)), 1)
            return get_accountant("pld").guarantee(Ledger.planned([charge]), delta=self.delta).epsilon

        return ReleasePlan(shared, smallest_within(cost, self.epsilon, "noise_multiplier", 1.0))

    def _event(self, plan: ReleasePlan) -> ThresholdedSample:
        return ThresholdedSample(len(self.names) * self.failure, plan.charge.event.queries)

    @property
    def event(self) -> ThresholdedSample:
        return self._event(self.release_plan)

    def answered(self, table: Table, normals: Normals) -> Schema:
        """The schema. It has been charged; this is the only function that sees records."""
        cells, noise = Answering(table, "record", normals), self.release_plan.stddevs
        records = cells.units(noise[0])
        kinds = [
            _kind(cells.sums(_cell_kinds(table.column(name)), len(_KINDS), stddev), stddev)
            for name, stddev in zip(self.names, noise[1 : 1 + len(self.names)], strict=True)
        ]
        columns: list[Column] = []
        for name, kind, stddev in zip(self.names, kinds, noise[1 + len(self.names) :], strict=True):
            match kind:
                case "number":
                    columns.append(cells.column(Number(name, ask=("bounds", "bins")), stddev, self.failure))
                case "category":
                    columns.append(cells.column(Category(name, ask=("levels",)), stddev, self.failure))
                case "flag":
                    columns.append(Flag(name))
                case _:
                    columns.append(Ignored(name))
        return Schema(tuple(columns), self.dataset, records, target=self.target, source="asked of the table",
                      asked=("records", *self.names))  # fmt: skip


def _cell_kinds(cells: Cells) -> Contribution:
    """How each cell is written: as a number, a word for yes or no, or other text; nothing where it is missing."""
    text = [cell.lower() for cell in to_text(cells).tolist()]
    flag = Flag("any")
    words = {word for word in (*flag.yes, *flag.no) if word not in ("0", "1")}
    place = np.where(np.isfinite(to_numbers(cells)), 0, [1 if cell in words else 2 for cell in text])
    missing = np.array([cell in MISSING for cell in text])
    return Contribution(np.where(missing, -1, place).astype(np.int64), np.ones(len(text)))


def _kind(counts: Any, stddev: float) -> str | None:
    """The most frequent one; None if the noise may be all there is."""
    best = int(np.argmax(counts))
    return _KINDS[best] if counts[best] > _SEEN * stddev else None


def ask_draft(asked: OpenTable, table: Table, folder: RunFolder, randomness: "Randomness | None" = None) -> Schema:
    """Charge a ledger in the folder, ask, and keep the schema there; the manifest is written last."""
    from tacit.randomness import Randomness

    source = randomness or Randomness()
    folder.check_free()
    said = "nothing but the names of columns is taken as public"
    header = LedgerHeader(dataset=asked.dataset, epsilon=asked.epsilon, delta=asked.delta, randomness=source.kind,
                          assumptions=(said,))  # fmt: skip
    charges = [Charge(asked.event, 1)]
    facts: dict[str, Any] = {
        "format": FORMAT, "task": QUERIES, "queries": ["schema"], "dataset": asked.dataset, "unit": "record",
        "method": "Gaussian noise on exact sums", "epsilon": asked.epsilon, "delta": asked.delta, "warnings": [],
    }  # fmt: skip
    with folder.claimed(new=True):
        write_json(folder.facts, facts)
        with LedgerFile(folder.ledger, header) as file:
            charge_within(Budget(asked.epsilon, asked.delta), file, charges, planned=1)
        found = asked.answered(table, lambda count: source.normals(count).numpy())
        write_json(folder.facts, facts | {"schema": found.to_json()})
        folder.finish()
    return found
