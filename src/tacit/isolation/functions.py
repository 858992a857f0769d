"""What is known of the functions of PyTorch that losses may call, looked up once for each."""

from dataclasses import dataclass
from typing import Any

import torch

from tacit.isolation.indices import TRUSTING

_T = torch.Tensor


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a function.

    Attributes:
        name: by which rules know it: the function itself, or what a custom operation is called.
        is_harmless: it tells of a tensor what its shape and type are, and nothing of its values.
        is_question: it asks for a value: ``if mask.all()``, ``.item()``.
        is_handled: it reads or replaces memory (``.data``, ``numpy()``), or is refused.
        writes: it writes into its first argument.
        makes_new: it makes a tensor of nothing but sizes and numbers.
        rounds_alike: the result for a row is the same by any code.
        trusts_indices: one out of range may reach into another row, by the name that ``indices`` knows; or empty.
        uncovered: why it is left to the path of one record after the other; empty if it is not.
    """

    name: Any
    is_harmless: bool
    is_question: bool
    is_handled: bool
    writes: bool
    makes_new: bool
    rounds_alike: bool
    trusts_indices: str
    uncovered: str


def known(func: Any) -> Known:
    """What is known of a function; entered in :data:`KNOWN`, where it is found without a call from then on."""
    name = getattr(func, "__name__", "").partition(".")[0]  # of torch.ops.aten.add_.Tensor too
    found = KNOWN[func] = Known(
        name=str(func) if isinstance(func, OPERATIONS) else func,
        is_harmless=func in _HARMLESS,
        is_question=func in _QUESTIONS,
        is_handled=func == GET_DATA or func in TO_NUMPY or func in REFUSED,
        writes=(name.endswith("_") and not name.endswith("__")) or name in _WRITING,
        makes_new=name.removeprefix("new_").removesuffix("_like") in _MAKERS,
        rounds_alike=name.strip("_") in _SAME_BY_ANY_CODE,
        trusts_indices=name if name in TRUSTING else "",
        uncovered=_uncovered(func, name),
    )
    return found


def _uncovered(func: Any, name: str) -> str:
    if name in _LAID_OUT_ANEW:
        return f"{name} inside the losses"
    if isinstance(func, OPERATIONS):
        space = str(getattr(func, "namespace", func)).partition("::")[0].partition(".")[0]
        return "" if space in _NAMESPACES else f"{func} is a custom operation"
    return f"{func.__name__} inside the losses" if func in _BY_RECORD else ""


KNOWN: dict[Any, Known] = {}
OPERATIONS = (torch._ops.OperatorBase, torch._ops.OpOverloadPacket)
IS_TRUE = _T.__bool__
GET_DATA = _T.data.__get__  # type: ignore[attr-defined]
TO_NUMPY: frozenset[Any] = frozenset((_T.numpy, _T.__array__))
REFUSED: dict[Any, str] = {
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
_MAKERS = ("zeros", "ones", "empty", "full", "tensor", "eye", "arange")
_NAMESPACES = ("aten", "prims", "profiler")  # FSDP2 names its casts for the profiler
_QUESTIONS = frozenset({IS_TRUE, _T.item, _T.__int__, _T.__float__, _T.__index__, torch.is_nonzero, _T.is_nonzero})
_LAID_OUT_ANEW = ("resize_", "resize_as_", "as_strided_")  # the memory of all rows, by what one of them should be
_BY_RECORD = frozenset({torch.autograd.grad, _T.register_hook, _T.requires_grad_, _T.retain_grad})
_WRITING = frozenset(
    {"__setitem__", "__set__", "__setstate__", "set_data", "__delitem__"}
    | {f"__i{name}__" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor")}
    | {"__ilshift__", "__irshift__", "__imatmul__"}
)
# Functions whose result for a row is the same by any code: one rounding an entry, moved entries, or each row by itself.
# All others may have one formula for whole vectors and another, which rounds differently, for the rest.
_SAME_BY_ANY_CODE = frozenset({
    "abs", "absolute", "add", "amax", "amin", "baddbmm", "bfloat16", "bmm", "cat", "ceil", "clamp", "clamp_max",
    "clamp_min", "clip", "clone", "concat", "contiguous", "copy", "detach", "div", "divide", "dot", "double",
    "einsum", "empty_like", "fill", "flatten", "flip", "float", "floor", "full_like", "gather", "getitem",
    "group_norm", "half", "hstack", "iadd", "imul", "index_put", "index_select", "isub", "itruediv", "kthvalue",
    "layer_norm", "leaky_relu", "log_softmax", "masked_fill", "masked_scatter", "matmul", "max", "maximum", "mean",
    "median", "min", "minimum", "mm", "mul", "multiply", "mv", "nansum", "neg", "negative", "new_full", "new_ones",
    "new_tensor", "new_zeros", "one_hot", "ones_like", "pad", "pos", "radd", "relu", "relu6", "repeat",
    "repeat_interleave", "reshape", "rmatmul", "rmul", "roll", "round", "rsub", "rtruediv",
    "scaled_dot_product_attention", "scatter", "setitem", "sign", "softmax", "sort", "sqrt", "square", "stack",
    "sub", "subtract", "sum", "take", "take_along_dim", "threshold", "tile", "to", "topk", "tril", "triu",
    "truediv", "trunc", "type", "type_as", "vstack", "where", "zero", "zeros_like",
})  # fmt: skip
