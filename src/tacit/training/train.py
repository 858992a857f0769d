"""Run an inference method under a plan, and keep what it releases."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from torch import Tensor

from tacit.errors import InputError, StorageError, check_count
from tacit.inference import FollowsPlannedNoise, InferenceMethod
from tacit.ledger import Charge, Ledger
from tacit.mechanisms import AdaptiveClip
from tacit.posteriors import Draws, Posterior
from tacit.randomness import Randomness
from tacit.storage.files import is_there
from tacit.training.chains import Chains, Keeping
from tacit.training.checkpoints import Checkpoint, read_checkpoint
from tacit.training.evidence import EvidencePlan
from tacit.training.individual_filter import IndividualFilter
from tacit.training.plan import TrainingPlan
from tacit.training.private_sum import PrivateSum
from tacit.training.progress import progress_bar
from tacit.training.reading.source import DataSource
from tacit.types import Batch

State = TypeVar("State")
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_EARLY = (1, 2, 4, 8, 16)  # steps that are saved besides: kills in the first block must not cost a whole budget


@dataclass(frozen=True, slots=True)
class Run:
    """What a run leaves behind: a posterior and a ledger. Both are releases; neither holds data.

    ``effective_temperature`` is that of the posterior which the chains sample, measured on their moves between draws
    (at least the last half of them): privacy noise, the noise of drawing records and the error of finite steps. None
    for a method that samples none. ``path`` is the way that the losses took.
    """

    posterior: Posterior
    ledger: Ledger
    state: Any
    effective_temperature: float | None = None
    path: str = ""

    @property
    def summary(self) -> str:
        """A few lines to print after a run."""
        kept = f"{len(self.posterior)} draws" if len(self.posterior) > 1 else "a point"
        chains = f" of {self.posterior.chains} chains" if isinstance(self.posterior, Draws) else ""
        lines = [f"kept: {kept}{chains}", f"steps charged in the ledger: {self.ledger.steps}"]
        if self.effective_temperature is not None:
            found = f"{self.effective_temperature:.4g}"
            lines.append(f"effective temperature: {found}, measured; 1 is that of the posterior of the clipped losses")
        return "\n".join(lines)


def train(
    method: InferenceMethod[State],
    dataset: Any,
    plan: TrainingPlan,
    *,
    keep_last: int = 1,
    keep_every: int = 1,
    keep: Callable[[int], bool] | None = None,
    chains: int = 1,
    starts: Sequence[Mapping[str, Tensor]] | None = None,
    randomness: Randomness | None = None,
    example: Batch | None = None,
    evidence: EvidencePlan | None = None,
    individual_filter: IndividualFilter | None = None,
    progress: bool = False,
    on_step: Callable[[int], None] | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 100,
    resume: bool = False,
    beside: Sequence[Charge] = (),
) -> Run:
    """Train privately; the cost is in the ledger before the data of a step is read.

    Args:
        method: how released gradients become a posterior.
        dataset: tensors, a data set, or a :class:`DataSource`.
        keep_last: how many of the last iterates are kept as draws; 1 keeps a point. Keeping more costs nothing more.
            A method that makes its own posterior (variational inference, MC dropout) keeps none.
        keep_every: the distance between kept iterates.
        keep: which steps of a chain may be kept, such as ``CyclicalStep(...).samples``.
        chains: how often the method runs, plan.steps each. Every chain is charged: calibrate the noise for
            ``plan.charged_steps(chains)`` steps.
        starts: the parameters at which each chain begins; different ones make SGD a deep ensemble.
        evidence: private evidence about records to gather beside the ledger, for Bayesian and individual accounting.
        individual_filter: leave out every record whose own budget is used up; costs a pass over all records per step.
        progress: show a progress bar.
        checkpoint: a file to go on from after a stop or a crash; also written when an error or a signal ends the run.
        checkpoint_every: the steps between checkpoints. A crash loses the steps since the last one, which are paid for
            again. One is written before the first charge, and some more in the first steps.
        resume: go on from the checkpoint if there is one. The ledger must be the one that it was made with.
        beside: what else the run will release, apart from its steps. It is charged with the first block of them, so
            that what a crash costs can only be taken from later steps.
    """
    source = dataset if isinstance(dataset, DataSource) else DataSource(dataset)
    several = Chains(method, plan.steps, Keeping(keep_last, keep_every, keep), chains, starts)
    check_count("checkpoint_every", checkpoint_every)
    found = _found_checkpoint(checkpoint, resume, several, plan)
    goes_on = found is not None
    with closing(_engine(several, plan, randomness, example, evidence, individual_filter, goes_on, beside)) as engine:
        _give_planned_noise(several, engine)
        if found is not None:
            engine.go_on(found)
        try:
            _run(several, engine, source, progress, on_step, checkpoint, checkpoint_every)
        except BaseException as error:
            with _noted(error):
                _write(checkpoint, several, engine, found)
            raise
        _write(checkpoint, several, engine, found)
        return Run(several.posterior, engine.ledger, several.state, several.temperature, engine.path)


def _write(path: str | Path | None, chains: Chains[State], engine: PrivateSum, found: Checkpoint | None) -> None:
    """A checkpoint on the way out, if the run has come further than the one it began with."""
    if path is not None and engine.writes and chains.step > (0 if found is None else found.step):
        engine.checkpoint(chains.step, chains.content).write(path)


@contextmanager
def _noted(error: BaseException) -> Iterator[None]:
    """What ended a run is what is shown, even if the disk that ended it holds no checkpoint either."""
    try:
        yield
    except StorageError as second:
        error.add_note(str(second))


def _run(
    chains: Chains[State],
    engine: PrivateSum,
    source: DataSource,
    progress: bool,
    on_step: Callable[[int], None] | None,
    checkpoint: str | Path | None,
    every: int,
) -> None:
    if chains.step == chains.total:
        return

    def save() -> None:
        if checkpoint is not None and engine.writes:
            engine.checkpoint(chains.step, chains.content).write(checkpoint)

    # before anything is paid for there is a model to end with, and soon a better one
    samples = engine.samples(source, chains.total, first=chains.step, before_charging=save)
    waiting = between_steps(wanted=checkpoint is not None)
    with waiting as let_through, progress_bar(chains.total, shown=progress) as advance, closing(samples):
        for sample in samples:
            chains.advance(engine.release(sample, chains.params))
            advance(sample.step)
            if on_step is not None:
                on_step(sample.step)
            let_through()
            if chains.step % every == 0 or chains.step in _EARLY:
                save()


def _engine(
    chains: Chains[State],
    plan: TrainingPlan,
    randomness: Randomness | None,
    example: Batch | None,
    evidence: EvidencePlan | None,
    individual_filter: IndividualFilter | None,
    goes_on: bool,
    beside: Sequence[Charge],
) -> PrivateSum:
    denominator = plan.sampling.denominator

    def stddev(step: int) -> float:
        value = chains.noise_stddev(step, denominator)
        if value is None:
            raise InputError("a method asks for its own noise at some steps and the plan's at others")
        return value

    own = stddev if chains.noise_stddev(0, denominator) is not None else None
    return PrivateSum(
        chains.method.losses,
        chains.params,
        plan,
        randomness=randomness,
        stddev=own,
        example=example,
        evidence=evidence,
        individual_filter=individual_filter,
        goes_on=goes_on,
        beside=beside,
    )


def _found_checkpoint(
    path: str | Path | None, resume: bool, chains: Chains[State], plan: TrainingPlan
) -> Checkpoint | None:
    """Take up the checkpoint, checked before the ledger is opened: a missing ledger must not be made anew."""
    if path is None:
        if resume:
            raise InputError("resume needs the checkpoint to go on from, found none; pass checkpoint=...")
        return None
    if not is_there(Path(path)):
        return None
    if not resume:
        raise InputError(f"there is a checkpoint at {path}; pass resume=True to go on from it, or remove it")
    checkpoint = read_checkpoint(path, like=chains.content)
    checkpoint.check(plan)
    chains.restore(checkpoint.step, checkpoint.content)
    return checkpoint


def _give_planned_noise(chains: Chains[State], engine: PrivateSum) -> None:
    for number, method in enumerate(chains.methods):
        if hasattr(method, "told"):
            raise InputError("the method's told() is now called with_mean_noise(); rename it")
        if isinstance(method, FollowsPlannedNoise) and method.noise == "planned":
            if isinstance(engine.plan.clipping, AdaptiveClip):
                raise InputError("a sampler's noise needs a fixed clip norm, found AdaptiveClip; use ClipRecords")
            denominator = engine.plan.sampling.denominator
            mean_noise = {name: stddev / denominator for name, stddev in engine.noise_stddevs(0).items()}
            chains.methods[number] = method.with_mean_noise(mean_noise)


@contextmanager
def between_steps(wanted: bool = True) -> Iterator[Callable[[], None]]:
    """Hold SIGINT, SIGTERM and SIGHUP back; the function that is given raises what came, when a step is finished.

    A second signal does not wait. Signals that are ignored, as by nohup, stay so. Other threads than the main one, and
    other processes, are left as they are.
    """
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    came: list[int] = []
    process = os.getpid()

    def hold(number: int, frame: FrameType | None) -> None:
        if came or os.getpid() != process:  # a loading process that was forked from us
            raise _of(number)
        came.append(number)

    def let_through() -> None:
        if came:
            raise _of(came[0])

    ends = [number for number in _ENDS if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, hold) for number in ends}
    try:
        yield let_through
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _of(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
