"""How fast and how tight the accountant is, on the settings of maths.md 3 and the heterogeneous ledgers of golden.json.

Run: python benchmarks/accounting.py [rounds]. Contenders are interleaved, medians over rounds are printed. A contender
is a function of (events, delta) that returns (lower, upper); peers are added to CONTENDERS.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from tacit.accountants.pld import PoissonGaussian, epsilon_bracket

Events = Sequence[PoissonGaussian]


def ledger_of_golden(size: int) -> list[PoissonGaussian]:
    generator = np.random.default_rng(0)
    q, m = generator.uniform(0.001, 0.01, 1000), generator.uniform(0.8, 3.0, 1000)
    return [PoissonGaussian(float(a), float(b), 1) for a, b in zip(q[:size], m[:size], strict=True)]


SETTINGS: dict[str, Events] = {
    "q=256/60000 m=1.3 T=3516": [PoissonGaussian(256 / 60000, 1.3, 3516)],
    "q=.001 m=1 T=1e6": [PoissonGaussian(0.001, 1.0, 10**6)],
    "q=.01 m=.6 T=1e4": [PoissonGaussian(0.01, 0.6, 10**4)],
    "q=.001 m=.6 T=1e5": [PoissonGaussian(0.001, 0.6, 10**5)],
    "q=.001 m=4 T=1e6": [PoissonGaussian(0.001, 4.0, 10**6)],
    "q=128/60000 m=3.18 T=9375": [PoissonGaussian(128 / 60000, 3.18, 9375)],
    "q=.05 m=1 T=200": [PoissonGaussian(0.05, 1.0, 200)],
    "q=.01 m=1 T=1": [PoissonGaussian(0.01, 1.0, 1)],
    "q=.01 m=1 T=2": [PoissonGaussian(0.01, 1.0, 2)],
    "q=1e-5 m=1 T=5": [PoissonGaussian(1e-5, 1.0, 5)],
    "50 distinct events": ledger_of_golden(50),
    "1000 distinct events": ledger_of_golden(1000),
}


def tacit(events: Events, delta: float) -> tuple[float, float]:
    found = epsilon_bracket(events, delta)
    return found.lower, found.upper


CONTENDERS: dict[str, Callable[[Events, float], tuple[float, float]]] = {"tacit": tacit}


def measure(rounds: int, delta: float = 1e-5) -> None:
    times: dict[tuple[str, str], list[float]] = {}
    answers: dict[tuple[str, str], tuple[float, float]] = {}
    for _ in range(rounds):
        for setting, events in SETTINGS.items():
            for name, contender in CONTENDERS.items():
                start = time.perf_counter()
                answers[setting, name] = contender(events, delta)
                times.setdefault((setting, name), []).append(time.perf_counter() - start)
    print(f"{'setting':28s}{'contender':12s}{'ms':>10s}{'epsilon':>14s}{'width':>12s}{'relative':>12s}")
    for (setting, name), seconds in times.items():
        lower, upper = answers[setting, name]
        relative = (upper - lower) / upper if upper else 0.0
        middle = 1e3 * statistics.median(seconds)
        print(f"{setting:28s}{name:12s}{middle:10.1f}{upper:14.6f}{upper - lower:12.1e}{relative:12.1e}")


if __name__ == "__main__":
    measure(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
