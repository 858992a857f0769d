"""Processor time of whole commands, each in a cold process, as ratios to the imports that they cannot do without.

    TACIT_DATA=... python benchmarks/commands.py --rounds 7
    python benchmarks/commands.py --rows 1000000      # tacit train on a made table of 50 columns: time and memory

Every round starts each pair once, one after the other, so that what slows the machine slows both sides. A first round
is not counted: in it Python compiles what an installation by pip has compiled.
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
import time
from pathlib import Path

import numpy as np
from document import machine

SCHEMA = Path(__file__).parent.parent / "examples" / "adult.schema.toml"
TACIT = [sys.executable, "-m", "tacit"]


def cost(command: list[str], threads: dict[str, str] | None = None) -> float:
    """Seconds of processor time, of the process and its children; on one thread, unless others are asked for."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    threads = {"OMP_NUM_THREADS": "1"} if threads is None else threads
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=environment | threads)
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
    for _ in range(1 + rounds):
        theirs.append(cost([sys.executable, "-c", imports]))
        if run is not None:
            shutil.rmtree(run, ignore_errors=True)
        ours.append(cost(command))
    ours, theirs = ours[1:], theirs[1:]
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    beyond = statistics.median(one - other for one, other in zip(ours, theirs, strict=True))
    print(f"| {name} | {imports} | {middle:.2f} ({low:.2f}-{high:.2f}) | {beyond:.2f} s |", flush=True)


def made(folder: Path, rows: int, columns: int = 50) -> list[str]:
    """``tacit train`` on a table of numbers with three decimals and a flag that follows from them."""
    chance, names = np.random.default_rng(0), [f"x{column}" for column in range(columns - 1)]
    weights = chance.normal(size=len(names))
    with (folder / "made.csv").open("w") as file:
        file.write(",".join([*names, "y"]) + "\n")
        for start in range(0, rows, 20_000):
            x = chance.normal(size=(min(20_000, rows - start), len(names))).clip(-4, 4).round(3)
            sides = np.where(x @ weights + chance.logistic(size=len(x)) > 0, "yes", "no")
            lines = (",".join([*map(repr, row), side]) for row, side in zip(x.tolist(), sides, strict=True))
            file.write("\n".join(lines) + "\n")
    numbers = "".join(f'[[columns]]\nname = "{name}"\nkind = "number"\nlow = -4\nhigh = 4\n' for name in names)
    facts = f'format = 1\ndataset = "made"\nrecords = {rows}\ntarget = "y"\nsource = "made"\n'
    (folder / "made.toml").write_text(f'{facts}{numbers}[[columns]]\nname = "y"\nkind = "flag"\n')
    return [*TACIT, "train", str(folder / "made.csv"), "--schema", str(folder / "made.toml"), "--epsilon", "1",
            "--out", str(folder / "run")]  # fmt: skip


def measure_large(rows: int) -> None:
    """Wall clock, processor time and peak memory of one run, with as many threads as a user gets by default."""
    with tempfile.TemporaryDirectory() as folder:
        command = made(Path(folder), rows)
        start = time.perf_counter()
        processor = cost(command, threads={})
        wall = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"tacit train, {rows:,} rows of 50 columns: {wall:.0f} s, {processor:.0f} s of processor, {peak:.0f} MiB")
    print(machine())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, help="only tacit train, on a made table of so many rows")
    options = parser.parse_args()
    if options.rows is not None:
        measure_large(options.rows)
        return
    rounds = options.rounds
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
