"""What has to be said wherever a number that rests on evidence is shown (maths.md 8)."""

import math

from tacit.accountants.bayesian.estimators import EstimatorName
from tacit.accountants.bayesian.exposure import uncovered_steps
from tacit.evidence import Evidence
from tacit.ledger import Ledger

TYPICAL = "speaks of typical data, records drawn like the probes; one particular person may be worse off"
PRIVATE = "computed from private records and not itself private: for the data holder, not for publication"
EX_POST = "ex post: later weights depend on earlier outputs, which this composition ignores"
MEMBERS = "speaks of the members of this data only; shares of steps they sat out are taken from those around"


def evidence_sentences(ledger: Ledger, evidence: Evidence) -> tuple[str, ...]:
    """The sentences that belong to any number from this evidence."""
    found = [TYPICAL if evidence.kind == "probes" else MEMBERS, PRIVATE, EX_POST]
    if any(item.last > item.first for item in evidence.stretches):
        found.append("shares between two evaluations are taken as the larger of the two")
    missing = uncovered_steps(ledger, evidence)
    if missing:
        found.append(f"{missing} of {ledger.steps} steps have no evidence and count at the worst case")
    return tuple(found)


def estimator_sentence(name: EstimatorName, records: int, gamma: float) -> str:
    """How far an estimate from a sample can be trusted."""
    match name:
        case "betting":
            most = math.log(max(records / math.log(1 / gamma), 1.0))
            return (
                f"betting estimate from {records} records: wrong for at most {gamma:.1g} of samples per order; no "
                f"sound one could gain more than {most:.2f}/lambda over the worst case"
            )
        case "student_t":
            return f"Student-t estimate from {records} records (paper B): a heuristic, too low for skewed data"
        case _:
            return f"binary estimate from {records} records (paper B, 4.3.1), credibility {1 - gamma:.6g}"
