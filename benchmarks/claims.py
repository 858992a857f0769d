"""Numbers of the pages that no other command prints: ``python -m benchmarks.claims [strict|fixed-size|draws]``."""

import statistics
import sys
import time

from tacit.accountants import get_accountant
from tacit.ledger import Charge, DiscretePoissonSample, FixedSizeSample, GaussianSumQuery, Ledger, SamplingEvent


def both(event: SamplingEvent, steps: int, delta: float) -> str:
    ledger = Ledger.planned([Charge(event, steps)])
    pld, rdp = (get_accountant(name).guarantee(ledger, delta=delta).epsilon for name in ("pld", "rdp"))
    return f"PLD {pld:.3f}, RDP {rdp:.3f}"


def strict() -> str:
    """docs/how-to/strict.md: q .2, z 1.1, 20 steps, delta 1e-4."""
    return both(DiscretePoissonSample(0.2, (GaussianSumQuery(1.0, 1.1, grid=2.0**-30),)), 20, 1e-4)


def fixed_size() -> str:
    """docs/explanation/accounting.md: 100 of 10,000, noise 4, 500 steps; 600 of 60,000, noise 2.2, 10,000 steps."""
    small = both(FixedSizeSample(100, 10_000, (GaussianSumQuery(1.0, 4.0),)), 500, 1e-5)
    return f"{small}; {both(FixedSizeSample(600, 60_000, (GaussianSumQuery(1.0, 2.2),)), 10_000, 1e-5)}"


def draws() -> str:
    """docs/scale.md: Poisson draws of 1e7 records at q 1e-4."""
    from tacit.randomness import Randomness
    from tacit.sampling import PoissonSampling

    began = time.perf_counter()
    drawn = PoissonSampling(1e-4, 1000).draws(10**7, Randomness())
    next(drawn)
    first, taken = time.perf_counter() - began, []
    for _ in range(200):
        began = time.perf_counter()
        next(drawn)
        taken.append(1e3 * (time.perf_counter() - began))
    return f"first {first:.4f} s, then median {statistics.median(taken):.3f} ms, most {max(taken):.3f} ms"


if __name__ == "__main__":
    claims = {"strict": strict, "fixed-size": fixed_size, "draws": draws}
    for name in [name for name in claims if name in sys.argv[1:]] or claims:
        print(f"{name}: {claims[name]()}")
