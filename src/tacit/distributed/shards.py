"""A model whose parameters are sharded over the ranks by FSDP2 (``fully_shard``): each is whole only while it is used.

Every pass over some records gathers one module after the other, forward and back, and its layers' clipped sums are
scattered into shards as soon as they are formed. A rank adds the noise of its own shards from its own key.

FSDP2's own hooks stand still meanwhile: under vmap they would not see which outputs need a gradient. Ours gather a
module before its forward pass and, when the gradient of its output comes by, before its backward pass. The order of
these gathers is learned from a public pass (*the script*) and every later pass has to follow it: a rank that fails in
the middle, or has nothing to compute, takes part in the rest of the gathers so that nobody waits for it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C import _functorch as functorch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.utils._pytree import tree_leaves

from tacit.distributed.adding import sum_of_part
from tacit.distributed.group import patience
from tacit.distributed.meetings import REDUCE, ExchangeError, Meetings, exchanging
from tacit.distributed.ranks import Ranks
from tacit.distributed.whole_sums import as_floats, whole
from tacit.errors import InputError, LossesError
from tacit.losses import ModelLosses, UserLosses
from tacit.mechanisms import GaussianSumMechanism
from tacit.randomness import Randomness
from tacit.types import Batch, Vectors

Result = TypeVar("Result")
Event = tuple[str, int]  # "forward" or "backward", and the number of a module


class ShardedLosses(ModelLosses):
    """The losses of a model whose parameters lie in shards; every call of them is a meeting of all ranks."""

    def __init__(self, model: nn.Module, losses: UserLosses, ranks: Ranks) -> None:
        super().__init__(model, losses)
        self.meeting = ShardedSums(model, self.params, ranks)

    def owns(self, params: Mapping[str, Tensor]) -> bool:
        """Whole or in shards, they are the model's own tensors."""
        return True

    def __call__(self, params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return self.meeting.gather(lambda: self.user_losses(self.model, batch))


class ShardedSums:
    """Clipped sums in shards: this rank's part of every parameter's."""

    def __init__(self, model: nn.Module, params: Mapping[str, Tensor], ranks: Ranks) -> None:
        self._model, self._params, self._ranks = model, params, ranks
        self._modules = [module for module in model.modules() if isinstance(module, FSDPModule)]
        _check(model, self._modules, params)
        _wait_no_longer(params)
        self._meetings = Meetings(ranks, self._take_part, partial(self._reduce, lambda name: None))
        self._script: list[Event] | None = None
        self._due = 0
        self._seen: list[Event] = []
        self._held: set[int] = set()  # modules that stay whole between forward and backward: the root
        self._is_open = False
        self._sums: Vectors = {}
        self._bounds: Mapping[str, float] | None = None
        self.whole = self._whole_parameters()

    def _whole_parameters(self) -> dict[str, nn.Parameter]:
        """The tensors that stand for the shards while a module is gathered: FSDP2 keeps them, without memory."""
        for module in self._modules:
            module.unshard()
        found = dict(self._model.named_parameters())
        for module in self._modules:
            module.reshard()
        return {name: found[name] for name in self._params}

    # A step

    @contextmanager
    def step(self, mechanism: GaussianSumMechanism, *, deterministic: bool = False) -> Iterator[None]:
        """All passes of one step; afterwards ``shards`` holds the sums. An error on one rank is raised on all."""
        self._sums = {}
        self._bounds = mechanism.bound_by_name() if deterministic else None
        try:
            with self._own_hooks():
                try:
                    yield
                except Exception as error:
                    self._meetings.ended(error)
                    raise
                self._meetings.ended(None)
        except ExchangeError as failed:
            raise failed.error from failed.error.__cause__

    def gather(self, compute: Callable[[], Result]) -> Result:
        """One pass of the losses, in which modules are whole when they are used."""
        if self._is_open:
            return compute()

        def one_pass() -> Result:
            self._due, self._is_open, self._seen = 0, True, []
            try:
                result = compute()
                if self._script is None and any(kind == "backward" for kind, _ in self._seen):
                    self._script = self._seen  # the first pass that is complete, over public records
                return result
            finally:
                self._is_open = False

        return self._meetings.gather(one_pass)

    def add(self, value: Callable[[str], Tensor | None]) -> None:
        """Add the sums of one pass, formed one after the other; None for a parameter that was not used."""
        self._meetings.until(REDUCE)
        with exchanging():
            self._reduce(value)

    def _reduce(self, value: Callable[[str], Tensor | None]) -> None:
        for name, parameter in self._params.items():
            found = value(name)
            if not isinstance(parameter, DTensor):
                raise InputError(f"parameter {name} is not sharded")
            if found is None:
                found = torch.zeros(parameter.shape, dtype=torch.float64, device=parameter.device)
            found = found.double() if self._bounds is None else whole(found, self._bounds[name])
            local = _scattered(found, parameter)
            self._sums[name] = self._sums[name].add_(local) if name in self._sums else local
            del found, local

    def release(self, mechanism: GaussianSumMechanism, denominator: float, randomness: Randomness) -> dict[str, Tensor]:
        """The noisy mean as shards of this rank, each with noise of its own."""
        like = {name: _shard_of(parameter) for name, parameter in self._params.items()}
        nothing = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in like.items()}
        sums, self._sums = self._sums or nothing, {}  # of an empty sample noise is released all the same
        if self._bounds is not None:
            sums = as_floats(mechanism, sums)
        released = mechanism.release(sums, denominator, randomness, like=like)
        return {name: self._as_shard(name, value) for name, value in released.items()}

    def _as_shard(self, name: str, value: Tensor) -> Tensor:
        parameter = self._params[name]
        assert isinstance(parameter, DTensor)
        mesh = parameter.device_mesh
        for dim, placement in enumerate(parameter.placements):  # replicas of a shard take the noise of the first
            if isinstance(placement, Replicate) and mesh.size(dim) > 1:
                group = mesh.get_group(dim)
                dist.broadcast(value, dist.get_global_rank(group, 0), group=group)
        return DTensor.from_local(
            value, mesh, parameter.placements, run_check=False, shape=parameter.shape, stride=parameter.stride()
        )

    # Gathers

    def _take_part(self) -> None:
        """Be there for the gathers of a pass that are still due, and let go of everything."""
        for _, number in (self._script or [])[self._due :]:
            self._gather(number)
            if number not in self._held:
                self._modules[number].reshard()
        for module in self._modules:
            module.reshard()
        self._due = 0

    def _on_the_way(self, kind: str, number: int) -> None:
        """A module is about to be used: as in the script, or not at all."""
        if not self._is_open:
            raise LossesError("a sharded model was called outside of its losses")
        event = (kind, number)
        if self._script is not None and (self._due >= len(self._script) or self._script[self._due] != event):
            raise LossesError(
                "the layers of a sharded model are used in another order for some records than for others: ranks would "
                "wait for each other forever; compute every layer for every record"
            )
        self._due += 1
        self._seen.append(event)
        with torch._C.DisableTorchFunction(), exchanging():
            self._gather(number)

    def _gather(self, number: int) -> None:
        """One exchange, whatever became of the module before; the root is whole from its first use to the end."""
        if number not in self._held:
            self._modules[number].reshard()
        self._modules[number].unshard()

    def _before_forward(self, number: int, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._on_the_way("forward", number)
        with torch._C.DisableTorchFunction():
            for tensor in _physical((args, kwargs)):
                tensor.register_hook(partial(self._after_backward, number))  # type: ignore[no-untyped-call]

    def _after_forward(self, number: int, module: nn.Module, args: Any, output: Any) -> None:
        with torch._C.DisableTorchFunction():
            for tensor in _physical(output)[:1]:
                tensor.register_hook(partial(self._before_backward, number))  # type: ignore[no-untyped-call]
            if number not in self._held:
                self._modules[number].reshard()

    def _before_backward(self, number: int, gradient: Tensor) -> None:
        self._on_the_way("backward", number)

    def _after_backward(self, number: int, gradient: Tensor) -> None:
        if number not in self._held:
            self._modules[number].reshard()

    @contextmanager
    def _own_hooks(self) -> Iterator[None]:
        """Ours in place of FSDP2's, which do nothing but cast in the state that recomputes activations."""
        from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState

        self._held = {number for number, module in enumerate(self._modules) if module is self._model}
        states = [module._get_fsdp_state() for module in self._modules]
        with ExitStack() as stack:
            for number, module in enumerate(self._modules):
                states[number]._training_state = TrainingState.PRE_BACKWARD
                before, after = partial(self._before_forward, number), partial(self._after_forward, number)
                stack.callback(module.register_forward_pre_hook(before, prepend=True, with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(after).remove)
            try:
                yield
            finally:
                for state in states:
                    state._training_state = TrainingState.IDLE


def _wait_no_longer(params: Mapping[str, Tensor]) -> None:
    """The groups of the mesh are as patient as ours: by default they would wait half an hour for a silent rank."""
    meshes = {parameter.device_mesh for parameter in params.values() if isinstance(parameter, DTensor)}
    for one in {group for mesh in meshes for group in mesh.get_all_groups()}:
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=patience()), one)


