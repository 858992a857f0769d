"""``tacit account``: what a finished or a planned run costs, by every accountant."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.accountants import Guarantee, Refusal, guarantees
from tacit.commands.output import console, evidence_table, guarantee_table, print_assumptions, print_json
from tacit.errors import InputError
from tacit.ledger import Charge, GaussianSumQuery, Ledger, LedgerHeader, PoissonSample, read_ledger
from tacit.ledger.manifest import check_if_finished

if TYPE_CHECKING:
    from tacit.evidence import Evidence

DELTA = 1e-5  # of a ledger that declares none


def account(
    run: Annotated[Path | None, typer.Argument(help="A run's folder or a ledger file.", show_default=False)] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="The delta of the statement; the ledger's own, or 1e-5, if left out."),
    ] = None,
    poisson: Annotated[float | None, typer.Option(help="What if: the sampling probability q.")] = None,
    noise: Annotated[float | None, typer.Option(help="What if: the noise multiplier z.")] = None,
    steps: Annotated[int | None, typer.Option(help="What if: the number of steps T.")] = None,
    dataset_size: Annotated[int | None, typer.Option(help="What if: the declared number of records.")] = None,
    accountant: Annotated[list[str] | None, typer.Option(help="Only this accountant; may be repeated.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw epsilon(delta) and the trade-off curve to this file.")] = None,
    bayesian: Annotated[
        bool, typer.Option("--bayesian", help="Also what the run's private evidence says; not for publication.")
    ] = False,
    registry: Annotated[Path | None, typer.Option(help="All runs of this registry and their total.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what a run cost: every accountant's (epsilon, delta), or why it refuses."""
    if registry is not None:
        if bayesian or [run, poisson, noise, steps, dataset_size, accountant, plot] != [None] * 7:
            raise InputError("--registry takes --delta and --json only: it accounts for all of its runs")
        from tacit.commands.account.registry import account_registry

        account_registry(registry, DELTA if delta is None else delta, json=json)
        return
    ledger = _ledger(run, poisson, noise, steps, dataset_size)
    evidence = _evidence(run) if bayesian else ()
    if plot is not None:
        _check_picture(plot)
    if delta is None:
        delta = ledger.header.delta or DELTA
    results = guarantees(ledger, delta, only=accountant)
    private = _private(ledger, evidence, delta)
    if plot is not None:
        _draw(ledger, evidence, delta, plot)
    if json:
        found: dict[str, Any] = {"guarantees": [result.to_json() for result in results]}
        if bayesian:
            found["private"] = {item.kind: [one.to_json() for one in said] for item, said in private}
        print_json(found)
        return
    print_guarantees(ledger, results)
    for item, said in private:
        console.print()
        console.print(evidence_table(said, f"Private: what the evidence of {item.records} {item.kind} says"))
        print_assumptions(said)


def _evidence(run: Path | None) -> "Sequence[Evidence]":
    from tacit.runs import read_evidence

    if run is None:
        raise InputError("--bayesian needs the evidence of a run; name the run's folder")
    return read_evidence(run)


def _private(
    ledger: Ledger, evidence: "Sequence[Evidence]", delta: float
) -> "list[tuple[Evidence, list[Guarantee | Refusal]]]":
    if not evidence:
        return []
    from tacit.accountants.bayesian import bayesian_guarantees

    return [(item, bayesian_guarantees(ledger, item, delta)) for item in evidence]


def _draw(ledger: Ledger, evidence: "Sequence[Evidence]", delta: float, path: Path) -> None:
    from tacit.reports import draw_evidence, draw_privacy

    draw_privacy(ledger, delta, path)
    for item in evidence:
        draw_evidence(ledger, item, delta, path.with_stem(f"{path.stem}-private-{item.kind}"))


def _check_picture(path: Path) -> None:
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(f"--plot draws .png, .svg or .pdf, found {path.name!r}")
    if not path.parent.is_dir():
        raise InputError(f"--plot: the folder {path.parent} does not exist")
    if path.exists() or path.is_symlink():
        raise InputError(f"--plot: {path} is there already and is not overwritten; choose another name")


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
        if run.is_dir():
            check_if_finished(run)
        return read_ledger(run)
    if poisson is None or noise is None or steps is None:
        missing = [name for name in asked if name not in given]
        raise InputError(f"name a run or a ledger, or ask what-if with {', '.join(missing)} too")
    if steps < 1:
        raise InputError(f"--steps must be at least 1, found {steps}")
    event = PoissonSample(poisson, (GaussianSumQuery(1.0, noise),))
    return Ledger.planned([Charge(event, steps)], LedgerHeader(dataset_size=dataset_size))
