"""Run every proof and print the table: what was tried, how often, what was lost.

    python -m reliability                       everything, about half an hour
    python -m reliability --effort 0.01         the same with a hundredth of the tries
    python -m reliability --only F11 F21        some rows
    python -m reliability --write docs/reliability.md

A proof is a module of this folder with a function ``prove(effort)`` that yields figures. One that raises is a figure
too: it is reported as lost, and the others still run.
"""

import argparse
import importlib
import pkgutil
import platform
import sys
import time
from datetime import date
from pathlib import Path

from rich.console import Console
from rich.table import Table

import reliability
from reliability.figures import Figure, Proof

HEAD = ("row", "what was tried", "times", "lost", "measured", "goal", "")


def proofs(only: list[str]) -> list[tuple[str, Proof]]:
    """Modules are named after their rows: f11_f12_crashes proves F11 and F12. What proves nothing only helps."""
    found = {module.name for module in pkgutil.iter_modules(reliability.__path__)} - {"__main__", "figures"}
    asked = [name for name in sorted(found) if not only or any(row.lower() in name.split("_") for row in only)]
    modules = [(name, importlib.import_module(f"reliability.{name}")) for name in asked]
    return [(name, module.prove) for name, module in modules if hasattr(module, "prove")]


def run(name: str, prove: Proof, effort: float, console: Console) -> list[Figure]:
    start, figures = time.perf_counter(), []
    with console.status(f"{name} ..."):
        try:
            figures.extend(prove(effort))
        except Exception as error:  # one broken proof must not hide the others
            tried = f"{name} stopped: {type(error).__name__}: {error}"
            figures.append(Figure(name.partition("_")[0].upper(), tried, times=1, lost=1))
    for one in figures:
        console.print(f"{'ok  ' if one.good else 'LOST'} {one.row:5} {one.tried}: {one.times:,} tried, {one.lost} lost")
    console.print(f"     {name}: {time.perf_counter() - start:.0f} s", style="dim")
    return figures


def cells(one: Figure) -> tuple[str, ...]:
    verdict = "holds" if one.good else "DOES NOT HOLD"
    return one.row, one.tried, f"{one.times:,}", f"{one.lost:,}", one.reached, one.goal, verdict


def document(figures: list[Figure], effort: float) -> str:
    rows = [f"| {' | '.join(cells(one))} |" for one in figures]
    lines = [
        "# What was tried to break it",
        "",
        "Made by `python3 dev.py reliability`; not written by hand. The rows are those of",
        "[failure-modes.md](failure-modes.md), which says what each one means and what stands against it.",
        "",
        f"Python {platform.python_version()} on {platform.system()}, {date.today()}, effort {effort:g}.",
        "",
        f"| {' | '.join(HEAD)} |",
        "|---" * len(HEAD) + "|",
        *rows,
    ]
    return "\n".join(lines) + "\n"


def order(one: Figure) -> tuple[int, str]:
    return (int(one.row[1:]), "") if one.row[1:].isdigit() else (1000, one.row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--effort", type=float, default=1.0, help="1: as often as failure-modes.md asks")
    parser.add_argument("--only", nargs="*", default=[], help="rows, such as F11")
    parser.add_argument("--write", type=Path, help="the Markdown file to write")
    options = parser.parse_args()
    console = Console()
    figures = [one for name, prove in proofs(options.only) for one in run(name, prove, options.effort, console)]
    figures.sort(key=order)
    table = Table(*HEAD)
    for one in figures:
        table.add_row(*cells(one), style=None if one.good else "red")
    console.print(table)
    if options.write:
        options.write.write_text(document(figures, options.effort))
    lost = sum(not one.good for one in figures)
    tried = sum(one.times for one in figures)
    console.print(f"{tried:,} tries, {len(figures)} figures, {lost} that do not hold")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
