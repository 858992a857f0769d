"""Run every proof and print the table: what was tried, how often, what was lost.

    python -m reliability                       everything, about an hour
    python -m reliability --jobs 2              the same in half the time: two proofs at once
    python -m reliability --effort 0.01         the same with a hundredth of the tries
    python -m reliability --only F11 F21        some rows
    python -m reliability --write docs/reliability.md

A proof is a module of this folder with a function ``prove(effort)`` that yields figures; ``--only F1`` asks for those
whose names begin with f01. One that raises is a figure too: it is reported as lost, and the others still run.
"""

import argparse
import importlib
import json
import pkgutil
import platform
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import date
from pathlib import Path

from rich.console import Console
from rich.table import Table

import reliability
from reliability.figures import Figure, Proof

HEAD = ("row", "what was tried", "times", "lost", "measured", "goal", "")


def proofs(only: list[str]) -> list[tuple[str, Proof]]:
    """Modules are named after their rows: f11_f12_crashes proves F11 and F12. What proves nothing only helps."""
    found = {module.name for module in pkgutil.iter_modules(reliability.__path__)} - {"__main__", "figures", "one"}
    rows = {f"f{int(row[1:]):02d}" if row[1:].isdigit() else row.lower() for row in only}
    asked = [name for name in sorted(found) if not rows or rows & set(name.split("_"))]
    modules = [(name, importlib.import_module(f"reliability.{name}")) for name in asked]
    return [(name, module.prove) for name, module in modules if hasattr(module, "prove")]


def run(name: str, effort: float) -> tuple[str, list[Figure], float]:
    """One proof, in a process of its own: what it breaks, forks or patches stays there."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "reliability.one", name, str(effort)]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        figures = [Figure(**facts) for facts in json.loads(done.stdout.splitlines()[-1])]
    except (IndexError, ValueError):
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        figures = [Figure(name.partition("_")[0].upper(), f"{name} stopped: {said}", times=1, lost=1)]
    return name, figures, time.perf_counter() - start


def tell(console: Console, name: str, figures: list[Figure], seconds: float) -> None:
    for one in figures:
        console.print(f"{'ok  ' if one.good else 'LOST'} {one.row:5} {one.tried}: {one.times:,} tried, {one.lost} lost")
    console.print(f"     {name}: {seconds:.0f} s", style="dim")


def cells(one: Figure) -> tuple[str, ...]:
    verdict = "holds" if one.good else "DOES NOT HOLD"
    return one.row, one.tried, f"{one.times:,}", f"{one.lost:,}", one.reached, one.goal, verdict


def document(figures: list[Figure], effort: float, earlier: str = "") -> str:
    """The table. Rows of an earlier one are kept unless they were tried again, as by ``--only``."""
    rows = {(one.row, one.tried): f"| {' | '.join(cells(one))} |" for one in figures}
    for line in earlier.splitlines():
        parts = [part.strip() for part in line.split("|")]
        if len(parts) > len(HEAD) and parts[1] not in ("row", "---"):
            rows.setdefault((parts[1], parts[2]), line)
    lines = [
        "# What was tried to break it",
        "",
        "Made by `python3 dev.py reliability`; not written by hand. The rows are those of",
        "[failure-modes.md](explanation/failure-modes.md), which says what each one means and what stands against it.",
        "",
        f"Python {platform.python_version()} on {platform.system()}, {date.today()}, effort {effort:g}.",
        "",
        f"| {' | '.join(HEAD)} |",
        "|---" * len(HEAD) + "|",
        *(rows[key] for key in sorted(rows, key=order)),
    ]
    return "\n".join(lines) + "\n"


def order(key: tuple[str, str]) -> tuple[int, str, str]:
    """F1 to F25, then what has no number."""
    row, tried = key
    return (int(row[1:]) if row[1:].isdigit() else 1000), row, tried


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--effort", type=float, default=1.0, help="1: as often as failure-modes.md asks")
    parser.add_argument("--jobs", type=int, default=1, help="how many proofs run at once")
    parser.add_argument("--only", nargs="*", default=[], help="rows, such as F11")
    parser.add_argument("--write", type=Path, help="the Markdown file to write")
    options = parser.parse_args()
    console = Console()
    figures: list[Figure] = []
    names = [name for name, _ in proofs(options.only)]
    with ThreadPoolExecutor(options.jobs) as pool, console.status(f"{len(names)} proofs ..."):
        for done in as_completed([pool.submit(run, name, options.effort) for name in names]):
            tell(console, *done.result())
            figures.extend(done.result()[1])
    figures.sort(key=lambda one: order((one.row, one.tried)))
    table = Table(*HEAD)
    for one in figures:
        table.add_row(*cells(one), style=None if one.good else "red")
    console.print(table)
    if options.write:
        earlier = options.write.read_text() if options.only and options.write.exists() else ""
        options.write.write_text(document(figures, options.effort, earlier))
    lost = sum(not one.good for one in figures)
    tried = sum(one.times for one in figures)
    console.print(f"{tried:,} tries, {len(figures)} figures, {lost} that do not hold")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
