"""Check 6: count the releases of small real runs and compare with the ledger on disk, step by step.

Every release takes one stretch of the noise stream, so the source of randomness knows how many there were. The ledger
must have been charged for at least as many, and the charge must have been synced, before the noise was drawn; and
before the units were drawn, at which the source of randomness is watched too.
"""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.audit.finding import Finding, described, raise_machine_errors, turns_errors_into_findings
from tacit.audit.neighbours import CLIPPING, Case
from tacit.audit.records import checkpoint_head
from tacit.audit.replay import classify, run_output
from tacit.audit.sampler import recorded_rate
from tacit.errors import LedgerError
from tacit.ledger import GaussianSumQuery, Ledger, PoissonSample, merged_noise_multiplier, read_ledger, verify_ledger
from tacit.losses import Losses, ModelLosses
from tacit.mechanisms import Clipping, ClipRecords, GaussianNoise
from tacit.randomness import Randomness
from tacit.randomness.streams import Purpose
from tacit.sampling import RECORDS, SAMPLING_POLICIES, Microbatches, SamplingPolicy, UnitOfPrivacy
from tacit.training import PrivateGradient, TrainingPlan, train

MULTIPLIER = 1.3
_STEPS, _LEFT_AFTER, _BLOCK = 12, 7, 5


@turns_errors_into_findings("ledger")
def check_recount(policies: Sequence[SamplingPolicy] | None = None) -> Finding:
    """Loops that are left early, interrupted runs that go on, and what the events say, for every policy and rule."""
    policies = list(SAMPLING_POLICIES.values()) if policies is None else policies
    broke: list[str] = []
    releases = 0
    for policy in policies:
        kind = recorded_kind(policy)
        for count in (_user_loop, _resumed_run):
            found = Count()
            try:
                count(policy, found)
            except Exception as error:
                raise_machine_errors(error)
                found.broke.append(f"a run that must go through stopped: {described(error)}")
            releases += found.releases
            broke += [f"{sentence} ({kind})" for sentence in found.broke]
    rules = [(clipping, RECORDS) for clipping in CLIPPING.values()]
    units: list[tuple[Clipping, UnitOfPrivacy]] = [*rules, (ClipRecords(1.0), Microbatches(2, protect="record"))]
    for clipping, unit in units:
        broke += _facts(clipping, unit)
    return Finding(
        "ledger",
        f"{len(policies)} policies: a loop left early, a run that went on; {len(units)} clipping rules and units",
        releases,
        tuple(dict.fromkeys(broke)),
        f"{releases} releases, each charged on disk before its noise was drawn",
    )


def recorded_kind(policy: SamplingPolicy) -> str:
    return policy.event((GaussianSumQuery(1.0, 1.0),)).kind


@dataclass(slots=True)
class Count:
    """Releases that were seen, and what was wrong with the ledger at any of them."""

    releases: int = 0
    broke: list[str] = field(default_factory=list)

    def compare(self, source: Randomness, path: Path, synced: "Counter[int]", before: int = 0) -> None:
        """At any time: charged on disk >= released, and every line of the ledger synced."""
        self.releases = before + source._calls["noise"]
        ledger = read_ledger(path)
        if ledger.steps < self.releases:
            self.broke.append("more releases than the ledger was charged for")
        lines, times = verify_ledger(path).head.count, synced[path.stat().st_ino]
        if times < lines:
            self.broke.append(f"the ledger was not synced to disk for each of its records ({times} of {lines})")

    def watched_source(self, path: Path, before: int) -> Randomness:
        """A secure source that looks at the ledger whenever units are drawn from it: the step must be paid for."""
        source = Randomness()
        draw = source.words

        def words(purpose: Purpose, count: int) -> NDArray[np.uint64]:
            if purpose == "sampling" and _charged_on_disk(path) <= before + source._calls["noise"]:
                self.broke.append("units were drawn before their step was charged on disk")
            return draw(purpose, count)

        source.words = words  # type: ignore[method-assign]
        return source


def _charged_on_disk(path: Path) -> int:
    return read_ledger(path).steps if path.exists() else 0


Synced = Counter[int]
"""How often each file, known by its inode, was synced."""


@contextmanager
def watch_syncs() -> Iterator[Synced]:
    """Count how often files are synced while a run goes on."""
    seen, real = Synced(), os.fdatasync

    def counting(file: Any) -> None:
        real(file)
        seen[os.fstat(file).st_ino] += 1

    with patch.object(os, "fdatasync", counting):
        yield seen


def _data(units: int = 100) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(units, 4, generator=generator), torch.randint(0, 2, (units,), generator=generator)


