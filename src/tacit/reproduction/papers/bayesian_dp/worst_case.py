"""What the paper's own settings (its section B.1) cost in the worst case: the column "DP" of table 1, looked into.

MNIST: batch 1024, noise multiplier 0.1, 50 epochs (section 5.2). CIFAR-10: batch 512, 0.8; epochs are not printed, so
it is asked how many of them the printed epsilon allows. For Abalone and Adult no noise is printed.
"""

from bayesian_dp.accounting import DELTA

import tacit
from tacit.reproduction import Work

PRINTED = 8.0  # the DP epsilon of CIFAR-10


def worst_case(batch: int, size: int, noise: float, epochs: int) -> float:
    sample = tacit.ledger.PoissonSample(batch / size, (tacit.ledger.GaussianSumQuery(1.0, noise),))
    ledger = tacit.ledger.Ledger.planned([tacit.ledger.Charge(sample, -(-epochs * size // batch))])
    [found] = tacit.guarantees(ledger, DELTA, only=["pld"])
    return found.epsilon


def worst_case_rows(work: Work) -> None:
    row = "MNIST, the paper's own noise over 50 epochs: DP epsilon"
    if work.lacks(row):
        work.measure(row, worst_case(1024, 60_000, 0.1, 50))
    row = f"CIFAR-10, the paper's own noise: epochs within DP epsilon {PRINTED:g}"
    if work.lacks(row):
        work.measure(row, epochs_within(PRINTED))


def epochs_within(epsilon: float) -> int:
    low, high = 0, 1_000
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if worst_case(512, 50_000, 0.8, middle) <= epsilon else (low, middle)
    return low
