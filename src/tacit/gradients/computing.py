"""The user's losses at given parameters: the gradients of many rows together, or of one record after the other.

One after the other is slow, right for any losses, and each record is in memory of its own.
"""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from tacit.errors import InputError, LossesError
from tacit.gradients.bookkeeping import ForwardPass, Gradients, gradients_of
from tacit.gradients.known_networks import learned
from tacit.gradients.recognition import Recording
from tacit.isolation import SplitError, StateGuard, UncoveredError, Watched, as_written, writes_into_fresh
from tacit.isolation.apart import is_limit_of_vmap
from tacit.isolation.libraries import patches_of
from tacit.isolation.rows import AskedError
from tacit.layers.record_gradients import Dense
from tacit.losses import (
    Losses,
    ModelLosses,
    Places,
    check_one_loss_per_record,
    count_records,
    signature,
    take_records,
    tensors_of,
)
from tacit.randomness import RecordChance, seed_everything
from tacit.types import Batch, Vectors

Result = TypeVar("Result")
_ASKED_AGAIN = 2  # records
_OF_NO_VALUES = (AskedError, UncoveredError, LossesError, TypeError, AttributeError, NotImplementedError)


class Computing:
    """The user's losses at given parameters: many rows together, or one record alone."""

    def __init__(self, losses: Losses, params: Mapping[str, Tensor], guard: StateGuard | None = None) -> None:
        self._losses, self._params, self._guard = losses, params, guard
        meeting = getattr(losses, "meeting", None)
        self._pass: Callable[[Callable[[], Any]], Any] = operator.call if meeting is None else meeting.gather
        self._look: Callable[[Callable[[], Any]], Any] = operator.call if meeting is None else meeting.look
        self.row_bytes = 0
        self.learned = learned(losses)
        self._own, self._guarded = False, list(params.values())
        if isinstance(losses, ModelLosses):
            held, modules = dict(losses.model.named_parameters()), list(losses.model.modules())
            self._own = losses.owns(params, held)
            self._guarded += held.values()
            for module in modules:
                self._guarded += [buffer for buffer in module._buffers.values() if buffer is not None]
            _refuse_backward_hooks(losses.model, modules, held)
        self.leaves = dict(params) if self._own else {n: p.detach().requires_grad_() for n, p in params.items()}

    def together(self, batch: Batch, rows: Places, records: int, chance: RecordChance) -> Gradients:
        """The gradients of some rows of a batch, ``len(rows) / records`` in a row for each record."""
        compute = partial(self._forward, batch, rows, records, chance)
        return self._told_if_asking(batch, lambda told: self._with_fresh(partial(compute, told=told)))

    def _told_if_asking(self, batch: Batch, compute: Callable[[bool], Result]) -> Result:
        """Losses that ask about values are told from then on, for records of this form, that a graph is traced.

        Libraries do without such questions then, and do less where they may ask (Hugging Face: no mask where nothing is
        padded). Up to the first question all records do the same: which way they go is no secret of any of them.
        """
        form = signature(batch)
        if form not in self.learned.asking and self._pass is operator.call:
            try:
                return compute(False)
            except _OF_NO_VALUES:
                self.learned.asking.add(form)
            except Exception as error:
                if not is_limit_of_vmap(error):
                    raise  # of a record's values perhaps, from which nothing may be learned for the others
                self.learned.asking.add(form)
        return compute(True)

    def _with_fresh(self, compute: Callable[..., Gradients]) -> Gradients:
        """Tensors that the losses make get a copy for each record if records are written into them."""
        fresh = self.learned.fresh
        try:
            return compute(fresh=fresh)
        except Exception as error:
            if fresh or not writes_into_fresh(error):
                raise
        found = compute(fresh=True)
        self.learned.fresh = True
        return found

    def _forward(
        self, batch: Batch, rows: Places, records: int, chance: RecordChance, *, told: bool, fresh: bool
    ) -> Gradients:
        seed_everything(int.from_bytes(chance.key[:8], "little"))  # what Python and numpy draw is one value for all
        copy = take_records(batch, torch.from_numpy(rows))  # losses may write into it, and may have to run again
        private = [*tensors_of(copy), *tensors_of(batch)]
        seen = self.learned.seen
        look = not seen.is_known_as_other and seen.is_worth_a_look(self._guard, self.leaves)
        kind = Recording if look else ForwardPass
        run = kind(self.leaves, self._guarded, len(rows), records, chance, private=private, fresh=fresh, told=told)
        gradients: Gradients = self._pass(partial(gradients_of, run, self._call, copy, self.leaves))
        if isinstance(run, Recording):
            seen.note(run.found, self._guard, is_other=run.is_other)
        formed = sum([part.rows.nbytes for part in gradients.values() if isinstance(part, Dense)])
        held = 2 * run.bytes // len(rows) + formed // len(rows)  # activations and their gradients
        self.row_bytes = max(self.row_bytes, held)
        return gradients

    def losses_of(self, batch: Batch, chance: RecordChance, places: Places, *, alone: bool) -> object:
        """The losses of some rows, or of one alone, to the last bit, or what they raise."""
        chance, index = chance.take(places), torch.from_numpy(places)

        def together(told: bool) -> Tensor:
            seed_everything(int.from_bytes(chance.key[:8], "little"))
            run = ForwardPass(self.leaves, self._guarded, len(places), len(places), chance, any_rows=True, told=told)
            found: Tensor = self._look(partial(run.run, self._call, take_records(batch, index)))
            return found

        try:
            with torch.no_grad():
                if not alone:
                    return self._told_if_asking(batch, together).cpu().numpy().tobytes()
                seed_everything(int(chance.seeds[0]))
                with as_written(), Watched(self._guarded):
                    return self._call(take_records(batch, index)).cpu().numpy().tobytes()
        except LossesError:
            raise
        except (Exception, SplitError) as error:
            return type(error)

    def alone(self, rows: Sequence[Batch], seeds: Sequence[int]) -> Vectors:
        return mean_gradient(self._call, self.leaves, rows, seeds, Watched(self._guarded))

    def trusted(self, batch: Batch, each: int) -> Iterator[Vectors]:
        """The mean gradient of every ``each`` rows in turn, from one forward pass."""
        with torch.enable_grad(), as_written(), Watched(self._guarded):
            values = self._call(batch)
        check_one_loss_per_record(values, count_records(batch))
        for unit in values.view(-1, each).mean(1):
            yield gradient_of(unit, self.leaves)

    def _call(self, batch: Batch) -> Tensor:
        if self._own and isinstance(self._losses, ModelLosses):
            return self._losses.user_losses(self._losses.model, batch)  # as it is: nothing to swap
        return self._losses(self.leaves, batch)


