"""The canary reaches 90 % of the theoretical epsilon at 99.9 % confidence, and does not go beyond it."""

import re
from collections.abc import Iterator

from reliability.figures import Figure, tries
from tacit.audit import check_canary
from tacit.audit.audit import self_subjects
from tacit.audit.canary import claimed_ledger


def prove(effort: float) -> Iterator[Figure]:
    steps = tries(10_000, effort, least=300)
    subject = self_subjects()[0]
    finding = check_canary(subject, claimed_ledger(subject, 200), 1e-5, steps)
    found = re.search(r"([\d.]+)% of the claimed", finding.measured)
    assert found is not None
    share = float(found.group(1))
    tried = f"canary: sigma 1, q 0.05, T 200, delta 1e-5, {steps} steps"
    goal, held = "90 % of the theoretical epsilon", share >= 90 or effort < 0.5
    yield Figure("audit", tried, finding.times, len(finding.broke), finding.measured, goal, held)
