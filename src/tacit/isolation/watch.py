"""What holds on every path: the losses run as they are written, and read the model's tensors but never write them."""

import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch as functorch
from torch.overrides import TorchFunctionMode

from tacit.errors import LossesError


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
        kwargs = kwargs or {}
        return func(*args, **kwargs) if func in _HARMLESS else self.watched(func, args, kwargs)

    def watched(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function unless it would write into the model."""
        if func is _GET_DATA and not functorch.is_functorch_wrapped_tensor(args[0]):
            return args[0].detach()  # shares the count of versions, which .data does not: a write would show
        if func in _TO_NUMPY and not functorch.is_functorch_wrapped_tensor(args[0]):
            return func(args[0].detach().clone(), *args[1:], **kwargs)  # memory that nobody else reads
        if func in _REFUSED:
            raise LossesError(_REFUSED[func])
        if _writes(func, kwargs):
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


_T = torch.Tensor
PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
_GET_DATA = _T.data.__get__  # type: ignore[attr-defined]
_TO_NUMPY: frozenset[Any] = frozenset((_T.numpy, _T.__array__))
_REFUSED: dict[Any, str] = {
    _T.backward: "the losses call backward(): return one loss per record and leave the gradients to Tacit",
    torch.autograd.backward: "the losses call backward(): return one loss per record and leave the gradients to Tacit",
    _T.data.__set__: "the losses replace the data of a tensor: compute a new one instead",  # type: ignore[attr-defined]
    _T.share_memory_: "the losses share a tensor's memory with other processes",
}
_HARMLESS = frozenset(
    {
        *(getattr(_T, name).__get__ for name in ("shape", "dtype", "device", "ndim", "layout", "is_cuda", "is_leaf")),
        *(getattr(_T, name).__get__ for name in ("requires_grad", "is_sparse", "is_nested", "is_quantized")),
        *(_T.size, _T.dim, _T.numel, _T.nelement, _T.is_floating_point, _T.is_complex, _T.is_contiguous, _T.stride),
        *(_T.__len__, _T.ndimension, torch.is_tensor, torch.is_floating_point, torch.numel, _T.get_device),
    }
)


def _writes(func: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether a function writes into its first argument, or into one that it is given for its result."""
    name = getattr(func, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or name in _WRITING or kwargs.get("out") is not None


_WRITING = frozenset(
    {"__setitem__", "__set__", "__setstate__", "set_data", "__delitem__"}
    | {f"__i{name}__" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor")}
    | {"__ilshift__", "__irshift__", "__imatmul__"}
)
