"""``tacit audit``: try to break the guarantee of a run or of this installation, and say how close it came."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from tacit.accountants import check_delta
from tacit.commands.output import console, print_json
from tacit.errors import InputError

if TYPE_CHECKING:
    from tacit.audit import Finding
    from tacit.audit.finding import Effort


def audit(
    run: Annotated[Path | None, typer.Argument(help="A run's folder or a ledger file.", show_default=False)] = None,
    this: Annotated[bool, typer.Option("--self", help="Audit this installation instead of a run.")] = False,
    delta: Annotated[float, typer.Option(help="The delta of the claim; below 1/n.")] = 1e-5,
    deep: Annotated[bool, typer.Option("--deep", help="More draws, one run with many canaries, retraining.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Try to break the guarantee: exit code 0 if nothing broke, 1 if something did, 2 on bad input."""
    if (run is None) != this:
        raise InputError("name a run to audit, or --self for this installation: exactly one of them")
    check_delta(delta)
    from tacit.audit import perform, run_checks, self_checks

    effort: Effort = "deep" if deep else "standard"
    checks = self_checks(effort) if run is None else run_checks(run, delta, effort)
    with nullcontext() if json else console.status("trying to break it ..."):
        found = list(perform(checks))
    verdict = _verdict([finding for finding, _ in found], run)
    broke = any(not finding.held for finding, _ in found)
    if json:
        rows = [{**finding.to_json(), "seconds": round(seconds, 2)} for finding, seconds in found]
        print_json({"checks": rows, "broke": broke, "verdict": verdict})
    else:
        _show(found, verdict)
    return 1 if broke else 0


def _show(found: Sequence[tuple["Finding", float]], verdict: str) -> None:
    table = Table(title="Audit", title_justify="left", title_style="bold")
    for column in ("check", "what was measured", "seconds", "verdict"):
        table.add_column(column, justify="right" if column == "seconds" else "left")
    for finding, seconds in found:
        style = None if finding.held else "red"
        measured = finding.skipped or finding.measured
        table.add_row(finding.check, measured, f"{seconds:.1f}", finding.verdict, style=style)
    console.print(table)
    for finding, _ in found:
        for sentence in finding.broke:
            console.print(f"  broke: {finding.check}: {sentence}", style="red", highlight=False)
    for sentence in dict.fromkeys(sentence for finding, _ in found for sentence in finding.assumptions):
        console.print(f"  - {sentence}", style="dim", highlight=False)
    console.print(verdict, highlight=False)


def _verdict(findings: Sequence["Finding"], run: Path | None) -> str:
    what = "this installation" if run is None else str(run)
    broke = [finding.check for finding in findings if not finding.held]
    if broke:
        return f"BROKEN: {what} does not keep its promise ({', '.join(broke)})"
    done = sum(not finding.skipped for finding in findings)
    return f"nothing broke: {done} checks tried to break the promise of {what}"
