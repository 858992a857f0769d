"""Gathering evidence while training: the shares of the sampled members, for nothing, and of probes, on a schedule.

Nothing that is gathered here changes the run: the releases and the ledger are the same with and without it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from tacit.errors import InputError, check_count
from tacit.evidence import (
    Evidence,
    Kind,
    Shares,
    Stretch,
    check_bound,
    evidence_path,
    load_evidence,
    round_up,
    save_evidence,
)
from tacit.gradients import ClippedSum
from tacit.ledger import Head, PoissonSample
from tacit.losses import RecordGroup
from tacit.mechanisms import GaussianSumMechanism
from tacit.randomness import Randomness, RecordChance
from tacit.sampling import Records
from tacit.training.plan import PrivacyPlan
from tacit.training.reading.samples import Drawn
from tacit.training.reading.source import DataSource

_PRICE = 0.1  # of the training time: what probes may cost by default
_BLOCKS = 64  # stretches of a run over which the members' shares are kept apart


class SumOfRecords(Protocol):
    """The engine's own clipped sum of some records, drawn or not."""

    def __call__(
        self,
        groups: Sequence[RecordGroup],
        params: Mapping[str, Tensor],
        mechanism: GaussianSumMechanism,
        chance: RecordChance,
        /,
    ) -> ClippedSum: ...


@dataclass(frozen=True, slots=True)
class EvidencePlan:
    """What evidence to gather, beside the ledger: private files for the Bayesian and individual accountants.

    Args:
        probes: held-out records in the form of the data, drawn like it and never trained on; None gathers none.
        probe_every: steps between two evaluations of the probes; None spends a tenth of the training time on them.
        members: keep the shares of the sampled members, which come for nothing.
    """

    probes: Any = None
    probe_every: int | None = None
    members: bool = False

    def __post_init__(self) -> None:
        if self.probes is None and not self.members:
            raise InputError("evidence of what? give probes, or members=True")
        if self.probe_every is not None:
            check_count("probe_every", self.probe_every)

    def open(self, clipped_sum: SumOfRecords, plan: PrivacyPlan, steps: int, units: int) -> list["Recorder"]:
        """The recorders of a run; what cannot be gathered is refused before anything is charged."""
        if plan.unit.multiplicity != 1:
            raise InputError("evidence needs the unit of privacy to be what is clipped; protect microbatches or users")
        recorders: list[Recorder] = []
        if self.probes is not None:
            if not isinstance(plan.unit, Records):
                raise InputError("probes are single records, but the plan protects another unit; gather members=True")
            recorders.append(ProbeRecorder.of(self, clipped_sum, plan, steps))
        if self.members:
            recorders.append(MemberRecorder(plan, _earlier(plan, "members"), steps, units))
        return recorders


class Recorder(Protocol):
    def observe(self, drawn: Drawn, params: Mapping[str, Tensor], squared_norms: Tensor) -> None:
        """Called once for each release."""

    def save(self, head: Head) -> None:
        """Write what was gathered, bound to the ledger's head."""


@dataclass(slots=True)
class ProbeRecorder:
    """Evaluates the probes at every ``every``-th step and at the last."""

    clipped_sum: SumOfRecords
    plan: PrivacyPlan
    probes: list[RecordGroup]
    count: int
    randomness: Randomness
    every: int
    steps: int
    earlier: Evidence | None
    shares: list[Shares] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    waiting: list[tuple[float, float]] = field(default_factory=list)

    @classmethod
    def of(cls, evidence: EvidencePlan, clipped_sum: SumOfRecords, plan: PrivacyPlan, steps: int) -> "ProbeRecorder":
        source = evidence.probes if isinstance(evidence.probes, DataSource) else DataSource(evidence.probes)
        count = len(source)
        every = evidence.probe_every or _affordable(count, plan.sampling.denominator, steps)
        earlier = _earlier(plan, "probes")
        if earlier is not None and earlier.records != count:
            raise InputError(f"the run's evidence so far is about {earlier.records} probes, now {count} are given")
        randomness = Randomness()  # not the run's: its draws must be the same with and without evidence
        return cls(clipped_sum, plan, source.all(randomness), count, randomness, every, steps, earlier)

    def observe(self, drawn: Drawn, params: Mapping[str, Tensor], squared_norms: Tensor) -> None:
        key = rate_and_noise(self.plan, drawn.mechanism)
        if self.shares and drawn.step % self.every and drawn.step != self.steps - 1:
            self.waiting.append(key)
            return
        chance = self.randomness.record_chance(np.arange(self.count))
        norms = self.clipped_sum(self.probes, params, drawn.mechanism, chance).squared_norms
        self.shares.append(round_up(drawn.mechanism.shares(norms).cpu().numpy()))
        here = len(self.shares) - 1
        between = [Stretch(*same, len(list(steps)), here - 1, here) for same, steps in groupby(self.waiting)]
        self.stretches += [*between, Stretch(*key, 1, here, here)]
        self.waiting.clear()

    def save(self, head: Head) -> None:
        if self.shares:
            found = Evidence(head, "probes", np.stack(self.shares), tuple(self.stretches))
            save_evidence(_joined(self.earlier, found), evidence_path(self.plan.ledger, "probes"))


