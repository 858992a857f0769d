"""Ask a private table: charge the ledger, release noisy sums, and say what they say, in a run's folder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.accountants import Budget, BudgetGate, Guarantee, Refusal, guarantees
from tacit.accountants.budget import charge_within
from tacit.errors import InputError
from tacit.ledger import Ledger, LedgerFile, LedgerHeader, RegisteredLedger, is_begun, ledger_so_far, read_ledger
from tacit.queries.answers import Answer
from tacit.queries.kept_key import drawn_once, forgotten_if_refused, keep_key, kept_request, note_charge
from tacit.queries.kinds.levels import Levels
from tacit.queries.release import ReleasePlan, release, unit_weights
from tacit.queries.request import QueryRequest
from tacit.runs import RunFolder
from tacit.runs.facts import FORMAT, QUERIES
from tacit.runs.shared_budget import shared_total
from tacit.storage.files import is_there
from tacit.storage.json_files import read_json, write_json
from tacit.tables import Schema, Table, read_schema, read_table
from tacit.tables.columns import MOST_LEVELS
from tacit.tables.encoding import as_declared
from tacit.tables.files import to_text
from tacit.types import Floats

if TYPE_CHECKING:
    from tacit.randomness import Randomness


@dataclass(frozen=True, slots=True)
class Answers:
    """All answers with the ledger that says what they cost. Public."""

    asked: QueryRequest
    answers: tuple[Answer, ...]
    ledger: Ledger

    def __iter__(self) -> Any:
        return iter(self.answers)

    @property
    def guarantees(self) -> list[Guarantee | Refusal]:
        return guarantees(self.ledger, self.asked.header("secure").delta or self.asked.delta)

    def to_json(self) -> dict[str, Any]:
        return {
            "answers": [answer.to_json() for answer in self.answers],
            "guarantees": [result.to_json() for result in self.guarantees],
        }


def ask(
    table: Table | str | PathLike[str],
    *queries: str,
    schema: Schema | str | PathLike[str],
    epsilon: float,
    out: str | PathLike[str],
    delta: float | None = None,
    level: float = 0.95,
    shares: Sequence[float] = (),
    budget: str | PathLike[str] | None = None,
    budget_epsilon: float | None = None,
    registry: str | PathLike[str] | None = None,
    randomness: "Randomness | None" = None,
) -> Answers:
    """Answer queries about a private table with noise, within a budget; the ledger is charged before data is touched.

    Args:
        table: a table or its file.
        queries: in words, such as ``"mean:age"`` (docs/queries.md).
        schema: declared columns, or the path of a schema file.
        epsilon, delta: what all queries may cost together.
        out: the run's folder; ``tacit account``, ``report`` and ``ledger`` read it.
        level: of the intervals.
        shares: how much of the precision each query gets; equal ones by default.
        budget, budget_epsilon: a ledger that several runs share, and its total when it is opened.
        registry: the file that runs on this data enter themselves in.
        randomness: secure by default; a seeded one marks the run.

    Raises:
        InputError: a query, the schema or the table does not fit; nothing was written and nothing charged.
        BudgetError: the shared ledger does not pay for it.

    Example:
        >>> import tempfile, numpy as np
        >>> from tacit.tables import Number
        >>> people = Table({"age": np.arange(1000) % 80})
        >>> declared = Schema((Number("age", 0, 100),), records=1000)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     count, mean = ask(people, "count", "mean:age", schema=declared, epsilon=1.0, out=f"{folder}/run")
        >>> 940 < count.value < 1060, mean.query, mean.low < mean.value < mean.high
        (True, 'mean:age', True)
    """
    declared = schema if isinstance(schema, Schema) else read_schema(Path(schema))
    folder, shared = RunFolder(Path(out)), None if budget is None else Path(budget)
    total = shared_total(shared, budget_epsilon, epsilon)
    spent = None if total is None else Budget(total, delta or QueryRequest(declared, queries, epsilon).delta)
    asked = QueryRequest(declared, queries, epsilon, delta or 0.0, level, tuple(shares), spent)
    cells = table if isinstance(table, Table) else read_table(Path(table), declared.numbers)
    return answer(asked, cells, folder, shared, None if registry is None else Path(registry), randomness)


def answer(
    asked: QueryRequest,
    table: Table,
    folder: RunFolder,
    shared: Path | None = None,
    registry: Path | None = None,
    randomness: "Randomness | None" = None,
) -> Answers:
    """Every check comes before the first file and the first charge; the manifest is written last."""
    table = as_declared(table, asked.schema)
    asked.check_table(table)
    folder.check_free()
    header = asked.header("secure" if randomness is None else randomness.kind)
    _check_budget(asked, shared, header)
    with folder.claimed(new=True):
        named = None if shared is None else folder.name_of(shared)
        entered = None if registry is None else folder.name_of(registry)
        write_json(folder.facts, run_facts(asked, named) | {"registry": entered})
        folder.check_room(_room(asked, shared))
        if randomness is None:
            keep_key(folder, table, asked.to_json())
        return _answered(asked, table, folder, named, entered, randomness, charged=False)


def go_on(table: Table | str | PathLike[str], out: str | PathLike[str]) -> Answers:
    """The answers of queries that were stopped, the very same that they would have had; nothing is paid for twice."""
    folder = RunFolder(Path(out))
    folder.check_unfinished()
    facts = read_json(folder.facts, FORMAT)
    if facts is None or facts.value("task") != QUERIES:
        raise InputError(f"{folder.path} holds no queries that were stopped")
    request = kept_request(folder)
    asked = QueryRequest.from_json(request)
    cells = table if isinstance(table, Table) else read_table(Path(table), asked.schema.numbers)
    cells = as_declared(cells, asked.schema)
    asked.check_table(cells)
    shared, registry = facts.text("shared_ledger", "") or None, facts.text("registry", "") or None
    own = shared is None and is_begun(folder.ledger) and bool(read_ledger(folder.ledger).charges)
    with folder.claimed(new=False):
        return _answered(asked, cells, folder, shared, registry, None, charged=own or request.get("charged") is True)


def _answered(
    asked: QueryRequest, table: Table, folder: RunFolder, shared: str | None, registry: str | None,
    randomness: "Randomness | None", *, charged: bool,
) -> Answers:  # fmt: skip
    """Charge, draw and keep. Of a shared ledger nobody can tell whose a charge is, so that the run notes its own."""
    place = folder.ledger if shared is None else folder.path / shared
    header = asked.header("secure" if randomness is None else randomness.kind)
    named = place if registry is None else RegisteredLedger(place, folder.path / registry)
    if charged:
        ledger = read_ledger(place)
        if all(one.event != asked.charge.event for one in ledger.charges):
            raise InputError(f"{folder.asking} asks for what {place} was not charged for; what was charged stays so")
    else:
        with forgotten_if_refused(folder):
            ledger = _charge(asked, named, header)
        note_charge(folder)
    found = drawn_once(
        folder, table, randomness,
        lambda normals: [one.to_json() for one in released_answers(asked, table, normals)],
    )  # fmt: skip
    if shared is not None:
        folder.keep_shared_ledger(place)
    write_json(folder.facts, run_facts(asked, shared) | {"answers": found})
    folder.finish()
    return Answers(asked, tuple(Answer(**one) for one in found), ledger)


def _room(asked: QueryRequest, shared: Path | None) -> int:
    """Bytes for the ledger, the answers, which are some 300 each, and a copy of a shared ledger; levels may be many."""
    copied = 0 if shared is None or not is_there(shared) else shared.stat().st_size
    levels = sum(300 * MOST_LEVELS for query in asked.queries if isinstance(query, Levels))
    return (1 << 16) + 1000 * sum(len(query.parts) for query in asked.queries) + 2 * levels + 2 * copied


def released_answers(asked: QueryRequest, table: Table, normals: Callable[[int], Floats]) -> tuple[Answer, ...]:
    """Sums with noise, and what follows from them; all of it has been charged."""
    weights, parts, found = weights_of(asked.schema, table), list(asked.plan.parts), list[Answer]()
    for query in asked.queries:
        mine, parts = ReleasePlan(tuple(parts[: len(query.parts)]), asked.plan.multiplier), parts[len(query.parts) :]
        if isinstance(query, Levels):
            owners = None if weights is None else to_text(table.column(asked.schema.unit))
            found += query.discovered(table, owners, mine.stddevs[0], asked.failure, normals, asked.level)
        else:
            found += query.answers(release(mine, query.contributions(table), weights, normals), asked.level)
    return tuple(found)


def weights_of(schema: Schema, table: Table) -> Floats | None:
    """Of rows: one over how many their owner has, where owners are protected."""
    return None if schema.unit == "record" else unit_weights(to_text(table.column(schema.unit)))


def _check_budget(asked: QueryRequest, shared: Path | None, header: LedgerHeader) -> None:
    """Before there is a file: a shared ledger that cannot pay is left as it is."""
    spent = Ledger(header) if shared is None else ledger_so_far(shared, header)
    BudgetGate(Budget.of(spent) or Budget(asked.epsilon, asked.delta))(spent, [asked.charge])


def _charge(asked: QueryRequest, place: Path | RegisteredLedger, header: LedgerHeader) -> Ledger:
    budget = asked.shared or Budget(asked.epsilon, asked.delta)
    with LedgerFile(place, header) as file:
        charge_within(budget, file, [asked.charge], planned=1)
        return file.ledger


def run_facts(asked: QueryRequest, shared_ledger: str | None) -> dict[str, Any]:
    """What run.json says before a record is touched."""
    schema, shares = asked.schema, {part.name: part.share for part in asked.plan.parts}
    return {
        "format": FORMAT,
        "task": QUERIES,
        "queries": list(asked.texts),
        "dataset": schema.dataset,
        "n_records": asked.units,
        "unit": "record" if schema.unit == "record" else "user",
        "method": "Gaussian noise on exact sums",
        "epsilon": asked.epsilon,
        "delta": asked.delta,
        "level": asked.level,
        "settings": [
            {"name": "noise of all releases", "value": asked.plan.multiplier,
             "why": "the least multiplier with which all of them stay within epsilon"},
            *({"name": f"noise on {name}", "value": stddev, "why": f"share {shares[name]:.3g} of the precision"}
              for name, stddev in zip(shares, asked.plan.stddevs, strict=True)),
        ],
        "warnings": [],
        "schema": schema.to_json() | {"registry": None},
        "shared_ledger": shared_ledger,
        "shared_epsilon": None if asked.shared is None else asked.shared.epsilon,
    }  # fmt: skip
