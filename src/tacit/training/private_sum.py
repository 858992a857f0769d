"""The engine: charge the ledger, draw records, clip and sum, add noise. In that order, for every method alike."""

import logging
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from tacit.distributed import SharedLedger, current_ranks, is_sharded
from tacit.errors import InputError, TacitError, check_count
from tacit.gradients import ClippedSum, clipped_sum, guard_of
from tacit.layers import refuse_layers
from tacit.ledger import Charge, Ledger, LedgerFile
from tacit.losses import Losses, ModelLosses, ParameterKinds, RecordGroup, tensors_of
from tacit.mechanisms import AdaptiveClip, GaussianSumMechanism
from tacit.randomness import Randomness, RecordChance
from tacit.sampling import Records
from tacit.sampling.units import DrawnRows, check_ids
from tacit.storage.files import is_there
from tacit.training.before_the_run import try_out
from tacit.training.charging import ChargedAhead, Charging
from tacit.training.checkpoints import Checkpoint, plan_fingerprint
from tacit.training.evidence import EvidencePlan, Recorder
from tacit.training.individual_filter import FilteredRun, IndividualFilter, filter_header
from tacit.training.plan import PrivacyPlan
from tacit.training.reading.items import AHEAD
from tacit.training.reading.memory import Fitting, memory_budget
from tacit.training.reading.samples import Drawn, Outstanding, Portions, Sample, cut
from tacit.training.reading.source import DataSource, StepChance, ids_for
from tacit.training.several_ranks import SeveralRanks
from tacit.types import Batch, Indices, Vectors

_log = logging.getLogger("tacit")


