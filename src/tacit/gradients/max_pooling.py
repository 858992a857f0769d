"""Max pooling by a compiled kernel, bit for bit as PyTorch's, which looks at one window after another.

Only the numbers are computed elsewhere: below autograd, for the time of one call. The graph, what it keeps and its
backward pass are PyTorch's own, so that second derivatives, checkpoints and function transforms know nothing of it.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf, nan
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from tacit.kernels import library

_ENOUGH = 1 << 14  # entries below which PyTorch is done before the kernel is called
_MANY = 1 << 13  # windows for which a second thread pays
_MOST_PLACES = 1 << 31
_pool: Any = torch.ops.aten.max_pool2d_with_indices.default
_FUNCTIONS = frozenset(
    {
        functional.max_pool1d,
        functional.max_pool1d_with_indices,
        functional.max_pool2d,
        functional.max_pool2d_with_indices,
        torch.max_pool1d,
        torch.max_pool2d,
    }
)


def call_faster(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function of PyTorch; if it is a large max pooling, the kernel computes it where it can."""
    if func not in _FUNCTIONS or not args or args[0].numel() < _ENOUGH or _kernel() is None:
        return func(*args, **kwargs)
    with _ByKernel():  # type: ignore[no-untyped-call]
        return func(*args, **kwargs)


class _ByKernel(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Stands below autograd and answers the one operation that all max poolings of one and two dimensions become."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and to tell dynamo so would import it, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = max_pool_by_kernel(*args) if func is _pool and not kwargs else None
        return func(*args, **(kwargs or {})) if found is None else found


def max_pool_by_kernel(
    input: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor] | None:
    """Maxima of [..., height, width] and their places in its planes; None if the kernel cannot or PyTorch refuses."""
    call = _kernel()
    windows = _Windows(_pair(kernel), _pair(stride or kernel), _pair(padding))
    if call is None or ceil_mode or set(dilation) != {1} or not (_suits(input) and windows.reach_into(input.shape)):
        return None
    return _run(call, input, windows)


def _pair(sizes: Sequence[int]) -> tuple[int, int]:
    return sizes[0], sizes[-1]


@dataclass(frozen=True, slots=True)
class _Windows:
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]

    def padded(self, shape: Sequence[int]) -> list[int]:
        return [size + 2 * pad for size, pad in zip(shape[-2:], self.padding, strict=True)]

    def places(self, shape: Sequence[int]) -> list[int]:
        return [(size - k) // s + 1 for size, k, s in zip(self.padded(shape), self.kernel, self.stride, strict=True)]

    def reach_into(self, shape: Sequence[int]) -> bool:
        """Whether there are windows, each with a place that is no padding."""
        right = all(0 <= 2 * pad <= k for pad, k in zip(self.padding, self.kernel, strict=True))
        return right and min(*self.kernel, *self.stride) > 0 and min(self.places(shape)) > 0


def _suits(input: Tensor) -> bool:
    if type(input) is not Tensor or input.dtype != torch.float32 or not input.is_cpu or input.dim() not in (3, 4):
        return False
    height, width = input.shape[-2:]
    strides = (input.shape[-3] * height * width, height * width, width, 1)[-input.dim() :]
    return input.numel() > 0 and input.stride() == strides and height * width < _MOST_PLACES  # channels are not last


def _run(call: Callable[..., int], input: Tensor, windows: _Windows) -> tuple[Tensor, Tensor]:
    places, padded = windows.places(input.shape), windows.padded(input.shape)
    values = input.new_empty(*input.shape[:-2], *places)
    indices = torch.empty_like(values, dtype=torch.int64)
    sizes = (*input.shape[-2:], *places, *windows.kernel, *windows.stride, *windows.padding, *padded)
    shape = (ctypes.c_long * len(sizes))(*sizes)
    threads = torch.get_num_threads() if values.numel() >= _MANY else 1
    pointers = values.data_ptr(), indices.data_ptr()
    if call(input.data_ptr(), input.shape[:-2].numel(), shape, *pointers, threads):
        raise MemoryError("no memory for one plane")
    return values, indices


@cache
def _kernel() -> Callable[..., int] | None:
    loaded = library()
    if loaded is None:
        return None
    call: Callable[..., int] = loaded.tacit_max_pool
    pointer, size = ctypes.c_void_p, ctypes.c_long
    loaded.tacit_max_pool.argtypes = (pointer, size, pointer, pointer, pointer, ctypes.c_int)
    return call if _agrees(call) else None


def _agrees(call: Callable[..., int]) -> bool:
    """Whether this PyTorch treats equal maxima, NaN and nothing but -inf as the kernel does: another one may not."""
    rows = [[0.0, -0.0, 1.0, 1.0, -inf], [-0.0, 0.0, nan, 1.0, -inf], [2.0, 2.0, nan, inf, -inf], [-inf] * 5]
    plane = torch.tensor([rows], dtype=torch.float32, device="cpu")
    for windows in (_Windows((2, 2), (1, 1), (0, 0)), _Windows((3, 3), (2, 2), (1, 1))):
        values, places = _run(call, plane, windows)
        wanted, wanted_places = _pool(plane, windows.kernel, windows.stride, windows.padding)
        same = torch.equal(values.view(torch.int32), wanted.view(torch.int32))
        if not (same and torch.equal(places, wanted_places)):
            return False
    return True