def guard_of(losses: Losses) -> StateGuard:
    """Around everything that the losses can reach by name, and what of a user's runs inside PyTorch without a name."""
    inside = {name: hooks for name, hooks in vars(torch.nn.modules.module).items() if name.startswith("_global_")}
    for home in (torch, torch.nn.functional, torch.Tensor):
        inside |= patches_of(home)
    if isinstance(losses, ModelLosses):
        return StateGuard(model=losses.model, losses=losses.user_losses, **inside)
    return StateGuard(losses=losses, **inside)


def _refuse_backward_hooks(
    model: torch.nn.Module, modules: Sequence[torch.nn.Module], parameters: Mapping[str, Tensor]
) -> None:
    """Gradients of activations do not pass through modules here: a hook on them would be skipped without a word."""
    everywhere: Any = torch.nn.modules.module
    if everywhere._global_backward_hooks or everywhere._global_backward_pre_hooks:
        raise InputError("a backward hook of all modules is registered, which private gradients pass by; remove it")
    for module in modules:
        if module._backward_hooks or module._backward_pre_hooks:
            name = next(name for name, one in model.named_modules() if one is module)
            raise InputError(f"layer {name or 'model'} has a backward hook, which private gradients pass by; remove it")
    for name, parameter in parameters.items():
        if parameter._backward_hooks:
            raise InputError(f"parameter {name} has a gradient hook, which private gradients pass by; remove it")


def mean_gradient(
    losses: Callable[[Batch], Tensor],
    leaves: Mapping[str, Tensor],
    rows: Sequence[Batch],
    seeds: Sequence[int],
    watch: Watched,
) -> Vectors:
    """The mean gradient of a record's rows, each computed alone, in float64."""
    total: Vectors = {}
    for row, seed in zip(rows, seeds, strict=True):
        seed_everything(seed)
        with torch.enable_grad(), as_written(), watch:
            values = losses(row)
        check_one_loss_per_record(values, 1)
        for name, value in gradient_of(values.sum(), leaves).items():
            total[name] = total[name].add_(value) if name in total else value
    return {name: value.div_(len(rows)) for name, value in total.items()}


def gradient_of(loss: Tensor, leaves: Mapping[str, Tensor]) -> Vectors:
    """By plain autograd, in float64; of what the loss depends on."""
    if not loss.requires_grad:
        return {}
    found = torch.autograd.grad(
        loss, list(leaves.values()), allow_unused=True, retain_graph=True
    )  # kept: losses may reuse what they have computed from parameters before
    pairs = zip(leaves, found, strict=True)
    return {name: value.to_dense().double() for name, value in pairs if value is not None}


def is_fault_of_a_record(error: Exception) -> bool:
    """Whether an error may be about a record's values: then the record contributes zero and the others count."""
    return not isinstance(error, LossesError | MemoryError | torch.OutOfMemoryError)


class Again:
    """Losses of a few records, computed early in a step and once more at its end: they must be the same.

    Hidden state (a counter, a file, the environment) that one call of the losses leaves to the next shows in them: what
    a record gives must not depend on what was computed before. In a single call there is nobody to leave it to.
    """

    def __init__(self, computing: Computing, rows: Batch, chance: RecordChance, *, alone: bool) -> None:
        """Compute the losses of some of these rows, chosen by chance, which is that of each row."""
        seeds = chance.take(np.arange(count_records(rows)))
        chosen = np.argsort(seeds.seeds)[:_ASKED_AGAIN]  # their order is nobody's but chance's
        batch, seeds = take_records(rows, torch.from_numpy(chosen)), seeds.take(chosen)
        some = np.arange(len(chosen))

        def ask() -> list[Any]:
            found = SplitError if alone else computing.losses_of(batch, seeds, some, alone=False)
            if found is not SplitError:
                return [found]
            return [computing.losses_of(batch, seeds, some[[i]], alone=alone) for i in range(len(some))]

        self._ask, self._answers = ask, ask()

    def compare(self) -> None:
        """Refuse losses that are not what they were earlier in the same step."""
        if self._answers != self._ask():
            raise LossesError(
                "the losses of the same records changed within one step: something outlives a call (a counter, a "
                "cache, a file, a setting), by which one record could change the others; compute each loss from its "
                "record and the parameters alone"
            )
