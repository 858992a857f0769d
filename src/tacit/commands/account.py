"""``tacit account``: what a finished or a planned run costs, by every accountant."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tacit.accountants import Guarantee, Refusal, guarantees
from tacit.commands.output import console, guarantee_table, print_assumptions, print_json
from tacit.errors import InputError
from tacit.ledger import Charge, GaussianSumQuery, Ledger, LedgerHeader, PoissonSample, read_ledger


def account(
    run: Annotated[Path | None, typer.Argument(help="A run's folder or a ledger file.", show_default=False)] = None,
    delta: Annotated[float, typer.Option(help="The delta of the statement; below 1/n.")] = 1e-5,
    poisson: Annotated[float | None, typer.Option(help="What if: the sampling probability q.")] = None,
    noise: Annotated[float | None, typer.Option(help="What if: the noise multiplier z.")] = None,
    steps: Annotated[int | None, typer.Option(help="What if: the number of steps T.")] = None,
    dataset_size: Annotated[int | None, typer.Option(help="What if: the declared number of records.")] = None,
    accountant: Annotated[list[str] | None, typer.Option(help="Only this accountant; may be repeated.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw epsilon(delta) and the trade-off curve to this file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what a run cost: every accountant's (epsilon, delta), or why it refuses."""
    ledger = _ledger(run, poisson, noise, steps, dataset_size)
    results = guarantees(ledger, delta, only=accountant)
    if plot is not None:
        _draw(ledger, delta, plot)
    if json:
        print_json({"guarantees": [result.to_json() for result in results]})
        return
    print_guarantees(ledger, results)


def _draw(ledger: Ledger, delta: float, path: Path) -> None:
    from tacit.reports import draw_privacy

    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(f"--plot draws .png, .svg or .pdf, found {path.name!r}")
    if not path.parent.is_dir():
        raise InputError(f"--plot: the folder {path.parent} does not exist")
    draw_privacy(ledger, delta, path)


def print_guarantees(ledger: Ledger, results: Sequence[Guarantee | Refusal]) -> None:
    what = "hypothetical run" if ledger.hypothetical else f"ledger of '{ledger.header.dataset}'"
    console.print(guarantee_table(results, f"Privacy of a {what}, {ledger.steps} steps"))
    print_assumptions(results)


def _ledger(
    run: Path | None, poisson: float | None, noise: float | None, steps: int | None, dataset_size: int | None
) -> Ledger:
    asked = {"--poisson": poisson, "--noise": noise, "--steps": steps}
    given = [name for name, value in asked.items() if value is not None]
    if run is not None:
        if given or dataset_size is not None:
            raise InputError("give either a run or --poisson, --noise and --steps: a ledger has its own facts")
        return read_ledger(run)
    if poisson is None or noise is None or steps is None:
        missing = [name for name in asked if name not in given]
        raise InputError(f"name a run or a ledger, or ask what-if with {', '.join(missing)} too")
    if steps < 1:
        raise InputError(f"--steps must be at least 1, found {steps}")
    event = PoissonSample(poisson, (GaussianSumQuery(1.0, noise),))
    return Ledger.planned([Charge(event, steps)], LedgerHeader(dataset_size=dataset_size))
