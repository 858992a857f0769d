"""Speed: what charging a step costs, with every block on disk before it is used."""

import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import tacit
from reliability.figures import Figure, tries
from tacit.training.plan import BLOCK

GOAL = 0.25  # milliseconds a step


def prove(effort: float) -> Iterable[Figure]:
    event = tacit.ledger.PoissonSample(0.01, (tacit.ledger.GaussianSumQuery(1.0, 1.1),))
    blocks = tries(500, effort, least=20)
    times = []
    with (
        tempfile.TemporaryDirectory() as place,
        tacit.ledger.LedgerFile(Path(place) / "l", tacit.ledger.LedgerHeader()) as ledger,
    ):
        ledger.plan(blocks * BLOCK)
        for _ in range(blocks):
            start = time.perf_counter()
            ledger.reserve([tacit.ledger.Charge(event, BLOCK)])
            times.append(1000 * (time.perf_counter() - start) / BLOCK)
    cost = statistics.median(times)
    reached = f"{cost:.3f} ms a step (median of blocks of {BLOCK}; slowest {max(times):.3f})"
    yield Figure("speed", "cost of the ledger", blocks, 0, reached, f"at most {GOAL} ms a step", cost <= GOAL)
