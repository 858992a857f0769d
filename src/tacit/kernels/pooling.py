"""Max pooling, bit for bit as PyTorch's, which looks at one window after another."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import torch
from torch import Tensor

from tacit.kernels.checks import INT, LONG, POINTER, Call, Kernel, function, integers, numbers, threads_for

_ENOUGH = 1 << 13  # windows for which a second thread pays
_MOST_PLACES = 1 << 31
_pool: Any = torch.ops.aten.max_pool2d_with_indices.default


def max_pool(
    input: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor] | None:
    """Maxima of [..., height, width] and their places in its planes; None if the kernel cannot or PyTorch refuses."""
    call = KERNEL.calls()
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


def _run(call: Call, input: Tensor, windows: _Windows, threads: int | None = None) -> tuple[Tensor, Tensor] | None:
    places, padded = windows.places(input.shape), windows.padded(input.shape)
    values = input.new_empty(*input.shape[:-2], *places)
    indices = torch.empty_like(values, dtype=torch.int64)
    sizes = (*input.shape[-2:], *places, *windows.kernel, *windows.stride, *windows.padding, *padded)
    shape = (ctypes.c_long * len(sizes))(*sizes)
    threads = threads or threads_for(values.numel(), _ENOUGH)
    short = call(input.data_ptr(), input.shape[:-2].numel(), shape, values.data_ptr(), indices.data_ptr(), threads)
    return None if short else (values, indices)


_CASES = [  # what is unrolled and what is not, rows of less and of more than a vector of windows, edges
    _Windows((2, 2), (1, 1), (0, 0)),
    _Windows((2, 2), (2, 2), (1, 1)),
    _Windows((3, 3), (2, 2), (1, 1)),
    _Windows((3, 2), (2, 1), (1, 0)),
    _Windows((2, 5), (1, 2), (0, 2)),
    _Windows((1, 3), (1, 3), (0, 1)),
]


def _agrees(call: Call) -> bool:
    """Whether this PyTorch treats equal maxima, NaN and nothing but -inf as the kernel does: another one may not."""
    rows = [[0.0, -0.0, 1.0, 1.0, -inf], [-0.0, 0.0, nan, 1.0, -inf], [2.0, 2.0, nan, inf, -inf], [-inf] * 5]
    plane = torch.tensor([rows], dtype=torch.float32, device="cpu")
    wide = (integers(3, 6, 41) / 2).masked_fill_(numbers(3, 6, 41, seed=1) > 0.95, nan)
    for index, windows in enumerate(_CASES):
        for input in (plane, wide):
            wanted = _pool(input, windows.kernel, windows.stride, windows.padding)
            if not _same(_run(call, input, windows, 1 + index // 5), wanted):
                return False
    return True


def _same(found: tuple[Tensor, Tensor] | None, wanted: tuple[Tensor, Tensor]) -> bool:
    """To the last bit, NaN's too."""
    if found is None or found[0].shape != wanted[0].shape:
        return False
    bits = torch.equal(found[0].view(torch.int32), wanted[0].view(torch.int32))
    return bits and torch.equal(found[1], wanted[1])


KERNEL = Kernel(
    "max pooling",
    lambda loaded: function(loaded, "tacit_max_pool", POINTER, LONG, POINTER, POINTER, POINTER, INT, result=INT),
    _agrees,
)
