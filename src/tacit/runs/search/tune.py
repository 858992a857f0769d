"""``tacit.tune``: settings searched for on private records, in one charge."""

from os import PathLike
from pathlib import Path

from tacit.errors import InputError
from tacit.randomness import Randomness
from tacit.runs.facts import RunFacts
from tacit.runs.folder import RunFolder
from tacit.runs.problem import Problem
from tacit.runs.shared_budget import shared_total
from tacit.runs.whole_run import TrainedTable, train_table
from tacit.tables import Method, Schema, Search, Table, default_delta, encode, read_schema, read_table


def tune(
    table: Table | str | PathLike[str],
    *,
    schema: Schema | str | PathLike[str],
    epsilon: float,
    out: str | PathLike[str],
    target: str | None = None,
    delta: float | None = None,
    search: Search | None = None,
    method: Method = "sgld",
    model: str = "linear",
    hold_out: float = 0.0,
    budget: str | PathLike[str] | None = None,
    budget_epsilon: float | None = None,
    registry: str | PathLike[str] | None = None,
    resume: bool = False,
    randomness: Randomness | None = None,
) -> TrainedTable:
    """Try settings on a private table and release the best model; all trials together cost (epsilon, delta).

    The number of trials is drawn and stays secret; each has settings drawn from ``search`` and a noisy score
    (docs/tuning.md). With the default settings alone, at the same epsilon: ``tacit train``.

    Args:
        table: a table or its file.
        schema: declared columns, or the path of a schema file.
        out: the run's folder; ``tacit predict``, ``account``, ``report`` and ``release`` read it.
        target: the column to predict; may stand in the schema.
        search: what is tried, how often, and how it is scored.
        hold_out: share of the units that no trial sees, for a private score of the best one.
        budget, budget_epsilon: a ledger that several runs share, and its total when it is opened.
        registry: the file that runs on this data enter themselves in.
        resume: go on with a search that was stopped.

    Raises:
        InputError: the schema, the table or the grid does not fit; nothing was written and nothing charged.
        BudgetError: the shared ledger does not pay for it.
    """
    folder = RunFolder(Path(out))
    if resume:
        facts = folder.read_facts()
        folder.check_unfinished()
    else:
        folder.check_free()
        declared = schema if isinstance(schema, Schema) else read_schema(Path(schema))
        goal = target or declared.target
        if goal is None:
            raise InputError("which column is to be predicted? give target=..., or target = ... in the schema")
        shared = None if budget is None else Path(budget)
        total = shared_total(shared, budget_epsilon, epsilon)
        problem = Problem(
            declared, goal, epsilon, delta or default_delta(declared.units), method, model, total is not None, hold_out,
            search or Search(),
        )  # fmt: skip
        problem.check_search()
        facts = RunFacts(
            problem, shared_ledger=None if shared is None else folder.name_of(shared), shared_epsilon=total,
            registry=None if registry is None else folder.name_of(Path(registry)),
        )  # fmt: skip
    if facts.problem.search is None:
        raise InputError(f"{folder.path} holds no search; go on with tacit train")
    problem = facts.problem
    cells = table if isinstance(table, Table) else read_table(Path(table), problem.schema.numbers)
    return train_table(
        facts, encode(cells, problem.schema, problem.target), folder, resume=resume, randomness=randomness
    )
