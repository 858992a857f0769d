"""Speed: what charging a step costs, with every block on disk before it is used, and what a long ledger costs."""

import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import tacit
from benchmarks.ledger import HEADER, best, hashed, memory, written
from reliability.figures import Figure, tries
from tacit.ledger import Charge, LedgerFile
from tacit.training.plan import AT_ONCE

GOAL = 0.25  # milliseconds a step
LONG = 1_000_000  # steps
ENTRIES = 100_000
TIMES, MEGABYTES = 3, 150  # opening, over reading and hashing the same lines; and its memory


def prove(effort: float) -> Iterable[Figure]:
    with tempfile.TemporaryDirectory() as place:
        yield _charging(Path(place) / "ledger.jsonl", tries(500, effort, least=20))
        yield _opening(Path(place) / "distinct.jsonl", tries(ENTRIES, effort, least=1000))


def _charging(path: Path, blocks: int) -> Figure:
    event = tacit.ledger.PoissonSample(0.01, (tacit.ledger.GaussianSumQuery(1.0, 1.1),))
    times = []
    with LedgerFile(path, HEADER) as ledger:
        ledger.plan(blocks * AT_ONCE)
        for _ in range(blocks):
            start = time.perf_counter()
            ledger.reserve([Charge(event, AT_ONCE)])
            times.append(1000 * (time.perf_counter() - start) / AT_ONCE)
    cost, lines = statistics.median(times), path.read_bytes().splitlines(keepends=True)
    again = len(lines[-1])  # what repeats is as long every time
    size = (len(b"".join(lines)) + (LONG // AT_ONCE - blocks) * again) / 1e6
    reached = (
        f"{cost:.3f} ms a step (median of blocks of {AT_ONCE}; slowest {max(times):.3f}); a block that repeats takes "
        f"{again} bytes, {LONG:,} steps {LONG // AT_ONCE + 2:,} lines and {size:.1f} MB"
    )
    return Figure("speed", "cost of the ledger", blocks, 0, reached, f"at most {GOAL} ms a step", cost <= GOAL)


def _opening(path: Path, entries: int) -> Figure:
    written(path, entries, distinct=True)
    unit = best(lambda: hashed(path))
    times = best(lambda: LedgerFile(path, HEADER).close()) / unit
    megabytes = memory(path, "LedgerFile(path, HEADER).close()")
    looked = best(lambda: list(tacit.read_ledger(path).charges), 2) / unit
    return Figure(
        "speed", "opening and verifying a ledger of distinct entries", entries, 0,
        f"{times:.1f} times reading and hashing its lines, {megabytes:.0f} MB; all understood: {looked:.0f} times",
        f"at most {TIMES} times, {MEGABYTES} MB", times <= TIMES and megabytes <= MEGABYTES)  # fmt: skip
