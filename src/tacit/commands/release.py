"""``tacit release``: publish a run with its privacy statement, or verify a bundle that was received."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.commands.output import console, print_json
from tacit.errors import InputError
from tacit.release import CheckedBundle, Released, check_bundle, release_run


def release(
    run: Annotated[Path | None, typer.Argument(help="The run's folder.", show_default=False)] = None,
    out: Annotated[Path | None, typer.Option(help="The bundle: a folder to make, or a .tar.gz file.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The budget; by default the ledger's own.")] = None,
    delta: Annotated[float | None, typer.Option(help="The budget's delta; by default the ledger's own.")] = None,
    ledger: Annotated[Path | None, typer.Option(help="The ledger, where several runs share one.")] = None,
    include_bayesian: Annotated[
        bool, typer.Option("--include-bayesian", help="Add private diagnostics, marked as no worst-case guarantee.")
    ] = False,
    accept_derived_schema: Annotated[
        bool, typer.Option("--accept-derived-schema", help="Release though the schema was read off private data.")
    ] = False,
    check: Annotated[Path | None, typer.Option(help="Verify this received bundle instead.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Release a run if its ledger proves that it kept its budget; everything is computed anew."""
    if check is not None:
        if run is not None or out is not None:
            raise InputError("--check takes a bundle and nothing else; leave out the run and --out")
        _say_checked(check, check_bundle(check), json)
        return
    if run is None or out is None:
        raise InputError("name a run and --out BUNDLE, or --check BUNDLE")
    _say_released(
        release_run(
            run,
            out,
            epsilon=epsilon,
            delta=delta,
            ledger=ledger,
            include_bayesian=include_bayesian,
            accept_derived_schema=accept_derived_schema,
        ),
        json,
    )


def _say_released(done: Released, json: bool) -> None:
    if json:
        print_json({**_facts(done), "left_behind": list(done.left_behind), "bundle": str(done.path)})
        return
    best = done.statement.best
    console.print(
        f"released: epsilon {best.epsilon:.4f} at delta {best.delta:g} ({best.accountant}, upper bound), "
        f"{len(done.files)} files in {done.path}",
        highlight=False,
    )
    if done.left_behind:
        console.print(f"left behind: {', '.join(done.left_behind)}", highlight=False)
    _say_assumptions(done)


def _say_checked(path: Path, found: CheckedBundle, json: bool) -> None:
    if json:
        print_json({"ok": True, **_facts(found), "unverifiable_diagnostics": found.diagnostics, "bundle": str(path)})
        return
    best, head = found.statement.best, found.statement.head
    console.print(
        f"{path}: the statement follows from the ledger: epsilon {best.epsilon:.4f} at delta {best.delta:g} "
        f"({best.accountant}, upper bound); head {head.count} {head.hash}",
        highlight=False,
    )
    if found.diagnostics:
        console.print("its private diagnostics cannot be verified and guarantee nothing", highlight=False)
    _say_assumptions(found)


def _say_assumptions(found: Released | CheckedBundle) -> None:
    for sentence in found.statement.assumptions:
        console.print(f"  - {sentence}", style="dim", highlight=False)


def _facts(found: Released | CheckedBundle) -> dict[str, Any]:
    return {"statement": found.statement.to_json(), "files": list(found.files)}
