"""What a long ledger costs: a gated block, opening and verifying it, memory, and a run of a million steps.

    python -m benchmarks.ledger [--steps 1000000]

Figures are ratios wherever a machine's speed would hide the point: a block's cost at 100,000 records over that at
1,000, taken in turns; opening over reading and hashing the same lines; the end of a long run over a fresh one. Times
are the process's own (not waiting for the disk), medians or the best of several; memory is the peak above an
interpreter that has the package loaded, in a process of its own.
"""

import argparse
import hashlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

import tacit
from tacit.accountants import BudgetGate
from tacit.ledger import Charge, GaussianSumQuery, Head, LedgerFile, LedgerHeader, PoissonSample, verify_ledger
from tacit.ledger.chain import GENESIS, seal
from tacit.ledger.charges import AGAIN, charges_to_json

BLOCK = 20
BUDGET = tacit.Budget(1e4, 1e-6)  # never reached: a refusal would end the measurement
HEADER = LedgerHeader(dataset="benchmark", epsilon=BUDGET.epsilon, delta=BUDGET.delta)


def event(number: int = 0) -> PoissonSample:
    return PoissonSample(0.01, (GaussianSumQuery(1.0, 1.1 + number * 1e-6, 1e-5),))


def written(path: Path, records: int, *, distinct: bool) -> Path:
    """A ledger of so many records, in one go: through the API each of them would wait for the disk."""
    head = Head(0, GENESIS)
    with path.open("wb") as file:
        opened = {"record": "open", "format": 1, "header": asdict(HEADER), "versions": {}}
        for record in [opened, *({} for _ in range(records))]:
            repeats = head.count > 1 and not distinct
            charges = AGAIN if repeats else charges_to_json([Charge(event(head.count), BLOCK)])
            line, head = seal(record or {"record": "reserve", "charges": charges}, head)
            file.write(line)
    path.with_name(path.name + ".head").write_bytes(head.to_bytes())
    return path


def best(action: Callable[[], object], times: int = 5) -> float:
    return min(spent(action) for _ in range(times))


def spent(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


class Run:
    """A ledger that is charged by gated blocks."""

    def __init__(self, path: Path, steps: int | None = None) -> None:
        self.file = LedgerFile(path, HEADER)
        self.gate = BudgetGate(BUDGET, plan=[] if steps is None else [Charge(event(), steps)])

    def block(self) -> None:
        charges = [Charge(event(), BLOCK)]
        self.gate(self.file.ledger, charges)
        self.file.reserve(charges)


def in_turns(runs: Iterable[Run], blocks: int = 300) -> list[float]:
    """Milliseconds of a gated block of each; in turns, as the machine may do other things meanwhile."""
    runs = list(runs)
    times = [[spent(run.block) for run in runs] for _ in range(blocks)]
    return [1000 * statistics.median(column) for column in zip(*times, strict=True)]


def hashed(path: Path) -> None:
    with path.open("rb") as file:
        for line in file:
            hashlib.sha256(line).hexdigest()


def memory(path: Path, what: str) -> float:
    """The peak of a process that does this with a ledger, in MB above one that has loaded the package."""
    code = f"""
import sys
import tacit
from tacit.accountants import BudgetGate, guarantees
from tacit.ledger import LedgerFile, verify_ledger
from benchmarks.ledger import *
def used(name):
    return int(next(line for line in open("/proc/self/status") if line.startswith(name)).split()[1]) / 1024
before, path = used("VmRSS"), Path(sys.argv[1])
{what}
print(used("VmHWM") - before)
"""
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True)
    return float(done.stdout)


def long_run(folder: Path, steps: int) -> Iterable[str]:
    """As many gated blocks as a run of so many steps has."""
    run, sizes = Run(folder / "long.jsonl", 2 * steps), []
    for number in range(steps // BLOCK):
        run.block()
        if number % max(1, steps // BLOCK // 10) == 0:
            sizes.append(_resident())
    assert run.file.ledger.steps == steps // BLOCK * BLOCK
    yield f"after {steps:,} steps memory has grown by {sizes[-1] - sizes[1]:.1f} MB since the first tenth"
    fresh = Run(folder / "fresh.jsonl", 2 * steps)
    old, new = in_turns([run, fresh])
    yield f"after {steps:,} steps a block costs {old / new:.2f} of one in a fresh ledger ({old:.2f} ms)"


def _resident() -> float:
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1]) / 1024


def figures(folder: Path, steps: int) -> Iterable[str]:
    for distinct in (False, True):
        kind = "distinct" if distinct else "equal"
        runs = [
            Run(written(folder / f"{kind}-{records}.jsonl", records, distinct=distinct))
            for records in (1_000, 10_000, 100_000)
        ]
        first = ", ".join(f"{1000 * spent(run.block):.0f}" for run in runs)
        costs = in_turns(runs)
        each = ", ".join(f"{cost:.2f}" for cost in costs)
        yield f"1,000, 10,000, 100,000 {kind} records: a gated block {each} ms (the first one: {first})"
        yield f"        a block at 100,000 records costs {costs[2] / costs[0]:.2f} of one at 1,000"
        for run in runs:
            run.file.close()
        path = written(folder / f"{kind}.jsonl", 100_000, distinct=distinct)
        unit = best(lambda path=path: hashed(path))
        yield f"        reading and hashing the lines of 100,000 {kind} records: {1000 * unit:.0f} ms"
        for name, action in {
            "verify_ledger": lambda path=path: verify_ledger(path),
            "opening for writing": lambda path=path: LedgerFile(path, HEADER).close(),
            "read_ledger, every entry understood": lambda path=path: list(tacit.read_ledger(path).charges),
        }.items():
            yield f"        {name}: {best(action, 3) / unit:.1f} times that"
        for name, what in {
            "opening": "LedgerFile(path, HEADER).close()",
            "opening and a gated block": "Run(path).block()",
        }.items():
            yield f"        {name}: {memory(path, what):.0f} MB"
    yield from long_run(folder, steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=1_000_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for line in figures(Path(folder), asked.steps):
            print(line, flush=True)


if __name__ == "__main__":
    main()