def _scattered(value: Tensor, like: DTensor) -> Tensor:
    """The sum over all ranks, of which each gets the shard that it holds of the parameter."""
    mesh = like.device_mesh
    for dim in sorted(range(mesh.ndim), key=lambda dim: isinstance(like.placements[dim], Replicate)):
        if isinstance(like.placements[dim], Shard):
            value = sum_of_part(value, mesh.get_group(dim))
        else:
            dist.all_reduce(value, group=mesh.get_group(dim))
    return value


def _shard_of(parameter: Tensor) -> Tensor:
    assert isinstance(parameter, DTensor)
    return parameter.to_local().detach()


def _physical(values: Any) -> list[Tensor]:
    """The tensors beneath vmap of which a gradient will come by."""
    found = [value for value in tree_leaves(values) if isinstance(value, Tensor)]
    found = [functorch.get_unwrapped(value) if functorch.is_batchedtensor(value) else value for value in found]
    return [value for value in found if value.requires_grad and torch.is_grad_enabled()]


def _check(model: nn.Module, modules: list[Any], params: Mapping[str, Tensor]) -> None:
    """What is sharded in another way than by ``fully_shard`` of single modules is refused by name."""
    for name, parameter in params.items():
        if not isinstance(parameter, DTensor):
            raise InputError(f"parameter {name} is not sharded and others are; call fully_shard(model) on the whole")
        if not all(isinstance(one, Replicate) or one == Shard(0) for one in parameter.placements):
            raise InputError(f"parameter {name} lies as {parameter.placements}; ranks need shards of fully_shard")
    if not modules:
        raise InputError("the model's parameters are DTensors, but not by fully_shard; ranks need its modules")
    for module in modules:
        if len(module._get_fsdp_state()._modules) > 1:
            raise InputError("fully_shard of several modules as one group is not supported; shard each by itself")
