"""``tacit ask``: counts, means, quantiles and the like of a private table, each with an interval, charged."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.table import Table as Shown

from tacit.accountants import best_bound
from tacit.commands.output import console, print_json, say
from tacit.errors import InputError

if TYPE_CHECKING:
    from tacit.queries import Answers

_SHOWN = 60  # answers on a terminal; --csv and --json have all of them


def ask(
    data: Annotated[Path, typer.Argument(help="The private table: .csv, .tsv, .parquet or .npz.")],
    out: Annotated[Path, typer.Option(help="The run's folder: ledger and answers.")],
    queries: Annotated[
        list[str] | None, typer.Argument(help="count, mean:age, quantile:age:.5, count:job,sex, ...")
    ] = None,
    schema: Annotated[Path | None, typer.Option(help="What is public about the table; tacit schema drafts it.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="What all queries may cost together.")] = None,
    delta: Annotated[float | None, typer.Option(help="Below 1/n; by default 1e-5, or less for large tables.")] = None,
    level: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    share: Annotated[str | None, typer.Option(help="Of the precision, for each query, as in 2,1,1; equal if left out.")]
    = None,
    unit: Annotated[str | None, typer.Option(help="record, or the column that says whose row it is.")] = None,
    budget: Annotated[Path | None, typer.Option(help="A ledger that several runs share.")] = None,
    budget_epsilon: Annotated[float | None, typer.Option(help="The total of --budget, when it is opened.")] = None,
    registry: Annotated[Path | None, typer.Option(help="The file that runs on this data enter themselves in.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Also write the answers to this file.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Get the answers of queries that were stopped.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:  # fmt: skip
    """Ask a private table; every answer has noise, an interval and its place in the ledger."""
    from tacit.queries import ask as answer
    from tacit.queries.ask import go_on
    from tacit.tables import read_schema

    if csv is not None:
        _check_target(csv)
    if resume:
        if queries or any(one is not None for one in (schema, epsilon, delta, share, unit, budget, registry)):
            raise InputError("--resume gives the answers that were asked for; it takes TABLE and --out alone")
        _show(go_on(data, out), out, csv, as_json=json)
        return
    if schema is None or epsilon is None:
        raise InputError("tacit ask needs --schema FILE, what is public, and --epsilon NUMBER, what it may cost")
    declared = read_schema(schema)
    if registry is None and declared.registry is not None:
        registry = schema.parent / declared.registry
    found = answer(
        data, *(queries or ()), schema=declared.with_facts(unit=unit), epsilon=epsilon, out=out, delta=delta,
        level=level, shares=_shares(share), budget=budget, budget_epsilon=budget_epsilon, registry=registry,
    )  # fmt: skip
    _show(found, out, csv, as_json=json)


def _show(found: "Answers", out: Path, csv: Path | None, *, as_json: bool) -> None:
    if csv is not None:
        _write(found, csv)
    if as_json:
        print_json({"out": str(out), **found.to_json()})
        return
    _print(found, out)


def _check_target(path: Path) -> None:
    if path.suffix.lower() not in (".csv", ".tsv"):
        raise InputError(f"--csv should end in .csv or .tsv, found {path.name!r}")
    if not path.parent.is_dir():
        raise InputError(f"--csv: the folder {path.parent} does not exist")
    if path.exists() or path.is_symlink():
        raise InputError(f"--csv: {path} is there already and is not overwritten; choose another name")


def _shares(text: str | None) -> tuple[float, ...]:
    if text is None:
        return ()
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError as error:
        raise InputError(f"--share takes numbers, one for each query, as in 2,1,1; found {text!r}") from error


def _write(found: "Answers", path: Path) -> None:
    from tacit.commands.predict import write_columns

    columns = {name: np.array([getattr(one, name) or "" for one in found], dtype=object) for name in ("query", "cell")}
    columns |= {name: np.array([getattr(one, name) for one in found]) for name in ("value", "low", "high", "level")}
    write_columns(columns, path)


def _print(found: "Answers", out: Path) -> None:
    shown = Shown(title=f"Answers about '{found.asked.schema.dataset}'", title_justify="left", title_style="bold")
    shown.add_column("query")
    shown.add_column("cell")
    for name in ("answer", "low", "high"):
        shown.add_column(name, justify="right")
    for one in found.answers[:_SHOWN]:
        shown.add_row(one.query, one.cell or "", *(f"{number:.6g}" for number in (one.value, one.low, one.high)))
    console.print(shown)
    if len(found.answers) > _SHOWN:
        say(f"and {len(found.answers) - _SHOWN:,} more: --csv and run.json have all of them", style="dim")
    say(f"low and high hold the answer without noise with probability {found.asked.level:g}; they say nothing about "
        "people who are not in the table.", style="dim")  # fmt: skip
    best = best_bound(found.guarantees)
    if best is not None:
        say(f": epsilon {best.epsilon:.4f} at delta {best.delta:g} ({best.accountant}, one {best.unit}).", head="Cost")
        for sentence in best.assumptions:
            say(f"  - {sentence}", style="dim")
    say(f" holds the answers and the ledger. Next: tacit account {out}, tacit report {out}", head=f"{out}/")
