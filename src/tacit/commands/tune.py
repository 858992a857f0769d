"""``tacit tune``: settings searched for on a private table, all trials in one charge, the best model released."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.table import Table as Shown

from tacit.commands.output import console, print_json, say
from tacit.commands.train.command import declared_numbers, records_of
from tacit.commands.train.outcome import say_outcome, warn
from tacit.commands.train.request import Request, check_public, interrupted_run, new_run, share_of
from tacit.errors import InputError
from tacit.runs import RunFacts, RunFolder
from tacit.runs.search.plan import search_plan
from tacit.tables import Method, Search, read_table
from tacit.tables.files import to_number


def tune(
    data: Annotated[Path, typer.Argument(help="The private table: .csv, .tsv, .parquet or .npz.")],
    out: Annotated[Path | None, typer.Option(help="The run's folder: ledger, model and facts.")] = None,
    target: Annotated[str | None, typer.Option(help="The column to predict; may stand in the schema.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="What all trials together may cost.")] = None,
    delta: Annotated[float | None, typer.Option(help="Below 1/n; by default 1e-5, or less for large tables.")] = None,
    schema: Annotated[Path | None, typer.Option(help="What is public about the table; tacit schema drafts it.")] = None,
    public: Annotated[Path | None, typer.Option(help="A public sample to take bounds and levels from.")] = None,
    records: Annotated[int | None, typer.Option(help="About how many records (with --unit: users) there are.")] = None,
    attempt: Annotated[
        list[str] | None,
        typer.Option("--try", help="What to try: rate=.5,1,2 clip=.5,1 (factors), model=linear,mlp, method=sgld,sgd."),
    ] = None,
    trials: Annotated[float | None, typer.Option(help="How many trials on average; 5 by default.")] = None,
    law: Annotated[str | None, typer.Option(help="Of their number: poisson (default), logarithmic, geometric.")] = None,
    by: Annotated[str | None, typer.Option(help="What classes are scored by: brier (default) or accuracy.")] = None,
    method: Annotated[str | None, typer.Option(help="sgld (default), sghmc, bbp, dropout, vi or sgd.")] = None,
    model: Annotated[str | None, typer.Option(help="linear (default), mlp or MODULE:FACTORY.")] = None,
    unit: Annotated[str | None, typer.Option(help="record, or the column that says whose row it is.")] = None,
    budget: Annotated[Path | None, typer.Option(help="A ledger that several runs share.")] = None,
    budget_epsilon: Annotated[float | None, typer.Option(help="The total of --budget, when it is opened.")] = None,
    registry: Annotated[Path | None, typer.Option(help="The file that runs on this data enter themselves in.")] = None,
    public_test: Annotated[Path | None, typer.Option(help="Public test data: evaluates the model.")] = None,
    hold_out: Annotated[
        str | None, typer.Option(help="Keep this share of the records (20%) from all trials, for a private score.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Say what a search would cost and gain, and stop.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a search that was interrupted.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Search for settings on a private table: one charge for all trials, and how many there were stays secret."""
    from tacit.runs import train_table

    if out is None and not plan:
        raise InputError("where should the run go? give --out, or --plan to see what it would cost")
    folder = RunFolder(out or Path("run"))
    table = read_table(data, declared_numbers(folder, schema, resume=resume))
    if public_test is not None and public_test.is_file():
        check_public(data, public_test)
    named = None if registry is None else folder.name_of(registry)
    search = _search(attempt or [], trials, law, by)
    asked = Request(target, epsilon, delta, method, model, unit, records, None, named, share_of(hold_out), search)
    if resume:
        facts = interrupted_run(folder, asked, table)
    else:
        if not plan:
            folder.check_free()
        asked = replace(asked, search=search or Search())
        facts = new_run(table, data, asked, schema, public, folder, budget, budget_epsilon)
    if plan:
        _say_plan(facts, as_json=json)
        return
    if public_test is not None:
        facts = replace(facts, public_test=str(public_test.absolute()))
    private, test = records_of(table, facts)
    if not json:
        warn(facts.problem.recipe.warnings)
        say("Searching. There is no progress to be seen: how many trials there are stays secret.", style="dim")
    try:
        trained = train_table(facts, private, folder, test=test, resume=resume)
    except KeyboardInterrupt:
        typer.echo(f"tacit: stopped; go on with: tacit tune DATA --resume --out {folder.path}", err=True)
        raise
    say_outcome(folder, trained.facts, trained.fitted.ledger, as_json=json)


def _search(attempts: list[str], trials: float | None, law: str | None, by: str | None) -> Search | None:
    """What was asked for; None if nothing was."""
    known = {"trials": trials, "law": law, "by": by}
    if not attempts and not any(value is not None for value in known.values()):
        return None
    given: dict[str, object] = {name: value for name, value in known.items() if value is not None}
    if attempts:
        given["grid"] = dict(_values(text) for text in attempts)
    return Search(**given)  # type: ignore[arg-type]


def _values(text: str) -> tuple[str, tuple[float | str, ...]]:
    """rate=.5,1,2 as a name and its values."""
    name, mark, listed = text.partition("=")
    words = [word.strip() for word in listed.split(",")]
    if not mark or not all(words):
        raise InputError(f"--try takes a name and values, as in rate=.5,1,2; found {text!r}")
    if name in ("rate", "clip"):
        return name, tuple(to_number(word) for word in words)
    for word in words if name == "method" else ():
        if word not in get_args(Method):
            raise InputError(f"--try method must be one of {', '.join(get_args(Method))}, found {word!r}")
    return name, tuple(words)


def _say_plan(facts: RunFacts, *, as_json: bool) -> None:
    found, problem = search_plan(facts.problem), facts.problem
    assert problem.search is not None
    if as_json:
        print_json({"search": problem.search.to_json(), "candidates": [c.to_json() for c in problem.search.candidates],
                    **{name: getattr(found, name) for name in found.__slots__}, "verdict": found.verdict})  # fmt: skip
        return
    shown = Shown(title=f"A search at epsilon {problem.epsilon:g} in all", title_justify="left", title_style="bold")
    for name in ("", "search", "defaults"):
        shown.add_column(name, justify="left" if not name else "right")
    shown.add_row("noise multiplier", f"{found.noise:.4g}", f"{found.default_noise:.4g}")
    shown.add_row("signal to noise", f"{found.snr:.0f}", f"{found.default_snr:.0f}")
    shown.add_row("epsilon of the model alone", f"{found.trial_epsilon:.3f}", f"{problem.epsilon:.3f}")
    shown.add_row("noise of a score", f"{found.score_noise:.2%}", "")
    shown.add_row(f"best of {len(problem.search.candidates)} candidates is tried", f"{found.best_found:.0%}", "")
    console.print(shown)
    say(f": {found.verdict}.", head="Verdict")
