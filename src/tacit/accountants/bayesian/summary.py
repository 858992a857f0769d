"""All that a run's evidence says, in one list: the Bayesian numbers and the percentiles that the sample supports."""

from collections.abc import Sequence
from dataclasses import replace

from tacit.accountants.bayesian.accountant import BayesianAccountant
from tacit.accountants.bayesian.individual import percentile_curve
from tacit.accountants.guarantee import EvidenceAccountant, Guarantee, Refusal
from tacit.errors import RefusedError
from tacit.evidence import Evidence
from tacit.ledger import Charge, Ledger
from tacit.types import Floats

PERCENTILES = (0.5, 0.9, 0.99, 0.999, 0.9999)


def bayesian_guarantees(
    ledger: Ledger, evidence: Evidence, delta: float, epsilons: Floats | None = None
) -> list[Guarantee | Refusal]:
    """The tightest Bayesian number, the Chernoff one, the paper's own, and individual percentiles.

    ``epsilons`` are those of the records, for a caller that has them already.
    """
    accountants = [BayesianAccountant("mixture"), BayesianAccountant("probes")]
    if evidence.kind == "members":
        accountants = []
    accountants.append(BayesianAccountant("holder", "student_t", conversion="classic"))
    found: list[Guarantee | Refusal] = []
    for accountant in accountants:
        try:
            found.append(accountant.guarantee(ledger, evidence, delta=delta))
        except RefusedError as error:
            found.append(Refusal(f"{accountant.name} {accountant.composition}", str(error)))
    return found + _percentiles(ledger, evidence, delta, epsilons)


def _percentiles(
    ledger: Ledger, evidence: Evidence, delta: float, epsilons: Floats | None
) -> list[Guarantee | Refusal]:
    try:
        return [*percentile_curve(ledger, evidence, delta, PERCENTILES, epsilons=epsilons)]
    except RefusedError as error:
        return [Refusal("individual", str(error))]


def epsilon_over_steps(
    ledger: Ledger, evidence: Evidence, delta: float, accountant: EvidenceAccountant, steps: Sequence[int]
) -> list[float]:
    """epsilon_mu after each of some numbers of steps, in the order of the ledger."""
    return [
        accountant.guarantee(ledger_until(ledger, count), evidence_until(evidence, count), delta=delta).epsilon
        for count in steps
    ]


def ledger_until(ledger: Ledger, steps: int) -> Ledger:
    """The first steps of a ledger, as if it had been planned to end there."""
    kept: list[Charge] = []
    for charge in ledger.charges:
        used = min(charge.steps, steps - sum(item.steps for item in kept))
        if used > 0:
            kept.append(Charge(charge.event, used))
    return replace(ledger, charges=tuple(kept), planned_steps=steps)


def evidence_until(evidence: Evidence, steps: int) -> Evidence:
    kept, left = [], steps
    for item in evidence.stretches:
        used = min(item.steps, left)
        if used > 0:
            kept.append(replace(item, steps=used))
        left -= used
    return replace(evidence, stretches=tuple(kept))
