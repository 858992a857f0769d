"""All checks in a row: of an installation, or of what a run's ledger says was done."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tacit.audit.attacks import check_one_run, check_retraining
from tacit.audit.canary import check_canary, claimed_ledger
from tacit.audit.engine.check import check_engine
from tacit.audit.finding import Effort, Finding
from tacit.audit.formulas import check_formulas
from tacit.audit.neighbours import few_cases
from tacit.audit.noise.check import check_noise
from tacit.audit.records import check_records
from tacit.audit.recount import check_recount
from tacit.audit.replay import check_replay
from tacit.audit.sampler import check_sampler
from tacit.audit.subject import Subject, subject_of, vector_names
from tacit.ledger import Ledger, PosteriorSample, SamplingEvent, ShuffledStep, Tuned, ledger_path, read_ledger
from tacit.mechanisms import AdaptiveClip, ClipGroups, ClipLayers, ClipRecords, GaussianNoise, VectorGroup
from tacit.sampling import SAMPLING_POLICIES, PoissonSampling

Check = Callable[[], Finding]
Timed = tuple[Finding, float]

_DRAWS: dict[Effort, int] = {"quick": 400_000, "standard": 5_000_000, "deep": 20_000_000}
_DECISIONS: dict[Effort, int] = {"quick": 150_000, "standard": 4_000_000, "deep": 20_000_000}
_STEPS: dict[Effort, int] = {"quick": 500, "standard": 1_500, "deep": 20_000}
_LARGE: dict[Effort, int] = {"quick": 400_000, "standard": 1_500_000, "deep": 10_000_000}  # draws of large models
_PROCESSES: dict[Effort, int] = {"quick": 1, "standard": 2, "deep": 4}
_CLAIMED_STEPS = 200
DELTA = 1e-5


def self_subjects() -> list[Subject]:
    """Every clipping rule, with noise as it is usually given."""
    poisson, noise = PoissonSampling(0.05, expected_size=10), GaussianNoise(multiplier=1.0)
    two = VectorGroup(tuple(vector_names(2)), 1.0, scales=(1.0, 3.0))
    return [
        Subject("clip", poisson, ClipRecords(1.0), noise),
        Subject("normalise", poisson, ClipRecords(1.0, rule="normalise"), noise),
        Subject("layers", poisson, ClipLayers(1.0), noise, groups=3),
        Subject("joint", poisson, ClipGroups((two,)), noise, groups=2),
        Subject("adaptive", poisson, AdaptiveClip(1.0), noise),
    ]


def self_checks(effort: Effort = "standard") -> list[Check]:
    """The checks of an installation."""
    subjects = self_subjects()
    policies = list(SAMPLING_POLICIES.values())
    loud = subjects[0]
    checks: list[Check] = [
        lambda: check_replay(few_cases() if effort == "quick" else None),
        lambda: check_engine(_LARGE[effort]),
        lambda: check_noise(subjects[:1] if effort == "quick" else subjects, _DRAWS[effort], _PROCESSES[effort]),
        lambda: check_sampler(policies, _DECISIONS[effort]),
        lambda: check_recount(policies[:1] if effort == "quick" else policies),
        lambda: check_formulas(2_000 if effort == "quick" else 20_000),
    ]
    if effort != "quick":
        checks.append(lambda: check_canary(loud, claimed_ledger(loud, _CLAIMED_STEPS), DELTA, _STEPS[effort]))
    if effort == "deep":
        checks.append(lambda: check_one_run(loud, claimed_ledger(loud, _CLAIMED_STEPS), DELTA))
        checks.append(check_retraining)
    return checks


def run_checks(run: Path, delta: float, effort: Effort = "standard") -> list[Check]:
    """The checks of a run: of its files, and of the mechanism with the very numbers of its ledger."""
    ledger = read_ledger(run)
    checks: list[Check] = [lambda: check_records(ledger_path(run), delta)]
    event = most_frequent_event(ledger)
    if event is None:
        return checks
    subject = subject_of(event, ledger.header.unit)
    checks += [
        check_replay,
        lambda: check_engine(_LARGE[effort]),
        lambda: check_noise([subject], _DRAWS[effort], _PROCESSES[effort]),
        lambda: check_sampler([subject.sampling], _DECISIONS[effort]),
        lambda: check_recount([subject.sampling]),
        lambda: check_canary(subject, ledger, delta, _STEPS[effort]),
    ]
    if effort == "deep":
        checks.append(lambda: check_one_run(subject, ledger, delta))
        checks.append(check_retraining)
    return checks


def most_frequent_event(ledger: Ledger) -> SamplingEvent | None:
    """The event with the most steps among those that release sums; a search does so in its trials."""
    pairs = [pair for e, n in ledger.merged().items() for pair in (e.trial if isinstance(e, Tuned) else ((e, n),))]
    counts = {e: n for e, n in pairs if not isinstance(e, PosteriorSample | ShuffledStep)}
    return max(counts, key=lambda event: counts[event]) if counts else None


def perform(checks: Sequence[Check]) -> Iterator[Timed]:
    """Each check's finding and the seconds that it took."""
    for check in checks:
        start = time.perf_counter()
        finding = check()
        yield finding, time.perf_counter() - start
