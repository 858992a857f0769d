"""Run an inference method under a plan, and keep what it releases."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tacit.errors import InputError
from tacit.inference import InferenceMethod, MakesPosterior
from tacit.ledger import Ledger
from tacit.losses import Batch
from tacit.posteriors import Draws, Point, Posterior
from tacit.randomness import Randomness
from tacit.training.plan import TrainingPlan
from tacit.training.private_sum import PrivateSum
from tacit.training.samples import DataSource

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Run:
    """What a run leaves behind: a posterior and a ledger. Both are releases; neither holds data."""

    posterior: Posterior
    ledger: Ledger
    state: Any


def train(
    method: InferenceMethod[State],
    dataset: Any,
    plan: TrainingPlan,
    *,
    keep_last: int = 1,
    keep_every: int = 1,
    randomness: Randomness | None = None,
    example: Batch | None = None,
    progress: bool = False,
    on_step: Callable[[int], None] | None = None,
) -> Run:
    """Train privately; the cost is in the ledger before the data of a step is read.

    Args:
        method: how released gradients become a posterior.
        dataset: tensors, a data set, or a :class:`DataSource`.
        keep_last: how many of the last iterates are kept as draws; 1 keeps a point. Keeping more costs nothing more.
            A method that makes its own posterior (variational inference, MC dropout) keeps none.
        keep_every: the distance between kept iterates.
        progress: show a progress bar.
    """
    if keep_last < 1 or keep_every < 1 or (keep_last - 1) * keep_every >= plan.steps:
        raise InputError(f"cannot keep {keep_last} iterates, {keep_every} apart, out of {plan.steps} steps")
    source = dataset if isinstance(dataset, DataSource) else DataSource(dataset)
    engine = _engine(method, plan, randomness, example)
    state = method.init()
    kept: deque[dict[str, Any]] = deque(maxlen=keep_last)
    try:
        with _progress(plan.steps, progress) as advance:
            for sample in engine.samples(source, plan.steps):
                mean_gradient = engine.release(sample, method.params(state))
                state = method.step(state, mean_gradient)
                if (plan.steps - 1 - sample.step) % keep_every == 0:
                    kept.append(method.params(state))
                advance(sample.step)
                if on_step is not None:
                    on_step(sample.step)
    finally:
        engine.close()
    posterior: Posterior
    if isinstance(method, MakesPosterior):
        posterior = method.posterior(state)
    else:
        posterior = Point(kept[-1]) if keep_last == 1 else Draws.of(kept)
    return Run(posterior, engine.ledger, state)


def _engine(
    method: InferenceMethod[State], plan: TrainingPlan, randomness: Randomness | None, example: Batch | None
) -> PrivateSum:
    denominator = plan.sampling.denominator

    def stddev(step: int) -> float:
        value = method.noise_stddev(step, denominator)
        if value is None:
            raise InputError("a method asks for its own noise at some steps and the plan's at others")
        return value

    own = stddev if method.noise_stddev(0, denominator) is not None else None
    params = method.params(method.init())
    return PrivateSum(method.losses, params, plan, randomness=randomness, stddev=own, example=example)


@contextmanager
def _progress(steps: int, shown: bool) -> Iterator[Callable[[int], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, disable=not shown, transient=True) as bar:
        task = bar.add_task("training privately", total=steps)
        yield lambda step: bar.update(task, completed=step + 1)