class MemberRecorder:
    """Keeps the largest share of each member in each stretch of the run in which it was sampled."""

    def __init__(self, plan: PrivacyPlan, earlier: Evidence | None, steps: int, units: int) -> None:
        if earlier is not None and earlier.records != units:
            raise InputError(f"the run's evidence so far is about {earlier.records} members, now there are {units}")
        self._plan, self._earlier = plan, earlier
        self._length = -(-steps // _BLOCKS)
        self._shares = np.full((-(-steps // self._length), units), np.nan, dtype=np.float32)
        self._keys: list[tuple[float, float, int]] = []

    def observe(self, drawn: Drawn, params: Mapping[str, Tensor], squared_norms: Tensor) -> None:
        block = drawn.step // self._length
        self._keys.append((*rate_and_noise(self._plan, drawn.mechanism), block))
        if len(drawn.units):
            shares = round_up(drawn.mechanism.shares(squared_norms).cpu().numpy())
            row = self._shares[block]
            row[drawn.units] = np.fmax(row[drawn.units], shares)

    def save(self, head: Head) -> None:
        if not self._keys:
            return
        stretches = [
            Stretch(q, z, len(list(steps)), block, block) for (q, z, block), steps in groupby(self._keys)
        ]  # a member's share of a stretch is its largest there
        used = stretches[-1].first + 1
        found = Evidence(head, "members", _filled(self._shares[:used]), tuple(stretches))
        save_evidence(_joined(self._earlier, found), evidence_path(self._plan.ledger, "members"))


def _affordable(probes: int, sample: float, steps: int) -> int:
    """Steps between evaluations, the first and the last included, that cost a tenth of the run (but two at least)."""
    evaluations = max(2, int(_PRICE * steps * sample / probes))
    return max(1, math.ceil((steps - 1) / (evaluations - 1)))


def _filled(shares: Shares) -> Shares:
    """Stretches that a member sat out get the larger of its shares before and after; 1 if it was never sampled."""
    result = shares.copy()
    before, after = shares.copy(), shares.copy()
    for row in range(1, len(shares)):
        before[row] = np.where(np.isnan(before[row]), before[row - 1], before[row])
        after[-row - 1] = np.where(np.isnan(after[-row - 1]), after[-row], after[-row - 1])
    missing = np.isnan(result)
    result[missing] = np.fmax(before, after)[missing]
    return np.nan_to_num(result, nan=1.0)


def rate_and_noise(plan: PrivacyPlan, mechanism: GaussianSumMechanism) -> tuple[float, float]:
    """q and z of a step; only Poisson samples have them."""
    match plan.sampling.event(mechanism.queries):
        case PoissonSample(probability=q, noise_multiplier=z):
            return q, z
        case event:
            raise InputError(
                f"shares of single records are accounted for under Poisson sampling only, found {event.kind}"
            )


def _earlier(plan: PrivacyPlan, kind: Kind) -> Evidence | None:
    """What an interrupted run under the same ledger has gathered."""
    path = evidence_path(plan.ledger, kind)
    if not path.exists():
        return None
    if not Path(plan.ledger).exists():
        raise InputError(f"{path} belongs to a ledger that is not there any more; move it away")
    found = load_evidence(path)
    check_bound(found, plan.ledger)
    return found


def _joined(earlier: Evidence | None, later: Evidence) -> Evidence:
    if earlier is None:
        return later
    shift = len(earlier.shares)
    moved = (
        Stretch(s.probability, s.noise_multiplier, s.steps, s.first + shift, s.last + shift) for s in later.stretches
    )
    return Evidence(
        later.head, later.kind, np.concatenate([earlier.shares, later.shares]), (*earlier.stretches, *moved)
    )
