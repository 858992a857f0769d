"""The privacy columns of table 1: everybody, typical people, and nine of ten, from one run's ledger and probes.

The paper sets delta_mu = 1e-10 beside delta = 1e-5. Its estimator is given at both; the sound numbers are given at
equal delta, where the two notions can be put side by side at all. P(A) = 1 / (1 + e^-epsilon) is its equation 1.
"""

import math
from pathlib import Path

import tacit
from tacit.accountants import Guarantee
from tacit.errors import RefusedError
from tacit.evidence import evidence_path
from tacit.ledger import Ledger
from tacit.reproduction import Work

DELTA, PAPER_DELTA = 1e-5, 1e-10


def attack_success(epsilon: float) -> float:
    return 1 / (1 + math.exp(-epsilon))


def measure_privacy(work: Work, name: str, ledger: Ledger, folder: Path) -> None:
    """All columns of the run ``name``, whose probes' evidence lies in ``folder``."""
    evidence = tacit.evidence.load_evidence(evidence_path(folder, "probes"))
    [worst] = tacit.guarantees(ledger, DELTA, only=["pld"])
    work.measure(f"{name}: DP epsilon", worst.epsilon)
    work.measure(f"{name}: P(A) by DP", attack_success(worst.epsilon))
    paper = tacit.accountants.bayesian.BayesianAccountant("holder", "student_t", conversion="classic")
    for delta in (PAPER_DELTA, DELTA):
        found = paper.estimate(ledger, delta=delta, evidence=evidence)
        work.measure(f"{name}: Bayesian epsilon at {delta:g}, paper's estimator", found)
    sound = tacit.accountants.bayesian.BayesianAccountant("mixture").guarantee(ledger, delta=DELTA, evidence=evidence)
    work.measure(f"{name}: Bayesian epsilon, sound", sound.epsilon)
    work.measure(f"{name}: P(A) by Bayesian DP, sound", attack_success(sound.epsilon))
    for share in (0.9, 0.99):
        told = _percentile(work, name, ledger, evidence, share)
        if told is not None:
            work.measure(f"{name}: epsilon of {share:.0%} of people".replace("%", " %"), told.epsilon)


def _percentile(
    work: Work, name: str, ledger: Ledger, evidence: tacit.evidence.Evidence, share: float
) -> Guarantee | None:
    try:
        return tacit.accountants.bayesian.IndividualAccountant(share).guarantee(ledger, delta=DELTA, evidence=evidence)
    except RefusedError as refusal:
        work.note(f"{name}: {refusal}")
        return None
