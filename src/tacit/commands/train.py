"""``tacit train``: from a table to a private model that knows how sure it is, without writing code."""

import filecmp
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tacit.commands.output import console, print_json, say, warn_of_unreadable
from tacit.errors import InputError
from tacit.ledger import RegisteredLedger
from tacit.ledger.registry import read_registry
from tacit.storage.files import is_there
from tacit.tables import Method, Schema, Table, default_delta, encode, public_schema, read_schema, read_table

if TYPE_CHECKING:
    from tacit.reports import Headline
    from tacit.runs import Fitted, Histogram, RunFacts, RunFolder
    from tacit.tables import Encoded
    from tacit.training import TrainingPlan

_SHOWN = 20  # how often "epsilon so far" is computed


def train(
    data: Annotated[Path, typer.Argument(help="The private table: .csv, .tsv, .parquet or .npz.")],
    out: Annotated[Path, typer.Option(help="The run's folder: ledger, model and facts.")],
    target: Annotated[str | None, typer.Option(help="The column to predict; may stand in the schema.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The privacy budget of this run.")] = None,
    delta: Annotated[float | None, typer.Option(help="Below 1/n; by default 1e-5, or less for large tables.")] = None,
    schema: Annotated[Path | None, typer.Option(help="What is public about the table; tacit schema drafts it.")] = None,
    public: Annotated[Path | None, typer.Option(help="A public sample to take bounds and levels from.")] = None,
    records: Annotated[int | None, typer.Option(help="About how many records (with --unit: users) there are.")] = None,
    task: Annotated[str | None, typer.Option(help="classification or regression; checked against the schema.")] = None,
    method: Annotated[str | None, typer.Option(help="sgld (default), sghmc, bbp, dropout, vi or sgd.")] = None,
    model: Annotated[str | None, typer.Option(help="linear (default), mlp or MODULE:FACTORY.")] = None,
    unit: Annotated[str | None, typer.Option(help="record, or the column that says whose row it is.")] = None,
    budget: Annotated[Path | None, typer.Option(help="A ledger that several runs share.")] = None,
    budget_epsilon: Annotated[
        float | None, typer.Option(help="The total of --budget, given when it is opened.")
    ] = None,
    registry: Annotated[Path | None, typer.Option(help="The file that runs on this data enter themselves in.")] = None,
    bayesian_evidence: Annotated[
        bool, typer.Option("--bayesian-evidence", help="Gather private evidence, for tacit account --bayesian.")
    ] = False,
    public_test: Annotated[Path | None, typer.Option(help="Public test data: evaluates the model.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say every setting and why.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was interrupted.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train a private model on a table; nothing that is learned from it goes uncharged."""
    from tacit.runs import RunFolder

    folder = RunFolder(out)
    table = read_table(data, _declared_numbers(folder, schema, resume))
    if public_test is not None and public_test.is_file():
        _check_public(data, public_test)
    named = None if registry is None else folder.name_of(registry)
    asked = _Asked(target, epsilon, delta, method, model, unit, records, task, named)
    if resume:
        facts = _resumed(folder, asked)
        if bayesian_evidence and not facts.evidence:
            raise InputError("the run was started without --bayesian-evidence; its first steps cannot be gathered now")
    else:
        folder.check_free()
        facts = _planned(table, data, asked, schema, public, folder, budget, budget_epsilon)
        facts = replace(facts, evidence=bayesian_evidence)
    if facts.evidence and facts.shared_ledger is not None:
        raise InputError("--bayesian-evidence needs a ledger of its own; leave out --budget")
    _train(folder, facts, table, public_test, explain=explain, resume=resume, quiet=json)


def _declared_numbers(folder: "RunFolder", schema: Path | None, resume: bool) -> Sequence[str]:
    """What the schema calls numbers, to be read as such; with --public it is made of the table itself."""
    from tacit.runs import read_run

    if resume:
        return read_run(folder.path).problem.schema.numbers
    return () if schema is None else read_schema(schema).numbers


class _Asked:
    """The options of the command line that a schema or a run's folder may answer too."""

    def __init__(
        self, target: str | None, epsilon: float | None, delta: float | None, method: str | None, model: str | None,
        unit: str | None, records: int | None, task: str | None, registry: str | None,
    ) -> None:  # fmt: skip
        if task is not None and task not in ("classification", "regression"):
            raise InputError(f"--task must be classification or regression, found {task!r}")
        if method is not None and method not in get_args(Method):
            raise InputError(f"--method must be one of {', '.join(get_args(Method))}, found {method!r}")
        self.target, self.epsilon, self.delta, self.unit, self.records, self.task = (
            target, epsilon, delta, unit, records, task,
        )  # fmt: skip
        self.method, self.model, self.registry = method, model, registry


def _planned(
    table: Table,
    data: Path,
    asked: _Asked,
    schema_path: Path | None,
    public: Path | None,
    folder: "RunFolder",
    budget: Path | None,
    budget_epsilon: float | None,
) -> "RunFacts":
    """All public facts of the run, refused here if they do not fit together or the table lacks a column."""
    from tacit.runs import Problem, RunFacts

    schema = _schema(table, data, asked, schema_path, public)
    target = asked.target or schema.target
    if target is None:
        raise InputError("which column is to be predicted? give --target, or target = ... in the schema")
    for name in (target, schema.unit) if schema.unit != "record" else (target,):
        table.column(name)
    schema.check(target)
    if asked.task is not None and asked.task != schema.task(target):
        raise InputError(f"--task {asked.task}, but the schema declares {target!r} for {schema.task(target)}")
    for column in schema.features(target):
        table.column(column.name)
    if asked.epsilon is None:
        raise InputError("how much privacy may it cost? give --epsilon; 1 is a common choice")
    delta = default_delta(schema.units) if asked.delta is None else asked.delta
    shared = _shared_budget(budget, budget_epsilon, asked.epsilon)
    registry = asked.registry
    if registry is None and schema_path is not None and schema.registry is not None:
        registry = folder.name_of(schema_path.parent / schema.registry)
    problem = Problem(
        replace(schema, target=target, registry=None), target, asked.epsilon, delta,
        asked.method or "sgld", asked.model or "linear", shared is not None,  # type: ignore[arg-type]
    )  # fmt: skip
    _ = problem.recipe  # refuses bad numbers before anything is written
    named = None if budget is None else folder.name_of(budget)
    return RunFacts(problem, shared_ledger=named, shared_epsilon=shared, registry=registry)


def _schema(table: Table, data: Path, asked: _Asked, path: Path | None, public: Path | None) -> Schema:
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
    return schema.with_facts(unit=unit, **counted)


def _shared_budget(ledger: Path | None, total: float | None, epsilon: float) -> float | None:
    """The total of a shared ledger: declared when it is opened, read from it afterwards."""
    from tacit.accountants import Budget
    from tacit.ledger import read_ledger

    if ledger is None:
        if total is not None:
            raise InputError("--budget-epsilon is the total of a shared ledger; name it with --budget")
        return None
    if ledger.is_dir():
        raise InputError(f"--budget {ledger} is a folder; name a ledger file")
    if not ledger.exists():
        if total is None:
            raise InputError(
                f"{ledger} does not exist yet; open it with its total, as in --budget-epsilon {2 * epsilon:g}"
            )
        return total
    found = Budget.of(read_ledger(ledger))
    if found is None:
        raise InputError(f"{ledger} declares no budget, so nothing can be shared of it")
    if total is not None and total != found.epsilon:
        raise InputError(f"{ledger} was opened with a total of {found.epsilon:g}, --budget-epsilon says {total:g}")
    return found.epsilon


def _resumed(folder: "RunFolder", asked: _Asked) -> "RunFacts":
    """The facts of an interrupted run. Options may be repeated, but not changed."""
    from tacit.runs import read_run

    facts = read_run(folder.path)
    folder.check_unfinished()
    problem = facts.problem
    told = {"target": problem.target, "epsilon": problem.epsilon, "delta": problem.delta, "method": problem.method,
            "model": problem.model, "unit": problem.schema.unit, "records": problem.schema.units,
            "task": problem.task, "registry": facts.registry}  # fmt: skip
    for name, value in told.items():
        if getattr(asked, name) not in (None, value):
            raise InputError(f"the run was started with {name} {value}; --{name} cannot change now")
    _check_ledger_is_there(folder, facts)
    return facts


def _check_ledger_is_there(folder: "RunFolder", facts: "RunFacts") -> None:
    """Going on never makes a ledger: what was charged to the missing one would be forgotten."""
    shared = folder.shared_ledger(facts)
    if shared is not None and not shared.exists():
        raise InputError(f"the run shares the ledger {shared}, which is not there; put it back to go on")
    if shared is None and not folder.ledger.exists():
        raise InputError(f"{folder.path} has no ledger: nothing was charged, start without --resume, or put it back")


def _train(
    folder: "RunFolder", facts: "RunFacts", table: Table, public_test: Path | None, *,
    explain: bool, resume: bool, quiet: bool,
) -> None:  # fmt: skip
    from tacit.accountants import Budget
    from tacit.runs import check_budget, fit, training_plan

    problem = facts.problem
    private = encode(table, problem.schema, problem.target)
    warn_of_unreadable(table, problem.schema, problem.target, "for the data holder alone: ")
    if public_test is not None:
        facts = replace(facts, public_test=str(public_test.absolute()))
    test = None if facts.public_test is None else _test_data(Path(facts.public_test), facts)
    if test is not None:
        _say_shared_rows(private, test)
    budget = None if facts.shared_epsilon is None else Budget(facts.shared_epsilon, problem.delta)
    plan = training_plan(problem, folder.place_of_ledger(facts), budget)
    if isinstance(plan.ledger, RegisteredLedger) and is_there(Path(plan.ledger.registry)):
        read_registry(plan.ledger.registry)  # another file, or a damaged one, is refused before anything is written
    if not resume:
        check_budget(problem, plan)
    if explain and not quiet:
        _explain(facts)
    if not quiet:
        _warn(problem.recipe.warnings)
    with folder.claimed(new=not resume):
        if not resume:
            folder.write_json(folder.facts, facts.to_json())
        started = time.perf_counter()
        with _progress(facts, plan, shown=not quiet) as on_step, _saying_how_to_go_on(folder):
            fitted = fit(
                problem, private, plan, probes=test if facts.evidence else None, members=facts.evidence,
                on_step=on_step, checkpoint=folder.checkpoint, resume=resume, histogram=_histogram(folder, facts),
            )  # fmt: skip
            facts = facts.finished(fitted, time.perf_counter() - started)
            _save(folder, facts, fitted, plan, test)
    _finish(folder, facts, fitted, quiet)


def _histogram(folder: "RunFolder", facts: "RunFacts") -> "Histogram":
    """How far the run came with its residuals, and how it notes in run.json that it goes further."""
    from tacit.runs import Histogram

    begun = replace(facts, spread_begun=True)
    return Histogram(
        facts.spread,
        facts.spread_begun,
        begin=lambda: folder.write_json(folder.facts, begun.to_json()),
        keep=lambda spread: folder.write_json(folder.facts, replace(begun, spread=spread).to_json()),
    )


def _save(
    folder: "RunFolder", facts: "RunFacts", fitted: "Fitted", plan: "TrainingPlan", test: "Encoded | None"
) -> None:
    """What the run leaves behind. First what was released and would have to be paid for again."""
    from tacit.runs import Predictor, evaluate

    folder.write_json(folder.facts, facts.to_json())
    fitted.posterior.save(folder.posterior)
    if facts.shared_ledger is not None:
        _copy_ledger(Path(plan.ledger), folder.ledger)
    if test is not None and facts.public_test is not None:
        predictor = Predictor(facts.problem, fitted.posterior, fitted.spread)
        folder.write_json(folder.evaluation, evaluate(predictor, test, facts.public_test))
    folder.finish()


def _warn(sentences: Sequence[str]) -> None:
    for sentence in sentences:
        say(f": {sentence}", head="warning")


def _say_shared_rows(private: "Encoded", test: "Encoded") -> None:
    """To the data holder alone, and nowhere kept: the count follows the private table."""
    ours = set(_rows(private))
    shared = sum(row in ours for row in _rows(test))
    if shared:
        typer.echo(
            f"tacit: warning: {shared:,} of {len(test.inputs):,} rows of --public-test are in the private table too: "
            "are they public? scores on them say little",
            err=True,
        )


def _rows(data: "Encoded") -> Iterator[bytes]:
    return (features.tobytes() + target.tobytes() for features, target in zip(data.inputs, data.targets, strict=True))


def _check_public(data: Path, test: Path) -> None:
    """Scores on the private table would be released without a charge."""
    if test.samefile(data) or filecmp.cmp(data, test, shallow=False):
        raise InputError(f"--public-test {test} is the private table itself, or a copy of it; give public data")


def _test_data(path: Path, facts: "RunFacts") -> "Encoded":
    """Public test data, read by the same schema."""
    schema = facts.problem.schema
    return encode(read_table(path, schema.numbers), schema, facts.problem.target, public=True)


def _copy_ledger(shared: Path, own: Path) -> None:
    """The run's folder keeps the shared ledger as it stands, with its head, so that it can be accounted for.

    The head is read first: other runs go on charging, and a head that is ahead of its ledger looks like a rollback.
    """
    from tacit.storage.append_only import head_path
    from tacit.storage.files import read_bytes, replace_file

    head, data = read_bytes(head_path(shared)), read_bytes(shared)
    if head is None or data is None:
        raise InputError(f"the shared ledger {shared} was removed while the run went on; put it back and use --resume")
    replace_file(own, data)
    replace_file(head_path(own), head)


@contextmanager
def _saying_how_to_go_on(folder: "RunFolder") -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        go_on = f"tacit train DATA --resume --out {folder.path}"
        typer.echo(f"tacit: stopped; what was paid for is kept. Go on with: {go_on}", err=True)
        raise


@contextmanager
def _progress(facts: "RunFacts", plan: "TrainingPlan", *, shown: bool) -> Iterator[Callable[[int], None]]:
    """A bar with epsilon so far, which holds if a stop ignores the outputs."""
    from tacit.accountants import get_accountant
    from tacit.ledger import Charge, GaussianSumQuery, Ledger, PoissonSample

    settings, delta = facts.problem.recipe, facts.problem.delta
    event = PoissonSample(settings.probability, (GaussianSumQuery(1.0, settings.noise_multiplier),))
    accountant = get_accountant("rdp" if facts.shared_ledger else "pld")
    every = max(1, settings.steps // _SHOWN)

    def so_far(steps: int) -> float:
        return accountant.guarantee(Ledger.planned([Charge(event, steps)]), delta=delta).epsilon

    columns = (
        TextColumn("training privately"), BarColumn(), MofNCompleteColumn(),
        TextColumn("epsilon so far {task.fields[epsilon]:.3f}"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, disable=not shown or not sys.stdout.isatty(), transient=True, console=console) as bar:
        task = bar.add_task("", total=settings.steps, epsilon=0.0)

        def on_step(step: int) -> None:
            if not bar.disable and (step + 1) % every == 0:
                bar.update(task, completed=step + 1, epsilon=so_far(step + 1))

        yield on_step


def _explain(facts: "RunFacts") -> None:
    from rich.table import Table as Shown

    problem = facts.problem
    shown = Shown(
        title=f"Settings of {problem.method} on {problem.schema.dataset}", title_justify="left", title_style="bold"
    )
    shown.add_column("setting")
    shown.add_column("value", justify="right")
    shown.add_column("why")
    shown.add_row("features", str(problem.features), "of the declared columns, with a bias; each record has norm 1")
    for setting in problem.recipe.settings:
        value = f"{setting.value:.6g}" if isinstance(setting.value, int | float) else str(setting.value)
        shown.add_row(setting.name, value, setting.why)
    console.print(shown)
    console.print(
        "These follow from public numbers alone; nothing was tried out on the private data.\n", highlight=False
    )


def _finish(folder: "RunFolder", facts: "RunFacts", fitted: "Fitted", quiet: bool) -> None:
    from tacit.accountants import guarantees
    from tacit.reports import headline

    results = guarantees(fitted.ledger, facts.problem.delta)
    evaluation = _read_json(folder.evaluation)
    if quiet:
        print_json(
            {"out": str(folder.path), "guarantees": [result.to_json() for result in results], "evaluation": evaluation,
             "run": facts.to_json()}
        )  # fmt: skip
        return
    _warn(facts.warnings[len(facts.problem.recipe.warnings) :])
    for head, text in _summary(folder, facts, headline(fitted.ledger, results), evaluation):
        say(text, head=head)


def _read_json(path: Path) -> dict[str, Any] | None:
    import json

    return json.loads(path.read_text()) if path.exists() else None


def _summary(
    folder: "RunFolder", facts: "RunFacts", said: "Headline", evaluation: dict[str, Any] | None
) -> Iterator[tuple[str, str]]:
    """What a person wants to know at the end."""
    problem = facts.problem
    who = "anybody's record" if problem.schema.unit == "record" else "all records of any one user"
    best = said.guarantee
    if best is not None and best.is_bound and said.attack is not None:
        yield (
            "Privacy",
            f": epsilon {best.epsilon:.3f} at delta {best.delta:g} ({best.accountant}, {best.unit}). "
            f"Whoever sees the model and knows everything else guesses right with a chance of at most "
            f"{said.attack:.1%} whether {who} was in the data, at even odds beforehand; 50% is a coin.",
        )
        for sentence in best.assumptions:
            yield "", f"  - {sentence}"
    if facts.effective_temperature is not None and facts.effective_temperature > 1.05:
        yield (
            "Certainty",
            f": the posterior has temperature {facts.effective_temperature:.2f}; above 1 it is wider "
            "than the exact one, the price of privacy.",
        )
    yield from _how_good(problem.task, evaluation)
    yield (
        f"{folder.path}/",
        f" holds the model, the ledger and run.json ({facts.seconds:g} s). Next: "
        f"tacit predict {folder.path} NEW.csv --out predictions.csv, tacit report {folder.path}",
    )


def _baseline(evaluation: dict[str, Any]) -> str:
    """What always saying the most frequent class would reach, and how much of a rare one is found."""
    always, rare = evaluation.get("accuracy_of_the_most_frequent"), evaluation.get("detection")
    words = "" if always is None else f" (always saying the most frequent: {always:.2%})"
    if rare is None:
        return words
    return f"{words}; of “{rare['rare']}” {rare['sensitivity']:.1%} are found, AUC {rare['auc']:.3f}"


def _how_good(task: str, evaluation: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    if evaluation is None:
        yield "How good", ": not known. Scores on private data would leak; give --public-test FILE to learn it."
    elif task == "classification":
        surest = evaluation["selective"]
        best = min(range(len(surest["kept"])), key=lambda i: abs(surest["kept"][i] - 0.8))
        yield (
            "How good",
            f": {evaluation['accuracy']:.2%} of {evaluation['records']:,} public test records are "
            f"right{_baseline(evaluation)}; calibration error {evaluation['ece']:.3f}; of the 80% it is surest of, "
            f"{surest['accuracy'][best]:.1%} are right.",
        )
    else:
        held = dict(zip(evaluation["coverage"]["level"], evaluation["coverage"]["held"], strict=True))
        yield (
            "How good",
            f": root mean squared error {evaluation['rmse']:.4g} on {evaluation['records']:,} public "
            f"test records (a constant: {evaluation['rmse_of_a_constant']:.4g}); its 95% intervals hold "
            f"{held[0.95]:.1%} of them.",
        )
