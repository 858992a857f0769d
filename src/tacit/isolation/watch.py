"""What holds on every path: the losses run as they are written, and read the model's tensors but never write them."""

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch as functorch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from tacit.errors import LossesError
from tacit.isolation.functions import GET_DATA, KNOWN, REFUSED, Known, known
from tacit.isolation.libraries import is_library


@contextmanager
def as_written() -> Iterator[None]:
    """How the losses run on every path: uncompiled, but told that they are being compiled.

    The operations that were written must be seen, so that compiled models run eagerly. Libraries do without questions
    about values while a graph is traced (Hugging Face: ``if mask.all()``), which would part the records here.
    """
    flags: Any = torch.compiler
    before = flags._is_compiling_flag
    # where torch._dynamo is not loaded nothing is compiled, and importing it takes seconds
    stance = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
    flags._is_compiling_flag = True
    try:
        with stance:
            yield
    finally:
        flags._is_compiling_flag = before


@contextmanager
def no_reentrant_checkpoints() -> Iterator[None]:
    """Refuse, in this thread, checkpoints that hide the parameters they use: gradients would be zero without a word."""
    function: Any = torch.utils.checkpoint.CheckpointFunction
    here, original = threading.get_ident(), function.__dict__.get("apply")

    def apply(*args: Any) -> Any:
        if threading.get_ident() == here:
            raise LossesError("checkpoint(use_reentrant=True) hides the parameters it uses; pass use_reentrant=False")
        return super(function, function).apply(*args)

    function.apply = apply
    try:
        yield
    finally:
        if original is None:
            del function.apply
        else:
            function.apply = original


def refuse_foreign_watchers() -> None:
    """Refuse modes and hooks of a user's own around the private step: they would see records together, and keep them.

    Those of PyTorch itself (a default device, checkpoints, offloading) see tensors, and remember nothing.
    """
    modes = [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]
    if torch._C._len_torch_dispatch_stack():
        modes += _get_current_dispatch_mode_stack()
    found = [type(mode).__name__ for mode in modes if not is_library(type(mode))]
    hooks: Any = torch._C._autograd._top_saved_tensors_default_hooks(True)
    found += [hook.__name__ for hook in hooks or () if not is_library(hook)]
    if found:
        raise LossesError(f"{found[0]} is active around the private step and would see records together; leave it")


class Watched(TorchFunctionMode):
    """What holds on every path: the model's tensors are read, never written, by code that sees data.

    Args:
        guarded: the model's parameters and buffers.
    """

    def __init__(self, guarded: Iterable[Tensor]) -> None:
        super().__init__()
        self._memory = {tensor.untyped_storage().data_ptr() for tensor in guarded if type(tensor) in PLAIN}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        facts = KNOWN.get(func) or known(func)
        kwargs = kwargs or {}
        return func(*args, **kwargs) if facts.is_harmless else self.checked(facts, func, args, kwargs)

    def checked(self, facts: Known, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function unless it would write into the model, or let a tensor's memory out."""
        if facts.is_handled:
            if func in REFUSED:
                raise LossesError(REFUSED[func])
            if not functorch.is_functorch_wrapped_tensor(args[0]):
                alone = args[0].detach()  # shares the count of versions, which .data does not: a write would show
                return alone if func is GET_DATA else func(alone.clone(), *args[1:], **kwargs)  # nobody reads a clone
        if facts.writes or kwargs.get("out") is not None:
            self._check_target(kwargs.get("out", args[0] if args else None))
        return func(*args, **kwargs)

    def _check_target(self, target: Any) -> None:
        if type(target) not in PLAIN or functorch.is_functorch_wrapped_tensor(target) or not target.numel():
            return
        if target.untyped_storage().data_ptr() in self._memory:
            raise LossesError(
                "the losses write into a parameter or a buffer of the model, which would let data out without noise; "
                "compute on a copy instead"
            )


PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
