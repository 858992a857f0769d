"""What has to be said wherever a number that rests on evidence is shown (maths.md 8)."""

import math
from dataclasses import dataclass

from tacit.accountants.bayesian.estimators import EstimatorName
from tacit.accountants.bayesian.exposure import uncovered_steps
from tacit.evidence import Evidence
from tacit.ledger import Ledger

TYPICAL = "speaks of typical data, records drawn like the probes; one particular person may be worse off"
PRIVATE = "computed from private records and not itself private: for the data holder, not for publication"
EX_POST = "ex post: later weights depend on earlier outputs, which this composition ignores"
WORST = "the records show no less than the worst case: this is the DP number, which holds for a typical record too"
MEMBERS = "speaks of the members of this data only; shares of steps they sat out are taken from those around"


@dataclass(frozen=True, slots=True)
class Spent:
    """The chance that an estimate misleads.

    Args:
        gamma: that of all estimates together, taken out of delta.
        parts: how many estimates share it evenly.
        shared: over what they are, in words.
    """

    gamma: float
    parts: int = 1
    shared: str = ""

    @property
    def each(self) -> float:
        return self.gamma / self.parts


def evidence_sentences(ledger: Ledger, evidence: Evidence) -> tuple[str, ...]:
    """The sentences that belong to any number from this evidence."""
    found = [TYPICAL if evidence.kind == "probes" else MEMBERS, PRIVATE, EX_POST]
    if any(item.last > item.first for item in evidence.stretches):
        found.append("shares between two evaluations are taken as the larger of the two")
    missing = uncovered_steps(ledger, evidence)
    if missing:
        found.append(f"{missing} of {ledger.steps} steps have no evidence and count at the worst case")
    return tuple(found)


def estimator_sentence(name: EstimatorName, records: int, spent: Spent) -> str:
    """How far an estimate from a sample can be trusted, and what that trust costs."""
    paid = f"{spent.gamma:.2g} of delta is spent on that"
    match name:
        case "betting":
            return (
                f"betting estimate from {records} records: too low for at most {spent.gamma:.2g} of all samples"
                f"{spent.shared}, and {paid}; {_least(records, spent)}"
            )
        case "student_t":
            return (
                f"Student-t estimate from {records} records (Triastcyn and Faltings): a heuristic, too low for skewed "
                f"data; it claims to be too low for at most {spent.gamma:.2g} of all samples{spent.shared}, and {paid}"
            )
        case _:
            return (
                f"binary estimate from {records} records (Triastcyn and Faltings, 4.3.1), too low with a posterior "
                f"probability of at most {spent.gamma:.2g}{spent.shared}, and {paid}"
            )


def _least(records: int, spent: Spent) -> str:
    """What no sound estimate from so few records could improve on."""
    least = -math.expm1(math.log(spent.each) / records)
    if spent.parts == 1:
        return f"no sound one could put the expected delta below {100 * least:.2g} % of the worst case's"
    return f"no sound one could gain more than {-math.log(least):.2f}/lambda over the worst case"
