"""``tacit summary``: the coefficients of a finished regression, and how those of a new one are printed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.commands.output import console, print_json, say
from tacit.regression.regression import Regression
from tacit.regression.results.saved import read_regression
from tacit.regression.results.tables import TableFormat, table_text
from tacit.reports import headline
from tacit.runs import read_content
from tacit.runs.facts import COEFFICIENTS

Level = Annotated[float, typer.Option(help="Of the credible intervals.")]
Contrast = Annotated[list[str] | None, typer.Option(help='A difference, as in "drug=yes - drug=no"; may be repeated.')]
Form = Annotated[TableFormat, typer.Option("--format", help="How the table is printed.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def summary(
    run: Annotated[Path, typer.Argument(help="A finished run's folder.")],
    level: Level = 0.95,
    contrast: Contrast = None,
    form: Form = "text",
    json: Json = False,
) -> None:
    """Print the coefficients of a regression at any level; of another run, why it has none."""
    facts = read_content(run).facts
    if facts is not None and facts.task == COEFFICIENTS:
        say_regression(read_regression(run), tuple(contrast or ()), level, form, as_json=json, out=run)
        return
    method = "its method" if facts is None or not facts.method else facts.method
    why = (
        f"the weights that {method} learned are made for predictions: they stop where noise would spoil them, so that "
        "they are drawn towards 0, and their draws are no confidence statements. For coefficients with intervals: "
        "tacit regress"
    )
    if json:
        print_json({"run": str(run), "coefficients": None, "why": why})
    else:
        say(f" has no coefficients to state: {why}", head=str(run))


def say_regression(
    found: Regression, contrasts: tuple[str, ...], level: float, form: TableFormat, *, as_json: bool, out: Path
) -> None:
    """The table, and beneath it what it rests on."""
    rows = found.coefficients(level)
    differences = [row for text in contrasts for row in found.contrast(text, level)]
    results = found.guarantees
    if as_json:
        rests = {"assumptions": found.assumptions} if found.problem.spread is not None else {}
        print_json({
            "out": str(out), "coefficients": [row.to_json() for row in rows],
            "contrasts": [row.to_json() for row in differences], "family": found.problem.family.name,
            "outcome": found.problem.outcome, "prior": str(found.prior), "references": found.problem.design.references,
            "warnings": found.warnings, "guarantees": [result.to_json() for result in results],
            **rests,
        })  # fmt: skip
        return
    typer.echo(table_text([*rows, *differences], found.problem.is_ratio, form))
    if form == "text":
        _print_notes(found, out, results)


def _print_notes(found: Regression, out: Path, results: Sequence[Any]) -> None:
    problem = found.problem
    console.print()
    references = ", ".join(f"{column} = {level}" for column, level in problem.design.references.items())
    which = f"{problem.family.name} regression of {problem.outcome!r}, prior {found.prior}"
    say(f": {which}." + (f" Reference levels: {references}." if references else ""), head="Model")
    for sentence in found.assumptions:
        say(f": {sentence}.", head="Assumed")
    for sentence in found.warnings:
        say(f": {sentence}", head="warning")
    assert found.ledger is not None
    best = headline(found.ledger, results).guarantee
    if best is not None:
        say(f": epsilon {best.epsilon:.3f} at delta {best.delta:g} ({best.accountant}, {best.unit}).", head="Privacy")
        for sentence in best.assumptions:
            say(f"  - {sentence}")
    say(f" holds the draws, the ledger and run.json. Next: tacit summary {out} --level .9, tacit report {out}",
        head=f"{out}/")  # fmt: skip
