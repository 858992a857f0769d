"""Nobody cries wolf: clean runs of the fast checks and of the deep ones raise no alarm."""

from collections.abc import Iterator

from reliability.figures import Figure, tries
from tacit.audit import Finding, check_canary, check_engine, check_noise, check_recount, check_replay, check_sampler
from tacit.audit.audit import perform, self_checks, self_subjects
from tacit.audit.canary import claimed_ledger
from tacit.audit.neighbours import few_cases
from tacit.sampling import SAMPLING_POLICIES


def prove(effort: float) -> Iterator[Figure]:
    fast = tries(1000, effort)
    alarms = []
    for number in range(fast):
        alarms += [one.check for one in fast_findings(number) if not one.held]
    yield Figure("audit", "false alarms: clean runs of the fast checks", fast, len(alarms), ", ".join(alarms),
                 "0 in 1,000")  # fmt: skip
    if effort < 0.05:
        return
    deep = tries(20, effort)
    alarms = [one.check for _ in range(deep) for one, _ in perform(self_checks("deep")) if not one.held]
    yield Figure(
        "audit", "false alarms: clean runs of the deep checks", deep, len(alarms), ", ".join(alarms), "0 in 20"
    )


def fast_findings(number: int) -> Iterator[Finding]:
    """All that involves chance, every time; what does not, now and then."""
    subjects = self_subjects()
    subject = subjects[number % len(subjects)]
    yield check_noise([subject], 100_000, processes=1 if number % 10 == 0 else 0)
    yield check_sampler(list(SAMPLING_POLICIES.values()), 100_000)
    yield check_canary(subjects[0], claimed_ledger(subjects[0], 200), 1e-5, steps=20)
    if number % 10 == 0:
        yield check_replay(few_cases()[number // 10 % 5 :][:1])
        yield check_engine(700_000)
        yield check_recount([SAMPLING_POLICIES["poisson"]])
