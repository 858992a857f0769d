"""Processor time of whole commands, each in a cold process, as ratios to the imports that they cannot do without.

    TACIT_DATA=... python benchmarks/commands.py --rounds 7

Every round starts each pair once, one after the other, so that what slows the machine slows both sides.
"""

import argparse
import csv
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SCHEMA = Path(__file__).parent.parent / "examples" / "adult.schema.toml"
TACIT = [sys.executable, "-m", "tacit"]


def cost(command: list[str]) -> float:
    """Seconds of processor time, of the process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def adult(folder: Path, rows: int | None) -> list[str]:
    """``tacit train`` on so many rows of Adult, or on all 48,842 of both files."""
    data = Path(os.environ["TACIT_DATA"]) / "adult"
    lines = [line for name in ("adult.data", "adult.test") for line in (data / name).read_text().splitlines()]
    records = [[cell.strip(" .") for cell in line.split(",")] for line in lines if line.count(",") == 14][:rows]
    with (folder / "adult.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*_names(), "income"])
        writer.writerows(records)
    schema = SCHEMA.read_text().replace("records = 32561", f"records = {len(records)}")
    (folder / "adult.toml").write_text(schema)
    return [*TACIT, "train", str(folder / "adult.csv"), "--schema", str(folder / "adult.toml"), "--epsilon", "1",
            "--out", str(folder / "run")]  # fmt: skip


def _names() -> list[str]:
    named = [line for line in SCHEMA.read_text().splitlines() if line.startswith("name = ")]
    return [line.split('"')[1] for line in named if '"income"' not in line]


def measure(name: str, command: list[str], imports: str, rounds: int, run: Path | None = None) -> None:
    ours, theirs = [], []
    for _ in range(rounds):
        theirs.append(cost([sys.executable, "-c", imports]))
        if run is not None:
            shutil.rmtree(run, ignore_errors=True)
        ours.append(cost(command))
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    beyond = statistics.median(one - other for one, other in zip(ours, theirs, strict=True))
    print(f"| {name} | {imports} | {middle:.2f} ({low:.2f}-{high:.2f}) | {beyond:.2f} s |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    print("| command | against | ratio (quartiles) | beyond it |\n|---|---|---|---|")
    measure("tacit --help", [*TACIT, "--help"], "import typer, rich.console, rich.table", rounds)
    account = [*TACIT, "account", "--poisson", "0.01", "--noise", "1.1", "--steps", "1000"]
    measure("tacit account", account, "import numpy, scipy.special", rounds)
    if "TACIT_DATA" not in os.environ:
        return
    for rows in (1000, None):
        with tempfile.TemporaryDirectory() as folder:
            command = adult(Path(folder), rows)
            name = f"tacit train, {rows or 48_842:,} rows of Adult"
            measure(name, command, "import torch", rounds, Path(folder) / "run")


if __name__ == "__main__":
    main()