class PrivateSum:
    """Releases noisy means of clipped per-record gradients under a plan.

    Args:
        losses: one loss per record as a function of named parameters.
        params: the parameters' names, shapes and dtypes; values are passed to :meth:`release`.
        plan: the public facts of the run.
        randomness: secure unless a seeded one is given, which marks the ledger.
        stddev: a method's own noise on the sum at each step, in place of the plan's.
        individual_filter: leave out every record whose own budget is used up.
        evidence: what private evidence about records to gather beside the ledger.
        example: a public batch on which to check that records stay apart; generated from the schema by default.
        goes_on: whether a run is taken up, whose ledger must be there: it is never made anew.
        beside: what the run will release apart from its steps; charged with the first block of them.
    """

    def __init__(
        self,
        losses: Losses,
        params: Mapping[str, Tensor],
        plan: PrivacyPlan,
        *,
        randomness: Randomness | None = None,
        stddev: Callable[[int], float] | None = None,
        example: Batch | None = None,
        evidence: EvidencePlan | None = None,
        individual_filter: IndividualFilter | None = None,
        goes_on: bool = False,
        beside: Sequence[Charge] = (),
    ) -> None:
        self._plan = plan
        self._outstanding = Outstanding()
        self._loops: dict[ChargedAhead, weakref.finalize[..., PrivateSum]] = {}  # going on, and what ends each, once
        self._individual_filter = individual_filter
        self._filtered: FilteredRun | None = None
        self._evidence = evidence
        self._recorders: list[Recorder] = []
        self._losses = losses
        self._guard = guard_of(losses)
        self._params = params
        self._ranks = current_ranks()
        self._denominator = plan.sampling.denominator
        self._randomness = (randomness or Randomness()).for_rank(self._ranks.rank)
        self._shards: Any = getattr(losses, "meeting", None)  # a tacit.distributed.shards.ShardedSums
        if self._shards is None:
            if is_sharded(params.values()):
                raise InputError("a sharded model is trained by PrivateGradient, in a loop of your own")
            self._ranks.share(list(params.values()))
        self._kinds = ParameterKinds(params)
        self._owns = isinstance(losses, ModelLosses) and losses.owns(params)
        self._owns_rows = True  # whether all rows that are given here are this rank's to draw
        self._example = example
        self._fitting = Fitting()  # into memory, once the model was tried out
        self._checked = False
        self.path = "not tried out yet"  # which way the losses take: public, from records of our own making
        mechanism = plan.mechanism(params, own_noise=stddev is not None)
        if isinstance(losses, ModelLosses):
            refuse_layers(losses.model)
        self._charging = Charging(
            plan, mechanism, plan.header(self._randomness), self._ranks, stddev=stddev, beside=beside, goes_on=goes_on
        )
        at_first = self._charging.mechanism_at(0)
        plan.sampling.event(at_first.queries)  # what cannot be accounted for is refused before it begins
        if individual_filter is not None:
            self._charging.header = filter_header(self._charging.header, individual_filter, plan, at_first)
        several = SeveralRanks(plan, self._ranks, self._randomness, self._shards, self._sum_of)
        several.check(looks_at_all=evidence is not None or individual_filter is not None)
        self._several = several if several.are_needed else None
        if not self._ranks.alone or is_there(Path(plan.ledger)):
            self.ledger_file  # noqa: B018 (another run's ledger, or one in use, is refused at once; ranks open together)

    @property
    def plan(self) -> PrivacyPlan:
        return self._plan

    @property
    def ledger_file(self) -> LedgerFile | SharedLedger:
        """The ledger, made when it is first needed: a run that is refused before it begins leaves none behind."""
        return self._charging.file

    @property
    def ledger(self) -> Ledger:
        """All that has been charged; before a ledger is made, nothing but what it will declare."""
        return self._charging.ledger

    @property
    def released(self) -> Ledger:
        """What was charged for the samples that were given out: never less than what was released.

        ``ledger`` also holds the rest of the blocks that are charged ahead, which a clean end of the loop gives back.
        """
        return self._charging.released(self._loops)

    def noise_stddevs(self, step: int) -> dict[str, float]:
        """The noise on each coordinate of each vector's sum at this step: public."""
        return self._charging.mechanism_at(step).stddev_by_name()

    @property
    def clip_norm(self) -> float:
        """Where adaptive clipping has come to; 1 without it. It follows released counts only."""
        return self._charging.mechanism.norm

    def samples(
        self, source: DataSource, steps: int, *, first: int = 0, before_charging: Callable[[], None] | None = None
    ) -> Generator[Sample, None, None]:
        """Draw ``steps`` samples, each charged before its data is touched.

        Leaving the loop early settles the last block at the steps that were begun. A run that goes on after ``first``
        steps draws the rest of them, with fresh randomness and from a new pass. ``before_charging`` is called once,
        when all checks have passed and the ledger is open.
        """
        check_count("steps", steps)
        if not 0 <= first < steps:
            raise InputError(f"a run of {steps} steps goes on after 0 to {steps - 1} of them, found {first}")
        self._outstanding.check_process()
        self._check_trained()
        ids, units = self._checked_units(source)
        self._together(lambda: self._try_out(source))
        if self._evidence is not None:
            self._recorders = self._evidence.open(self._clipped_sum, self.plan, steps, units)
        if self._individual_filter is not None:
            self._filtered = FilteredRun(
                self._individual_filter, self._clipped_sum, self.plan, source, self.ledger, self._randomness
            )
        self._charging.plan_steps(first, steps)
        ahead, count = ChargedAhead(self.plan.sampling.steps_per_pass), len(source)
        drawn_units = self._draw_charged(units, first, steps - first, ahead)
        rows = (self._rows_here(drawn, source, count, ids) for drawn in drawn_units)
        self._charging.declare(first, steps)
        if before_charging is not None:
            before_charging()
        # made after the ledger's: runs before it
        at_exit = weakref.finalize(self, _end_at_exit, weakref.ref(self), ahead)
        at_exit.atexit = self._ranks.alone  # several ranks could wait for one that is gone
        self._loops[ahead] = at_exit
        try:
            for step, (portions, drawn, chance) in enumerate(source.records(rows, self._bounds), start=first):
                ahead.begin()
                yield self._sample(step, portions, drawn, chance, source.views, ahead.mechanisms.pop(step))
        finally:
            del self._loops[ahead]
            if at_exit.detach() is not None:
                self._end(ahead)

    def _end(self, ahead: ChargedAhead) -> None:
        """The loop was left by its end or an error, or it was open when the engine was closed or the program ended."""
        ahead.end()
        if self._outstanding.is_home:  # a forked process that leaves the loop has nothing to say about it
            self._charging.settle(ahead)
            for recorder in self._recorders:
                recorder.save(self.ledger_file.head)

    def _bounds(self, drawn: DrawnRows) -> list[int]:
        """Where a sample is cut into portions: what fits into memory, or what is summed at a time."""
        return cut(drawn, self._fitting.held, None if self._several is None else self._several.width)

    def _sample(
        self,
        step: int,
        portions: Portions,
        rows: DrawnRows,
        chance: StepChance,
        views: int | None,
        mechanism: GaussianSumMechanism,
    ) -> Sample:
        """A sample that only this engine can release, and only once, by the mechanism that was charged for it."""
        self._outstanding.check_process()
        sizes = None if rows.sizes is None else rows.sizes.tolist()
        units = rows.rows if rows.units is None else rows.units
        return self._outstanding.give(Drawn(step, portions, sizes, views, units, mechanism, chance.losses))

    def _check_trained(self) -> None:
        """The model must train what it did at the start: the mechanism clips and adds noise to those vectors."""
        if self._owns and isinstance(self._losses, ModelLosses):
            self._kinds.check(self._losses.params)

    def _checked_units(self, source: DataSource) -> tuple[Indices | None, int]:
        """The ids by which rows are grouped, and how many units there are, if the plan can draw from them."""
        plan, alone = self.plan, self._ranks.alone
        self._owns_rows = source.own_rows or alone
        if source.own_rows and not alone and (plan.deterministic or not plan.sampling.by_unit):
            raise InputError("ranks with rows of their own draw by Poisson or in passes, and are not deterministic")
        ids = ids_for(plan.unit, source)
        check_ids(plan.unit, plan.sampling.neighbours, ids)
        units = plan.unit.count(len(source), ids)
        plan.sampling.check_population(units)
        if source.views is not None and not isinstance(plan.unit, Records):
            raise InputError("views are averaged per record; with users or microbatches give the rows themselves")
        return ids, units

    def _together(self, action: Callable[[], None]) -> None:
        """What all ranks do, of which each learns how it ended for the others."""
        if self._shards is None:
            self._ranks.together(action)
        else:
            with self._shards.step(self._charging.mechanism):
                action()

    def _rows_here(
        self, drawn: Indices, source: DataSource, count: int, ids: Indices | None
    ) -> tuple[DrawnRows, StepChance]:
        """The rows of the drawn units, of ``count`` that there are, and their chance."""
        found = self.plan.unit.rows_of(drawn, count, ids)
        return DrawnRows(found.rows, found.sizes, drawn), source.chance(self._randomness, found.rows)

    def _draw_charged(self, units: int, first: int, steps: int, ahead: ChargedAhead) -> Iterator[Indices]:
        """The drawn units of each step; a block is charged, and noted in ``ahead``, before its first draw."""
        policy = self.plan.sampling
        if self._several is None or self._owns_rows:
            draws = policy.draws(units, self._randomness)
        else:
            draws = self._several.draws(units)
        for step in range(steps):
            self._outstanding.check_process()
            if self._charging.is_due(step):
                self._check_trained()
                self._charging.reserve_block(first + step, steps - step, ahead)
            yield next(draws)

    def release(self, sample: Sample, params: Mapping[str, Tensor]) -> Vectors:
        """The noisy mean gradient of a sample, rounded once to the parameters' type: the only thing that leaves."""
        self._outstanding.check_process()
        self._kinds.check(params)
        drawn = self._outstanding.take(sample)
        if self._filtered is not None:
            drawn = self._filtered.admit(drawn, params)
        if self._several is not None:
            return self._several.release(drawn, params, self._fitting.computed)
        total = self._sum_of(drawn, params)
        for recorder in self._recorders:
            recorder.observe(drawn, params, total.squared_norms)
        return drawn.mechanism.release(total.sums, self._denominator, self._randomness, like=params)

    def _sum_of(
        self, drawn: Drawn, params: Mapping[str, Tensor], sample: int | None = None, chunk: int | None = None
    ) -> ClippedSum:
        rest = drawn.sizes, drawn.views, sample, chunk
        return self._clipped_sum(iter(drawn.portions), params, drawn.mechanism, drawn.chance, *rest)

    def _clipped_sum(
        self,
        records: Sequence[RecordGroup] | Iterator[Sequence[RecordGroup]],
        params: Mapping[str, Tensor],
        mechanism: GaussianSumMechanism,
        chance: RecordChance,
        sizes: list[int] | None = None,
        views: int | None = None,
        sample: int | None = None,
        chunk: int | None = None,
    ) -> ClippedSum:
        """The one call of the gradients."""
        return clipped_sum(
            self._losses,
            params,
            records,
            mechanism,
            chunk=chunk or self._fitting.at_once(chance.records * (views or 1)),
            sizes=sizes,
            views=views,
            chance=chance,
            isolation=self._plan.isolation,
            guard=self._guard,
            sample=sample,
        )

    @property
    def writes(self) -> bool:
        """Whether this process writes files; among several ranks, the first alone does, and no forked process."""
        return self._ranks.first and self._outstanding.is_home

    def checkpoint(self, step: int, content: Any) -> Checkpoint:
        """What a run needs to go on after ``step`` steps; ``content`` is the method's or the user's own."""
        self._outstanding.check_process()
        head, plan = self.ledger_file.head, plan_fingerprint(self.plan)
        return Checkpoint(step, content, head, plan, self._charging.charged_before, self.clip_norm)

    def go_on(self, checkpoint: Checkpoint) -> None:
        """Take up the run that the checkpoint was made in, if ledger and plan are still those of that run."""
        self._outstanding.check_process()
        checkpoint.check(self.plan)
        self._charging.goes_on = True
        self._charging.charged_before = checkpoint.charged_before
        if isinstance(self.plan.clipping, AdaptiveClip):  # otherwise it is the plan's, whatever a file says
            self._charging.mechanism.norm = checkpoint.clip_norm

    def close(self) -> None:
        for end in self._loops.values() if self._ranks.alone else ():
            end()
        self._charging.close()

    def _try_out(self, source: DataSource) -> None:
        """Before anything is charged: does the data set give records, and do the losses take records of their form?"""
        source.try_out()
        source.check_rows(self.plan.unit)
        if self._checked:
            return
        public = self._example is not None
        like = self._example if public else source.schema()
        params = self._params if self._shards is None else self._shards.whole
        tried = try_out(
            self._losses, params, like, self._charging.mechanism,
            isolation=self.plan.isolation, public=public, guard=self._guard,
        )  # fmt: skip
        self.path = tried.path
        if tried.reasons:
            _log.warning("tacit: the losses take %s", tried.path)
        views = source.views or 1
        record = views * sum(tensor[:1].nbytes for tensor in tensors_of(like))
        self._fitting = Fitting.of(
            memory_budget(self.plan.memory),
            row=tried.row_bytes,
            record=record,
            loads=1 + AHEAD * source.workers,
            computed=self.plan.physical_batch,
            usual=views * int(self.plan.sampling.denominator) if isinstance(self.plan.unit, Records) else 0,
        )
        self._checked = True


def _end_at_exit(engine: "weakref.ref[PrivateSum]", ahead: ChargedAhead) -> None:
    """A program that ends with a loop still open pays for the steps that it began, as if it had left the loop."""
    found = engine()
    if found is None:
        return
    try:
        found._end(ahead)
    except (TacitError, OSError) as error:  # such as a folder that is gone; there is nobody left to raise it to
        _log.warning("tacit: a loop was open when the program ended, and its block stays charged in full: %s", error)
