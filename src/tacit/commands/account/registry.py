"""``tacit account --registry``: what all runs cost that entered themselves in a registry, deleted ones too."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.table import Table

from tacit.accountants import Guarantee, Refusal, best_bound, guarantees
from tacit.commands.output import console, guarantee_table, print_assumptions, print_json
from tacit.ledger import Ledger, RegisteredRun, joined, registered_runs

ADDED = (
    "each run's best bound at its share of delta, added up: holds even if later runs were designed after a look at "
    "earlier ones"
)
UNSEEN = (
    "not seen: runs that never named this registry, copies of the data under another one, and what the registry knew "
    "before it was itself deleted or put back to an older state"
)


@dataclass(frozen=True, slots=True)
class Total:
    """What runs with one unit of privacy and one kind of neighbours cost together."""

    ledger: Ledger
    together: Sequence[Guarantee | Refusal]
    added: float | None

    def to_json(self) -> dict[str, Any]:
        header = self.ledger.header
        return {
            "unit": header.unit,
            "neighbours": header.neighbours,
            "steps": self.ledger.steps,
            "guarantees": [result.to_json() for result in self.together],
            "added": {"epsilon": self.added, "what": ADDED},
        }


def account_registry(path: Path, delta: float, *, json: bool) -> None:
    """One row a run, and the total over all of them."""
    runs = registered_runs(path)
    totals = [_total([run.ledger for run in same], delta) for same in _grouped_by_unit_and_neighbours(runs)]
    spent = [_best(guarantees(run.ledger, delta)) for run in runs]
    if json:
        rows = [_row(run, epsilon, delta) for run, epsilon in zip(runs, spent, strict=True)]
        print_json({"registry": str(path), "runs": rows, "totals": [one.to_json() for one in totals], "unseen": UNSEEN})
        return
    console.print(_table(path, runs, spent, delta))
    for state, meaning in {run.state: run.meaning for run in runs if run.state != "closed"}.items():
        console.print(f"  - {state}: {meaning}", highlight=False)
    for one in totals:
        _print_total(one, delta)
    if len(totals) > 1:
        console.print("  - these totals protect in different ways and cannot be added up", style="dim", highlight=False)
    console.print(f"  - {UNSEEN}", style="dim", highlight=False)


def _grouped_by_unit_and_neighbours(runs: Iterable[RegisteredRun]) -> list[list[RegisteredRun]]:
    def kind(run: RegisteredRun) -> tuple[str, str]:
        return run.ledger.header.unit, run.ledger.header.neighbours

    return [list(same) for _, same in groupby(sorted(runs, key=kind), key=kind)]


def _total(ledgers: list[Ledger], delta: float) -> Total:
    whole = joined(ledgers)
    shares = [_best(guarantees(ledger, delta / len(ledgers))) for ledger in ledgers]
    added = sum(share for share in shares if share is not None) if None not in shares else None
    return Total(whole, guarantees(whole, delta), added)


def _best(results: Sequence[Guarantee | Refusal]) -> float | None:
    """The least upper bound; None if no accountant has one."""
    best = best_bound(results)
    return None if best is None else best.epsilon


def _row(run: RegisteredRun, epsilon: float | None, delta: float) -> dict[str, Any]:
    return {"time": run.time, "ledger": str(run.path), "dataset": run.ledger.header.dataset, "steps": run.ledger.steps,
            "epsilon": epsilon, "delta": delta, "state": run.state, "meaning": run.meaning}  # fmt: skip


def _table(path: Path, runs: Sequence[RegisteredRun], spent: Sequence[float | None], delta: float) -> Table:
    table = Table(title=f"Runs in {path}, at delta {delta:g}", title_justify="left", title_style="bold")
    for column in ("entered", "data set", "run", "steps", "epsilon", "state"):
        table.add_column(column, justify="right" if column in ("steps", "epsilon") else "left", overflow="fold")
    for run, epsilon in zip(runs, spent, strict=True):
        place, folder = run.path.parent if run.path.name == "ledger.jsonl" else run.path, path.absolute().parent
        place = place.relative_to(folder) if place.is_relative_to(folder) else place
        number = "refused" if epsilon is None else f"{epsilon:.4f}"
        table.add_row(run.time, run.ledger.header.dataset, str(place), str(run.ledger.steps), number, run.state)
    return table


def _print_total(total: Total, delta: float) -> None:
    header = total.ledger.header
    title = f"All of it together ({header.unit}, {header.neighbours}), {total.ledger.steps} steps"
    console.print(guarantee_table(total.together, title))
    print_assumptions(total.together)
    added = "refused" if total.added is None else f"epsilon {total.added:.4f} at delta {delta:g}"
    console.print(f"  - {added}: {ADDED}", style="dim", highlight=False)
