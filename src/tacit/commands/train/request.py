"""What a user asked of ``tacit train``, as the public facts of a run: options, schema and shared budget joined."""

import filecmp
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from tacit.commands.continued import check_unchanged
from tacit.errors import InputError
from tacit.runs import Problem, RunFacts, RunFolder
from tacit.runs.shared_budget import registry_name, shared_total
from tacit.tables import Method, Schema, Search, Table, default_delta, public_schema, read_schema, read_table
from tacit.tables.columns import source_of
from tacit.tables.files import to_number


@dataclass(frozen=True, slots=True)
class Request:
    """The options of the command line that a schema or a run's folder may answer too."""

    target: str | None
    epsilon: float | None
    delta: float | None
    method: str | None
    model: str | None
    unit: str | None
    records: int | None
    task: str | None
    registry: str | None
    hold_out: float | None = None
    search: Search | None = None
    sample_weight: str | None = None
    class_weight: dict[str, float] | None = None

    def __post_init__(self) -> None:
        if self.task is not None and self.task not in ("classification", "regression"):
            raise InputError(f"--task must be classification or regression, found {self.task!r}")
        if self.method is not None and self.method not in get_args(Method):
            raise InputError(f"--method must be one of {', '.join(get_args(Method))}, found {self.method!r}")


def new_run(
    table: Table,
    data: Path,
    asked: Request,
    schema_path: Path | None,
    public: Path | None,
    folder: RunFolder,
    budget: Path | None,
    budget_epsilon: float | None,
) -> RunFacts:
    """All public facts of the run, refused here if they do not fit together or the table lacks a column."""
    schema = schema_of(table, data, asked, schema_path, public)
    target = asked.target or schema.target
    if target is None:
        raise InputError("which column is to be predicted? give --target, or target = ... in the schema")
    for name in {target, schema.unit, schema.sample_weight} - {"record", None}:
        table.column(str(name))
    for column in schema.features(target):
        table.column(source_of(column))
    if asked.epsilon is None:
        raise InputError("how much privacy may it cost? give --epsilon; 1 is a common choice")
    if asked.task is not None and asked.task != schema.task(target):
        raise InputError(f"--task {asked.task}, but the schema declares {target!r} for {schema.task(target)}")
    registry = registry_name(asked.registry, schema, schema_path, folder)
    shared = shared_total(budget, budget_epsilon, asked.epsilon)
    if schema.questions:
        if asked.search is not None:
            raise InputError("a schema that leaves something to ask for needs tacit train; or tacit schema --ask first")
        total = None if budget is None or shared is None else (folder.name_of(budget), shared)
        return _run_with_open_schema(table, asked, schema, target, folder, registry, total)
    schema.check(target)
    problem = problem_of(asked, schema, target, default_delta(schema.units), shared is not None)
    _ = problem.recipe  # refuses bad numbers before anything is written
    problem.check_search()
    named = None if budget is None else folder.name_of(budget)
    return RunFacts(problem, shared_ledger=named, shared_epsilon=shared, registry=registry)


def problem_of(asked: Request, schema: Schema, target: str, delta: float, shared: bool) -> Problem:
    assert asked.epsilon is not None
    return Problem(
        replace(schema, target=target, registry=None), target, asked.epsilon, asked.delta or delta,
        asked.method or "sgld", asked.model or "linear", shared,  # type: ignore[arg-type]
        asked.hold_out or 0.0, asked.search,
    )  # fmt: skip


def _run_with_open_schema(
    table: Table, asked: Request, schema: Schema, target: str, folder: RunFolder, registry: str | None,
    shared: tuple[str, float] | None,
) -> RunFacts:  # fmt: skip
    """The facts of a run whose schema was filled in by a charged release, the first of its ledger."""
    from tacit.queries.questions import DELTA, Questions
    from tacit.queries.schema_run import begin_with_questions

    delta = DELTA if schema.ask_units else default_delta(schema.units)
    assert asked.epsilon is not None
    questions = Questions(replace(schema, target=target, registry=None), asked.epsilon, asked.delta or delta)
    return begin_with_questions(
        questions, table, folder, lambda filled: problem_of(asked, filled, target, delta, shared is not None),
        registry=registry, shared=shared,
    )  # fmt: skip


