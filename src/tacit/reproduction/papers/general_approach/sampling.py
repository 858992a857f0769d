"""Paper G, section 5: what one run costs under each sampling policy, 256 of 60,000 records, 15 passes, sigma = 1.3.

Shuffled passes are what most code draws and nobody can account for tightly: every accountant refuses them by name.
Fixed-size samples protect against replacing a record, a different promise: their number is not to be compared.
"""

import tacit
from tacit.accountants import amplification_by_sampling, gaussian_epsilon
from tacit.ledger import BallsInBinsStep, ShuffledStep
from tacit.reproduction import Work

SIZE, BATCH, STEPS, NOISE, DELTA = 60_000, 256, 3516, 1.3, 1e-5
QUERY = (tacit.ledger.GaussianSumQuery(1.0, NOISE),)


def epsilon(event: object, steps: int, accountant: str) -> float:
    """What an accountant says of ``steps`` such events; infinite where it refuses."""
    header = tacit.ledger.LedgerHeader(neighbours=event.neighbours, dataset_size=SIZE)
    ledger = tacit.ledger.Ledger.planned([tacit.ledger.Charge(event, steps)], header)
    [found] = tacit.guarantees(ledger, DELTA, only=[accountant])
    return found.epsilon if isinstance(found, tacit.Guarantee) else float("inf")


def reproduce(work: Work) -> None:
    poisson = tacit.ledger.PoissonSample(BATCH / SIZE, QUERY)
    bins = SIZE // BATCH
    passes = -(-STEPS // bins) * bins
    work.measure("Poisson (i.i.d.), PLD", epsilon(poisson, STEPS, "pld"))
    work.measure("Poisson (i.i.d.), RDP", epsilon(poisson, STEPS, "rdp"))
    work.measure(
        "fixed size, replace-one, RDP", epsilon(tacit.ledger.FixedSizeSample(BATCH, SIZE, QUERY), STEPS, "rdp")
    )
    work.measure("balls in bins, 16 passes, RDP", epsilon(BallsInBinsStep(bins, QUERY), passes, "rdp"))
    shuffled = [epsilon(ShuffledStep(bins, QUERY), STEPS, name) for name in ("pld", "rdp", "gdp")]
    work.measure("shuffled: accountants that refuse", sum(value == float("inf") for value in shuffled))
    work.measure("full batch, one step, PLD", epsilon(tacit.ledger.PoissonSample(1.0, QUERY), 1, "pld"))
    whole = gaussian_epsilon(1 / NOISE, DELTA)
    work.measure("one step: rule of thumb q epsilon", BATCH / SIZE * whole)
    work.measure("one step: exact amplification", amplification_by_sampling(whole, BATCH / SIZE))
