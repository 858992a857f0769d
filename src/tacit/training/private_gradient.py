"""User story 1: make an existing PyTorch loop private by changing three lines."""

import threading
from collections.abc import Generator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import nn

from tacit.accountants import get_accountant
from tacit.distributed import current_ranks, is_sharded
from tacit.distributed.sharded_checkpoints import folder_of, forget_others, holds_shards, read_shards, write_shards
from tacit.errors import InputError
from tacit.ledger import Ledger
from tacit.losses import ModelLosses, UserLosses
from tacit.mechanisms import Clipping, GaussianNoise
from tacit.randomness import Randomness
from tacit.sampling import SamplingPolicy
from tacit.storage.files import is_there
from tacit.training.checkpoints import read_checkpoint
from tacit.training.evidence import EvidencePlan
from tacit.training.plan import PrivacyPlan
from tacit.training.private_sum import PrivateSum
from tacit.training.reading.items import Collate
from tacit.training.reading.samples import Sample
from tacit.training.reading.source import Augment, DataSource
from tacit.types import Batch


class PrivateGradient:
    """Fills ``.grad`` with a private mean gradient. Model, optimizer, scheduler and loop stay the user's.

    Formal guarantee: everything that depends on the data and reaches ``.grad`` is a Gaussian sum query on a random
    sample, charged in the ledger before the sample is drawn. What the optimizer makes of it is post-processing.

    Args:
        model: any module without record-mixing layers. It is not wrapped, hooked or changed.
        losses: ``losses(model, batch) -> Tensor[records]``, one loss per record.
        plan: a :class:`PrivacyPlan`. In its place its fields may be given: sampling, clipping and noise in this order,
            the others (ledger, budget, unit, dataset, dataset_size, physical_batch, ...) by name.
        randomness: secure by default.
        example: a small public batch, for models that do not run on generated inputs.

    Example:
        >>> import tempfile, tacit
        >>> model = nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> def losses(model, batch):
        ...     return (model(batch[0])[:, 0] - batch[1]).square()
        >>> data = (torch.randn(100, 2), torch.randn(100))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     private = PrivateGradient(model, losses, tacit.PoissonSampling(probability=0.1, expected_size=10),
        ...                               tacit.ClipRecords(1.0), tacit.GaussianNoise(multiplier=1.1),
        ...                               ledger=f"{folder}/ledger.jsonl")
        ...     for batch in private.samples(data, steps=5):
        ...         optimizer.zero_grad()
        ...         private.backward(batch)
        ...         optimizer.step()
        ...     private.ledger.steps
        5
    """

    def __init__(
        self,
        model: nn.Module,
        losses: UserLosses,
        plan: PrivacyPlan | SamplingPolicy | None = None,
        clipping: Clipping | None = None,
        noise: GaussianNoise | None = None,
        *,
        randomness: Randomness | None = None,
        example: Batch | None = None,
        evidence: EvidencePlan | None = None,
        **others: Any,
    ) -> None:
        given = others | {
            name: value for name, value in (("clipping", clipping), ("noise", noise)) if value is not None
        }
        if not isinstance(plan, PrivacyPlan):
            plan = _plan(**(given if plan is None else {"sampling": plan, **given}))
        elif given:
            raise InputError(f"{', '.join(given)} given beside a plan, which holds all that; see dataclasses.replace")
        self._losses = _losses(model, losses)
        self._engine = PrivateSum(
            self._losses, self._losses.params, plan, randomness=randomness, example=example, evidence=evidence
        )
        self._one_at_a_time = threading.RLock()  # releases: model, guard and adaptive clip norm are one for all threads

    @property
    def ledger(self) -> Ledger:
        """What has been charged so far, with the steps that are reserved ahead."""
        return self._engine.ledger

    @property
    def path(self) -> str:
        """Which way the losses take, known when the first sample is drawn: "records together" is the fast one."""
        return self._engine.path

    def samples(
        self,
        dataset: Any,
        steps: int,
        *,
        collate_fn: Collate | None = None,
        workers: int = 0,
        device: torch.device | str | None = None,
        augment: Augment | None = None,
        views: int | None = None,
        user_ids: Sequence[Any] | None = None,
        record_ids: Sequence[int] | None = None,
        own_rows: bool = False,
        first: int = 0,
    ) -> Generator[Sample, None, None]:
        """Random samples in place of a loader; see :class:`DataSource` for the arguments.

        ``first`` is how many of the ``steps`` were taken before: what :meth:`load_checkpoint` says.
        """
        source = DataSource(dataset, collate_fn, workers, device, augment, views, user_ids, record_ids, own_rows)
        yield from self._engine.samples(source, steps, first=first)

    def backward(self, sample: Sample) -> None:
        """Add the private mean gradient of the sample to ``.grad``, as ``loss.backward()`` would add the plain one.

        Hooks that run after a gradient was accumulated (an optimizer within the backward pass) run here too.
        """
        with self._one_at_a_time:
            self._backward(sample)

    def _backward(self, sample: Sample) -> None:
        params = self._losses.params  # as they are now; what is not as at the start is refused
        for name, gradient in self._engine.release(sample, params).items():
            parameter = params[name]
            parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
            for hook in list((parameter._post_accumulate_grad_hooks or {}).values()):
                hook(parameter)

    def save_checkpoint(self, path: str | Path, content: Mapping[str, Any], *, step: int) -> None:
        """Write ``content`` (state_dicts, numbers; no code) and the ledger's head after ``step`` steps, atomically.

        Where it holds shards, all ranks call this together, and each writes its own beside the file.
        """
        ranks, sharded = current_ranks(), holds_shards(content)
        if sharded:
            write_shards(ranks, Path(path), step, content)
        if self._engine.writes:
            self._engine.checkpoint(step, None if sharded else content).write(path)
            forget_others(Path(path), step)

    def load_checkpoint(self, path: str | Path, like: Any = None) -> tuple[int, Any]:
        """The (step, content) of a checkpoint, or (0, None) if there is none; another plan or ledger is refused.

        Go on with ``samples(dataset, steps, first=step)``: steps that were charged but lost are paid for again. For
        content in shards ``like`` is what it is to be filled into, on any number of ranks.
        """
        if not is_there(Path(path)):
            return 0, None
        checkpoint = read_checkpoint(path)
        self._engine.go_on(checkpoint)
        if folder_of(Path(path), checkpoint.step).is_dir():
            if like is None:
                raise InputError("this checkpoint lies in shards: pass like=, content of the same form to be filled")
            return checkpoint.step, read_shards(current_ranks(), Path(path), checkpoint.step, like)
        return checkpoint.step, checkpoint.content

    def epsilon(self, delta: float, accountant: str = "pld") -> float:
        """Epsilon of what has been released so far, if the decision to stop here ignores the outputs.

        A sample counts as released as soon as the loop gets it, so the number is never too small.
        """
        return get_accountant(accountant).guarantee(self._engine.released, delta=delta).epsilon

    def reserved_epsilon(self, delta: float, accountant: str = "pld") -> float:
        """Epsilon of all that the ledger is charged for: also of the steps that the current block has reserved ahead.

        This is what a crash now would leave on record; a loop that ends, or is left, gives unused steps back.
        """
        return get_accountant(accountant).guarantee(self.ledger, delta=delta).epsilon

    def close(self) -> None:
        """Give up the ledger's lock, so that another run can write to it."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _losses(model: nn.Module, losses: UserLosses) -> ModelLosses:
    found = ModelLosses(model, losses)
    if not is_sharded(found.params.values()):
        return found
    from tacit.distributed.shards import ShardedLosses  # takes a second to load

    return ShardedLosses(model, losses, current_ranks())


def _plan(**given: Any) -> PrivacyPlan:
    """The plan whose fields were given one by one."""
    known = [field.name for field in fields(PrivacyPlan)]
    for name in sorted(given.keys() - set(known)):
        raise InputError(f"there is no option {name}; a plan has {', '.join(known)}")
    for name in ("sampling", "clipping", "ledger"):
        if name not in given:
            raise InputError(f"{name} is missing: give a PrivacyPlan, or sampling, clipping, noise and ledger=...")
    return PrivacyPlan(**{"noise": None, **given})