def schema_of(table: Table, data: Path, asked: Request, path: Path | None, public: Path | None) -> Schema:
    if path is not None and public is not None:
        raise InputError("give either --schema or --public")
    if path is not None:
        schema = read_schema(path)
    elif public is not None:
        schema = public_schema(read_table(public), table.names, public, asked.target).with_facts(dataset=data.stem)
    else:
        raise InputError(
            "bounds, levels and classes must not be learned from private data; "
            f"draft a schema with: tacit schema {data} --out schema.toml (or give --public FILE)"
        )
    unit = asked.unit or schema.unit
    counted = {} if asked.records is None else {"records" if unit == "record" else "users": asked.records}
    weights = {"sample_weight": asked.sample_weight, "class_weight": asked.class_weight}
    return schema.with_facts(unit=unit, ask_units=False if counted else None, **weights, **counted)


def interrupted_run(folder: RunFolder, asked: Request, table: Table) -> RunFacts:
    """The facts of an interrupted run. Options may be repeated, but not changed."""
    facts = folder.read_facts()
    folder.check_unfinished()
    problem = facts.problem
    known = {"target": problem.target, "epsilon": problem.epsilon, "delta": problem.delta, "method": problem.method,
            "model": problem.model, "unit": problem.schema.unit,
            "records": None if facts.asking else problem.schema.units,
            "task": problem.task, "registry": facts.registry, "hold_out": problem.hold_out,
            "search": problem.search, "sample_weight": problem.schema.sample_weight,
            "class_weight": dict(problem.schema.class_weight)}  # fmt: skip
    check_unchanged(known, {name: getattr(asked, name) for name in known})
    if facts.asking:
        from tacit.queries.schema_run import go_on_asking

        return go_on_asking(facts, table, folder)
    _check_ledger_is_there(folder, facts)
    return facts


def _check_ledger_is_there(folder: RunFolder, facts: RunFacts) -> None:
    """Going on never makes a ledger: what was charged to the missing one would be forgotten."""
    shared = folder.shared_ledger(facts)
    if shared is not None and not shared.exists():
        raise InputError(f"the run shares the ledger {shared}, which is not there; put it back to go on")
    if shared is None and not folder.ledger.exists():
        raise InputError(f"{folder.path} has no ledger: nothing was charged, start without --resume, or put it back")


def share_of(text: str | None) -> float | None:
    """A share as people write it.

    Example:
        >>> share_of("20%"), share_of(".2")
        (0.2, 0.2)
    """
    if text is None:
        return None
    number = to_number(text.strip().removesuffix("%"))
    share = number / 100 if text.strip().endswith("%") else number
    if not 0 < share < 1:
        raise InputError(f"--hold-out is a share of the records, as in 20% or .2, found {text!r}")
    return share


def weights_of(text: str | None) -> dict[str, float] | None:
    """Weights of classes as people write them.

    Example:
        >>> weights_of("no=1,yes=3.5")
        {'no': 1.0, 'yes': 3.5}
    """
    if text is None:
        return None
    pairs = [part.rpartition("=") for part in text.split(",")]
    found = {name.strip(): to_number(number) for name, _, number in pairs}
    if "" in found or len(found) < len(pairs) or not all(weight > 0 for weight in found.values()):
        raise InputError(f"--class-weight takes a weight above 0 for each class, as in no=1,yes=3, found {text!r}")
    return found


def check_public(data: Path, test: Path) -> None:
    """Scores on the private table would be released without a charge."""
    if test.samefile(data) or filecmp.cmp(data, test, shallow=False):
        raise InputError(f"--public-test {test} is the private table itself, or a copy of it; give public data")
