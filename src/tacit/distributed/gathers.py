"""The modules of a model that ``fully_shard`` has cut into shards: each is gathered when it is used, forward and back.

FSDP2's own hooks stand still meanwhile: under vmap they would not see which outputs need a gradient. Ours gather a
module before its forward pass and, when the gradient of its output comes by, before its backward pass. The order of
these gathers is learned from a public pass (*the script*) and every later pass has to follow it: a rank that fails in
the middle, or has nothing to compute, takes part in the rest of the gathers so that nobody waits for it. A small model
is gathered once a step, so that no rank waits for another before it has computed all of its records.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch._C import _functorch as functorch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.utils._pytree import tree_leaves

from tacit.distributed.meetings import GATHER, exchanging
from tacit.distributed.ranks import is_sharded
from tacit.errors import InputError, LossesError

Result = TypeVar("Result")
Event = tuple[str, int]  # "forward" or "backward", and the number of a module
_SMALL = 8 * 2**20  # bytes of all parameters: little beside what a process of PyTorch takes without any


class Gathers:
    """When which module is whole.

    Args:
        params: what is trained, in shards.

    Attributes:
        is_small: all modules are whole through a step, and the passes of a rank are its own affair.
        whole: the tensors that stand for the shards while a module is gathered.
    """

    def __init__(self, model: nn.Module, params: Mapping[str, Tensor]) -> None:
        self._modules = [module for module in model.modules() if isinstance(module, FSDPModule)]
        _check(self._modules, params)
        self._script: list[Event] | None = None
        self._due, self._kind = 0, GATHER
        self._seen: list[Event] = []
        self._is_open = False
        self.is_small = sum(parameter.nbytes for parameter in model.parameters()) <= _SMALL
        self._held = {  # whole from the first use to the end of a pass: the root. Of a small model all, for the step
            number for number, module in enumerate(self._modules) if self.is_small or module is model
        }
        self.whole = self._whole_parameters(model, params)

    def _whole_parameters(self, model: nn.Module, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors that stand for the shards while a module is gathered: FSDP2 keeps them, without memory."""
        found: dict[str, Tensor] = {}
        for module in self._modules:
            module.unshard()
            found |= {name: value for name, value in model.named_parameters() if not is_sharded([value])}
            module.reshard()
        return {name: found[name] for name in params}

    @contextmanager
    def step(self) -> Iterator[None]:
        """Our hooks in place of FSDP2's, which do nothing but cast in the state that recomputes activations."""
        from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState

        states = [module._get_fsdp_state() for module in self._modules]
        with ExitStack() as stack:
            for number, module in enumerate(self._modules):
                states[number]._training_state = TrainingState.PRE_BACKWARD
                before, after = partial(self._before_forward, number), partial(self._after_forward, number)
                stack.callback(module.register_forward_pre_hook(before, prepend=True, with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(after).remove)
            try:
                if self.is_small:
                    self._gather_all()
                yield
            finally:
                self._let_go()
                for state in states:
                    state._training_state = TrainingState.IDLE

    @property
    def is_open(self) -> bool:
        """Whether a pass is going on."""
        return self._is_open

    def one_pass(self, compute: Callable[[], Result], kind: int) -> Result:
        """Compute with modules that are whole when they are used; some gathers may be due afterwards."""
        self._due, self._kind, self._is_open, self._seen = 0, kind, True, []
        try:
            result = compute()
            if self._script is None and any(way == "backward" for way, _ in self._seen):
                self._script = self._seen  # the first pass that is complete, over public records
            return result
        finally:
            self._is_open = False

    def take_part(self, kind: int) -> None:
        """Be there for the gathers of a pass that are still due, and let go of everything."""
        for _, number in (self._events(kind) or [])[self._due :]:
            self._gather(number)
            if number not in self._held:
                self._modules[number].reshard()
        self._let_go()
        self._due = 0

    def _gather_all(self) -> None:
        """All modules at once; none has to wait for the one before it."""
        with exchanging():
            handles = [module.unshard(async_op=True) for module in self._modules]
            for handle in filter(None, handles):
                handle.wait()

    def _let_go(self) -> None:
        for module in self._modules:
            module.reshard()

    def _events(self, kind: int) -> list[Event] | None:
        """The gathers of a pass in their order, once they are known."""
        if self._script is None or kind == GATHER:
            return self._script
        return [event for event in self._script if event[0] == "forward"]

    def _on_the_way(self, kind: str, number: int) -> None:
        """A module is about to be used: as in the script, or not at all."""
        if not self._is_open:
            raise LossesError("a sharded model was called outside of its losses")
        event, script = (kind, number), self._events(self._kind)
        if script is not None and (self._due >= len(script) or script[self._due] != event):
            raise LossesError(
                "the layers of a sharded model are used in another order for some records than for others: ranks would "
                "wait for each other forever; compute every layer for every record"
            )
        self._due += 1
        self._seen.append(event)
        with torch._C.DisableTorchFunction(), exchanging():
            self._gather(number)

    def _gather(self, number: int) -> None:
        """One exchange, whatever became of the module before; what is held is whole already after its first use."""
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


def _physical(values: Any) -> list[Tensor]:
    """The tensors beneath vmap of which a gradient will come by."""
    found = [value for value in tree_leaves(values) if isinstance(value, Tensor)]
    found = [functorch.get_unwrapped(value) if functorch.is_batchedtensor(value) else value for value in found]
    return [value for value in found if value.requires_grad and torch.is_grad_enabled()]


def _check(modules: list[Any], params: Mapping[str, Tensor]) -> None:
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