def _user_loop(policy: SamplingPolicy, count: Count) -> None:
    """A user's own loop, left in the middle of a block, and a second one on the same ledger."""
    with tempfile.TemporaryDirectory() as folder, watch_syncs() as synced:
        path = Path(folder) / "ledger.jsonl"
        for _ in range(2):
            before, model = count.releases, nn.Linear(4, 2)
            source = count.watched_source(path, before)
            noise = GaussianNoise(multiplier=MULTIPLIER)
            private = PrivateGradient(
                model, classify, policy, ClipRecords(1.0), noise, ledger=path, block=_BLOCK, randomness=source
            )
            with private:
                for sample in private.samples(_data(), _STEPS):
                    private.backward(sample)
                    count.compare(source, path, synced, before)
                    if sample.step == _LEFT_AFTER:
                        break
            count.compare(source, path, synced, before)
        count.broke += _event_facts(policy, read_ledger(path))


def _resumed_run(policy: SamplingPolicy, count: Count) -> None:
    """A run that is stopped after its checkpoint and goes on; what was lost is paid for again."""
    with tempfile.TemporaryDirectory() as folder, watch_syncs() as synced:
        path, saved = Path(folder) / "ledger.jsonl", Path(folder) / "checkpoint.safetensors"
        noise = GaussianNoise(multiplier=MULTIPLIER)
        plan = TrainingPlan(policy, ClipRecords(1.0), noise, _STEPS, path, block=_BLOCK)
        for leave in (True, False):
            before, method = count.releases, descent(ModelLosses(nn.Linear(4, 2), classify))
            source = count.watched_source(path, before)

            def look(step: int, leave: bool = leave, source: Randomness = source, before: int = before) -> None:
                count.compare(source, path, synced, before)
                if leave and step == _LEFT_AFTER:
                    raise _StopError

            options: dict[str, Any] = {"checkpoint": saved, "checkpoint_every": 3, "resume": True}
            with suppress(_StopError):
                train(method, _data(), plan, randomness=source, on_step=look, **options)
            count.compare(source, path, synced, before)
            count.broke += _checkpoint_facts(saved, path, source)


class _StopError(Exception):
    """Stops a run from inside."""


def _checkpoint_facts(saved: Path, path: Path, source: Randomness) -> list[str]:
    """A checkpoint names a head that the ledger goes on from, and holds no key."""
    content, broke = saved.read_bytes(), []
    if source._key in content or source._key.hex().encode() in content:
        broke.append("a checkpoint holds the key of the noise")
    try:
        verify_ledger(path, since=checkpoint_head(saved))
    except LedgerError as error:
        raise_machine_errors(error)
        broke.append("a checkpoint's head is no prefix of the ledger")
    return broke


def _facts(clipping: Clipping, unit: UnitOfPrivacy) -> list[str]:
    """The event must carry the declared multiplier, whatever the groups and the unit."""
    policy = SAMPLING_POLICIES["poisson"]
    case = Case(policy, clipping, [1.0] * 4, unit=unit)
    run = run_output(case, case.data())
    if run.stopped or not run.queries:
        return [f"a run that must go through stopped: {run.stopped} ({type(clipping).__name__})"]
    found, broke = merged_noise_multiplier(run.queries), []
    if abs(found - 1.0) > 1e-9:
        broke.append(f"the ledger's noise multiplier is {found:.6g}, declared was 1 ({type(clipping).__name__})")
    if any(query.multiplicity != unit.multiplicity for query in run.queries):
        broke.append(f"a query's multiplicity is not that of the unit ({unit.unit})")
    return broke


def _event_facts(policy: SamplingPolicy, ledger: Ledger) -> list[str]:
    broke = []
    for event, _ in ledger.merged().items():
        if abs(merged_noise_multiplier(event.queries) - MULTIPLIER) > 1e-9:
            broke.append("the ledger's noise multiplier is not the declared one")
        if isinstance(event, PoissonSample) and event.probability != recorded_rate(policy):
            broke.append("the ledger's sampling rate is not the policy's")
    return broke


@dataclass(frozen=True, slots=True)
class _State:
    params: dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class _Descent:
    """Plain descent, the smallest method that a run accepts."""

    losses: Losses
    start: dict[str, Tensor]

    def init(self) -> _State:
        return _State(self.start)

    def params(self, state: _State) -> dict[str, Tensor]:
        return state.params

    def noise_stddev(self, step: int, denominator: float) -> float | None:
        return None

    def step(self, state: _State, mean_gradient: Mapping[str, Tensor]) -> _State:
        return _State({name: value - 0.1 * mean_gradient[name] for name, value in state.params.items()})


def descent(losses: ModelLosses) -> _Descent:
    """The method for these losses, from where their model stands."""
    return _Descent(losses, losses.start())
