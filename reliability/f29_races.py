"""F29 and F21: many processes start the same run, or charge the same ledger, at the same moment.

The processes are forked from one that has everything imported, and wait for each other at a barrier, so that they
really meet. A loser must leave with one line and touch nothing.
"""

import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import torch

import tacit
from reliability.figures import Figure, tries
from reliability.processes import answer, at_once, in_its_own_process
from reliability.small_table import STEPS, SmallTable, fault_of_run, left_over, short_runs
from reliability.small_table import tacit as command
from tacit.errors import LedgerError
from tacit.ledger import verify_ledger
from tacit.storage import locks

MOST = 20  # processes at once
EVENT = tacit.ledger.PoissonSample(0.01, (tacit.ledger.GaussianSumQuery(1.0, 1.1),))
HEADER = tacit.ledger.LedgerHeader(dataset="races")


def prove(effort: float) -> Iterable[Figure]:
    return in_its_own_process("reliability.f29_races", effort)


def starts(folder: Path, times: int, chance: random.Random) -> Figure:
    """The same command in the same folder: one wins, and its run is whole."""
    table = SmallTable.write(folder)
    command(*table.train("flag", folder / "warm"))  # whatever is imported or computed on first use, for all of them
    losers, lost, first = 0, 0, ""
    for number in range(times):
        out, said = folder / f"run{number}", folder / f"said{number}"
        said.mkdir()
        codes = at_once(chance.randint(2, MOST), lambda who, out=out, said=said: _start(table, out, said / str(who)))
        found = _fault(table, out, codes, said)
        lost, first, losers = lost + bool(found), first or found, losers + len(codes) - 1
        for left in folder.glob(f"*{number}*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    reached = first or f"{losers:,} losers, each with exit code 2 and one line"
    goal = "one winner, released and verified"
    return Figure("F29", "times that 2 to 20 processes started one run together", times, lost, reached, goal)


def _start(table: SmallTable, out: Path, note: Path) -> int:
    said = command(*table.train("flag", out))
    note.write_text(said.err)
    return said.code


def _fault(table: SmallTable, out: Path, codes: list[int], said: Path) -> str:
    if sorted(codes) != [0] + [2] * (len(codes) - 1):
        return f"exit codes {codes}: {[path.read_text()[-200:] for path in said.iterdir()]}"
    lines = [(said / str(who)).read_text() for who, code in enumerate(codes) if code == 2]
    if any(text.count("\n") != 1 or not text.startswith("tacit: ") for text in lines):
        return f"a loser said {lines}"
    if tacit.read_ledger(out).steps != STEPS:
        return f"{tacit.read_ledger(out).steps} steps were charged"
    return left_over(out) or fault_of_run(out, table.test)


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
            with tacit.ledger.LedgerFile(path, HEADER) as ledger:
                ledger.reserve([tacit.ledger.Charge(EVENT, steps)])
                return 0
        except LedgerError as error:
            if "in use by" not in str(error):
                print(error, file=sys.stderr, flush=True)
                return 1
        time.sleep(0.001)


def serve(effort: float) -> None:
    torch.set_num_threads(1)
    chance = random.Random(29)
    with tempfile.TemporaryDirectory() as place, short_runs():
        folder = Path(place)
        answer([
            starts(folder / "starts", tries(500, effort, least=2), chance),
            charges(folder / "charges", tries(400, effort, least=2), chance),
        ])  # fmt: skip


if __name__ == "__main__":
    serve(float(sys.argv[1]))
