"""F30: `tacit train` killed at random times, once or several times over, and taken up with `--resume`.

The command runs in real processes, which are forked from one that has everything imported, and SIGKILL ends them. A run
ends in a model that is released, verified and within its budget, or it was stopped before anything was charged, and the
same command starts it.
"""

import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from reliability.figures import Figure, tries
from reliability.processes import Counter, answer, count_releases, ended, forked, in_its_own_process
from reliability.small_table import TARGETS, SmallTable, facts_of, fault_of_run, left_over, short_runs, tacit
from tacit.errors import LedgerError
from tacit.ledger import read_ledger

STEPS = 100  # five blocks: three kills before the first checkpoint lose three, which a run of three could not pay again
NAMES = {"flag": "classifications", "number": "regressions"}


def prove(effort: float) -> Iterable[Figure]:
    return in_its_own_process("reliability.f30_kills", effort)


@dataclass(frozen=True, slots=True)
class Mortal:
    """A run that is killed and taken up."""

    table: SmallTable
    target: str
    out: Path
    releases: Counter

    @property
    def is_charged(self) -> bool:
        """Whether there is anything to go on with; the first line of a ledger comes before its first charge."""
        try:
            return read_ledger(self.out).steps > 0
        except LedgerError:
            return False

    def go_on(self) -> int:
        begun = (self.out / "ledger.jsonl").exists() and (self.out / "run.json").exists()
        words = self.table.resume(self.out) if begun else self.table.train(self.target, self.out)
        return forked(lambda: self._command(words))

    def _command(self, words: tuple[object, ...]) -> int:
        count_releases(self.releases)
        said = tacit(*words)
        if said.code:
            print(said.err, file=sys.stderr, flush=True)
        return said.code

    @property
    def fault(self) -> str:
        """What is wrong with the finished run; nothing if all is well."""
        if facts_of(self.out)["steps"] < 1:
            return "it learned nothing"
        if read_ledger(self.out).steps < self.releases.value:
            return f"{self.releases.value} releases, {read_ledger(self.out).steps} charged"
        return fault_of_run(self.out, self.table.test)


@dataclass(slots=True)
class Tally:
    kills: int = 0
    runs: int = 0
    uncharged: int = 0
    finished: int = 0
    lost: int = 0
    first: str = ""


def killed(table: SmallTable, target: str, times: int, chance: random.Random) -> Figure:
    """So many kills, one to three a run, each at any moment of what is left of it."""
    longest, tally = _seconds(table, target), Tally()
    while tally.kills < times:
        run = Mortal(table, target, table.folder / f"{target}-{tally.runs}", Counter())
        tally.runs += 1
        found = _kill(run, chance.choice((1, 1, 2, 3)), longest, chance, tally) or _end(run)
        tally.lost, tally.first = tally.lost + bool(found), tally.first or found
    reached = f"{tally.runs} runs, {tally.uncharged} kills before any charge, {tally.finished} after the manifest"
    return Figure("F30", f"{NAMES[target]} killed (kill -9) on the command line and taken up", tally.kills, tally.lost,
                  tally.first or reached, "released and verified")  # fmt: skip


def _kill(run: Mortal, kills: int, longest: float, chance: random.Random, tally: Tally) -> str:
    for _ in range(kills):
        process = run.go_on()
        time.sleep(chance.uniform(0, longest))
        os.kill(process, signal.SIGKILL)
        code = ended(process)
        if code != -signal.SIGKILL:
            return f"exit code {code} before it was killed" if code else ""
        tally.kills += 1
        tally.uncharged += not run.is_charged
        if (run.out / "artefacts.json").exists():
            tally.finished += 1
            return ""
    return ""


def _end(run: Mortal) -> str:
    if not (run.out / "artefacts.json").exists():
        code = ended(run.go_on())
        if code:
            return f"exit code {code} when it was taken up"
        return left_over(run.out) or run.fault
    return run.fault


def _seconds(table: SmallTable, target: str) -> float:
    """How long a whole run takes here and now, in a process like those that are killed."""
    run = Mortal(table, target, table.folder / f"{target}-whole", Counter())
    start = time.perf_counter()
    if ended(run.go_on()) or run.fault:
        raise RuntimeError(f"a run that nobody kills: {run.fault}")
    return time.perf_counter() - start


def serve(effort: float) -> None:
    torch.set_num_threads(1)
    chance = random.Random(30)
    with tempfile.TemporaryDirectory() as place, short_runs(STEPS):
        table = SmallTable.write(Path(place) / "table")
        for target in TARGETS:
            tacit(*table.train(target, table.folder / f"warm-{target}"))
        answer([killed(table, target, tries(300, effort, least=3), chance) for target in TARGETS])


if __name__ == "__main__":
    serve(float(sys.argv[1]))
