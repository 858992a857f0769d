"""``tacit train``: from a table to a private model that knows how sure it is, without writing code."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tacit.accountants import get_accountant
from tacit.commands.output import console, warn_of_unreadable
from tacit.commands.train.outcome import explain_settings, say_outcome, warn
from tacit.commands.train.plan import planned_run, say_plan
from tacit.commands.train.request import Request, check_public, interrupted_run, new_run, share_of, weights_of
from tacit.errors import InputError
from tacit.ledger import Charge, GaussianSumQuery, Ledger, PoissonSample
from tacit.runs import RunFacts, RunFolder
from tacit.storage.files import is_there
from tacit.tables import Encoded, Table, encode, read_schema, read_table
from tacit.tables.checks import shared_rows


def train(
    data: Annotated[Path, typer.Argument(help="The private table: .csv, .tsv, .parquet or .npz.")],
    out: Annotated[Path | None, typer.Option(help="The run's folder: ledger, model and facts.")] = None,
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
    hold_out: Annotated[
        str | None, typer.Option(help="Keep this share of the records (20%) from training, for a private score.")
    ] = None,
    sample_weight: Annotated[
        str | None, typer.Option(help="The declared number column that says how much each record counts.")
    ] = None,
    class_weight: Annotated[str | None, typer.Option(help="How much each class counts, as in no=1,yes=3.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say every setting and why.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say how good it may become, from made-up records alone, and stop.")
    ] = False,
    best: Annotated[
        float, typer.Option(help="With --plan: how often the best classifier would be right, as you assume.")
    ] = 0.85,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was interrupted.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train a private model on a table; nothing that is learned from it goes uncharged."""
    from tacit.runs import train_table

    if out is None and not plan:
        raise InputError("where should the run go? give --out, or --plan to see what to expect")
    folder = RunFolder(out or Path("run"))
    table = read_table(data, declared_numbers(folder, schema, resume=resume))
    if public_test is not None and public_test.is_file():
        check_public(data, public_test)
    named = None if registry is None else folder.name_of(registry)
    asked = Request(
        target, epsilon, delta, method, model, unit, records, task, named, share_of(hold_out),
        sample_weight=sample_weight, class_weight=weights_of(class_weight),
    )  # fmt: skip
    if resume:
        facts = _resumed(folder, asked, table, bayesian_evidence=bayesian_evidence)
    elif plan:
        say_plan(planned_run(table, data, asked, schema, public), best, as_json=json)
        return
    else:
        folder.check_free()
        if public_test is not None:
            read_table(public_test)  # before anything is asked and charged for
        facts = new_run(table, data, asked, schema, public, folder, budget, budget_epsilon)
        facts = replace(facts, evidence=bayesian_evidence)
    if facts.evidence and facts.shared_ledger is not None:
        raise InputError("--bayesian-evidence needs a ledger of its own; leave out --budget")
    if public_test is not None:
        facts = replace(facts, public_test=str(public_test.absolute()))
    private, test = records_of(table, facts)
    del table  # what is left of it are the features
    if explain and not json:
        explain_settings(facts)
    if not json:
        warn(facts.problem.recipe.warnings)
    with _progress(facts, shown=not json) as on_step, _hint_when_interrupted(folder):
        begun = facts.problem.asked is not None and not is_there(folder.checkpoint)  # asked, and not trained a step
        trained = train_table(
            facts, private, folder, test=test, resume=resume and not begun, begun=begun, on_step=on_step
        )
    say_outcome(folder, trained.facts, trained.fitted.ledger, as_json=json)


def _resumed(folder: RunFolder, asked: Request, table: Table, *, bayesian_evidence: bool) -> RunFacts:
    facts = interrupted_run(folder, asked, table)
    if facts.problem.search is not None:
        raise InputError(f"{folder.path} holds a search; go on with tacit tune DATA --resume --out {folder.path}")
    if bayesian_evidence and not facts.evidence:
        raise InputError("the run was started without --bayesian-evidence; its first steps cannot be gathered now")
    return facts


def declared_numbers(folder: RunFolder, schema: Path | None, *, resume: bool) -> Sequence[str]:
    """What the schema calls numbers, to be read as such; with --public it is made of the table itself."""
    if resume:
        return folder.read_facts().problem.schema.numbers
    return () if schema is None else read_schema(schema).numbers


def records_of(table: Table, facts: RunFacts) -> tuple[Encoded, Encoded | None]:
    """The private records and those of the public test, if there is one; what is odd about them is said."""
    problem = facts.problem
    private = encode(table, problem.schema, problem.target)
    warn_of_unreadable(table, problem.schema, problem.target, "for the data holder alone: ")
    if facts.public_test is None:
        return private, None
    public = read_table(Path(facts.public_test), problem.schema.numbers)
    test = encode(public, problem.schema, problem.target, public=True)
    _say_shared_rows(table, public)
    return private, test


def _say_shared_rows(private: Table, public: Table) -> None:
    """To the data holder alone, and nowhere kept: the count follows the private table."""
    if shared := shared_rows(private, public):
        typer.echo(
            f"tacit: warning: {shared:,} of {len(public):,} rows of --public-test are in the private table too: "
            "are they public? scores on them say little",
            err=True,
        )


@contextmanager
def _hint_when_interrupted(folder: RunFolder) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        go_on = f"tacit train DATA --resume --out {folder.path}"
        typer.echo(f"tacit: stopped; what was paid for is kept. Go on with: {go_on}", err=True)
        raise


@contextmanager
def _progress(facts: RunFacts, *, shown: bool) -> Iterator[Callable[[int], None]]:
    from tacit.training.progress import progress_bar

    settings, delta = facts.problem.recipe, facts.problem.delta
    event = PoissonSample(settings.probability, (GaussianSumQuery(1.0, settings.noise_multiplier),))
    accountant = get_accountant("rdp" if facts.shared_ledger else "pld")

    def epsilon(steps: int) -> float:
        return accountant.guarantee(Ledger.planned([Charge(event, steps)]), delta=delta).epsilon

    seen = shown and sys.stdout.isatty()
    with progress_bar(settings.steps, shown=seen, epsilon=epsilon, console=console) as on_step:
        yield on_step
