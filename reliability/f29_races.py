"""F29 and F21: many processes start the same run, or charge the same ledger, at the same moment.

The processes are forked from one that has everything imported, and wait for each other at a barrier, so that they
really meet. A loser must leave with one line and touch nothing.
"""

import csv
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import torch

import tacit
from reliability.figures import Figure, tries
from tacit.commands.app import run as command
from tacit.errors import LedgerError
from tacit.ledger import locks, verify_ledger
from tacit.tables import Flag, Number, Schema, recipes, schema_text

MOST = 20  # processes at once
STEPS = 100
EVENT = tacit.PoissonSample(0.01, (tacit.GaussianSumQuery(1.0, 1.1),))
HEADER = tacit.LedgerHeader(dataset="races")
SCHEMA = Schema((Number("x", 0, 1), Flag("y")), dataset="races", records=60)


def prove(effort: float) -> Iterable[Figure]:
    """In a process of its own, which imports torch once and forks the others before any thread is started."""
    arguments = [sys.executable, "-m", "reliability.f29_races", str(effort)]
    paths = os.pathsep.join([str(Path(__file__).parent.parent), *sys.path])
    done = subprocess.run(arguments, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the process that races failed: {done.stderr[-300:]}")
    yield from (Figure(**figure) for figure in json.loads(done.stdout.splitlines()[-1]))


def at_once(count: int, act: Callable[[int], int]) -> list[int]:
    """The exit codes of so many processes that begin together."""
    wait, go = os.pipe()
    processes = []
    for number in range(count):
        process = os.fork()
        if not process:
            code = 99
            try:
                os.close(go)
                os.read(wait, 1)  # ends when the parent closes the other end
                code = act(number)
            finally:
                os._exit(code)
        processes.append(process)
    os.close(wait)
    os.close(go)
    return [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]


def starts(folder: Path, times: int, chance: random.Random) -> Figure:
    """The same command in the same folder: one wins, and its run is whole."""
    table, schema = folder / "table.csv", folder / "schema.toml"
    folder.mkdir()
    _write_table(table)
    schema.write_text(schema_text(SCHEMA))
    losers, lost, first = 0, 0, ""
    for number in range(times):
        out, said = folder / f"run{number}", folder / f"said{number}"
        said.mkdir()
        arguments = ["train", str(table), "--schema", str(schema), "--target", "y", "--epsilon", "1"]
        arguments += ["--out", str(out)]
        codes = at_once(
            chance.randint(2, MOST), lambda who, said=said, arguments=arguments: _said(said / str(who), arguments)
        )
        found = _fault(out, codes, said)
        lost, first, losers = lost + bool(found), first or found, losers + len(codes) - 1
    return Figure("F29", "times that 2 to 20 processes started one run together", times, lost, first or
                  f"{losers} losers, each with exit code 2 and one line")  # fmt: skip


def _said(path: Path, arguments: list[str]) -> int:
    with path.open("w") as file, redirect_stderr(file), redirect_stdout(open(os.devnull, "w")):
        return command(arguments)


def _fault(out: Path, codes: list[int], said: Path) -> str:
    if sorted(codes) != [0] + [2] * (len(codes) - 1):
        return f"exit codes {codes}: {[path.read_text()[-200:] for path in said.iterdir()]}"
    lines = [(said / str(who)).read_text() for who, code in enumerate(codes) if code == 2]
    if any(text.count("\n") != 1 or not text.startswith("tacit: ") for text in lines):
        return f"a loser said {lines}"
    if tacit.read_ledger(out).steps != STEPS or not (out / "artefacts.json").exists():
        return "the winner's run is not whole"
    return "a lock is left" if any(path.suffix == ".lock" for path in out.iterdir()) else ""


def _write_table(path: Path) -> None:
    chance = random.Random(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "y"])
        for _ in range(60):
            x = chance.random()
            writer.writerow([round(x, 3), "yes" if x > 0.5 else "no"])


def charges(folder: Path, times: int, chance: random.Random) -> Figure:
    """One ledger, charged by all of them in turns that they take as they come: nobody's charge is missing."""
    folder.mkdir()
    lost, made = 0, 0
    for number in range(times):
        path, count = folder / f"{number}.jsonl", chance.randint(2, MOST)
        codes = at_once(count, lambda who, path=path: _charge(path, who + 1))
        made += count
        lost += any(codes) or tacit.read_ledger(path).steps != sum(range(1, count + 1))
        lost += verify_ledger(path).head.count != 1 + count or locks.note_path(path).exists()
    return Figure("F21", "times that 2 to 20 processes charged one new ledger together", times, lost, f"{made} charges")


def _charge(path: Path, steps: int) -> int:
    while True:
        try:
            with tacit.LedgerFile(path, HEADER) as ledger:
                ledger.reserve([tacit.Charge(EVENT, steps)])
                return 0
        except LedgerError as error:
            if "in use by" not in str(error):
                print(error, file=sys.stderr, flush=True)
                return 1
        time.sleep(0.001)


def serve(effort: float) -> None:
    torch.set_num_threads(1)
    recipes.STEPS = dict.fromkeys(recipes.STEPS, STEPS)
    chance = random.Random(29)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        figures = [
            starts(folder / "starts", tries(100, effort), chance),
            charges(folder / "charges", tries(400, effort, least=2), chance),
        ]
    facts = ("row", "tried", "times", "lost", "reached", "goal", "held")
    print(json.dumps([{name: getattr(figure, name) for name in facts} for figure in figures]))


if __name__ == "__main__":
    serve(float(sys.argv[1]))
