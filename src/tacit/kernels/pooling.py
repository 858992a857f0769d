"""Max pooling both ways, bit for bit as PyTorch's, which looks at one window after another."""

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf, nan
from typing import Any

import torch
from torch import Tensor

from tacit.kernels.checks import INT, LONG, POINTER, Call, Kernel, function, integers, numbers

_MOST_PLACES = 1 << 31
_pool: Any = torch.ops.aten.max_pool2d_with_indices.default
_pool_backward: Any = torch.ops.aten.max_pool2d_with_indices_backward.default


def max_pool(
    input: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor] | None:
    """Maxima of [..., height, width] and their places in its planes; None if the kernel cannot or PyTorch refuses."""
    if ceil_mode or set(dilation) != {1} or not _suits(input):
        return None
    windows = _windows(tuple(input.shape[-2:]), tuple(kernel), tuple(stride or kernel), tuple(padding))
    if windows is None:
        return None
    ready = KERNEL.ready(input.shape[:-2].numel() * math.prod(windows.places), (input,))
    return None if ready is None else _run(ready[0], input, windows, ready[1])


def max_pool_backward(g: Tensor, places: Tensor, shape: Sequence[int]) -> Tensor | None:
    """The gradient by an input of this shape, from that by the maxima and their places; None if the kernel cannot."""
    if g.shape != places.shape or g.shape[:-2] != torch.Size(shape[:-2]) or min(shape) < 1:
        return None
    ready = BACKWARD.ready(math.prod(shape), (g,), integers=(places,))
    return None if ready is None else _back(ready[0], g.contiguous(), places.contiguous(), shape, ready[1])


def _back(call: Call, g: Tensor, places: Tensor, shape: Sequence[int], threads: int) -> Tensor:
    found = g.new_empty(shape)
    planes, outs, size = (math.prod(sizes) for sizes in (shape[:-2], g.shape[-2:], shape[-2:]))
    call(g.data_ptr(), places.data_ptr(), planes, outs, size, found.data_ptr(), threads)
    return found


@dataclass(frozen=True, slots=True)
class _Windows:
    """How many windows there are, down and across, and all sizes as the kernel is told them."""

    places: tuple[int, int]
    sizes: ctypes.Array[ctypes.c_long]


@lru_cache(maxsize=64)
def _windows(
    shape: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...]
) -> _Windows | None:
    """The windows on planes of this shape; None unless there are some, each with a place that is no padding."""
    (kernel, stride, padding), sides = ((sizes[0], sizes[-1]) for sizes in (kernel, stride, padding)), (0, 1)
    padded = [shape[side] + 2 * padding[side] for side in sides]
    inside = all(0 <= 2 * padding[side] <= kernel[side] for side in sides) and min(*kernel, *stride) > 0
    if not inside or any(padded[side] < kernel[side] for side in sides):
        return None
    down, across = ((padded[side] - kernel[side]) // stride[side] + 1 for side in sides)
    sizes = (*shape, down, across, *kernel, *stride, *padding, *padded)
    return _Windows((down, across), (ctypes.c_long * len(sizes))(*sizes))


def _suits(input: Tensor) -> bool:
    if type(input) is not Tensor or input.dim() not in (3, 4):
        return False
    height, width = input.shape[-2:]
    strides = (input.shape[-3] * height * width, height * width, width, 1)[-input.dim() :]
    return input.numel() > 0 and input.stride() == strides and height * width < _MOST_PLACES  # channels are not last


def _run(call: Call, input: Tensor, windows: _Windows, threads: int) -> tuple[Tensor, Tensor] | None:
    values = input.new_empty(*input.shape[:-2], *windows.places)
    indices = torch.empty_like(values, dtype=torch.int64)
    planes = input.shape[:-2].numel()
    short = call(input.data_ptr(), planes, windows.sizes, values.data_ptr(), indices.data_ptr(), threads)
    return None if short else (values, indices)


_CASES = [  # what is unrolled and what is not, rows of less and of more than a vector of windows, edges
    ((2, 2), (1, 1), (0, 0)),
    ((2, 2), (2, 2), (1, 1)),
    ((3, 3), (2, 2), (1, 1)),
    ((3, 2), (2, 1), (1, 0)),
    ((2, 5), (1, 2), (0, 2)),
    ((1, 3), (1, 3), (0, 1)),
]


def _agrees(call: Call) -> bool:
    """Whether this PyTorch treats equal maxima, NaN and nothing but -inf as the kernel does: another one may not."""
    rows = [[0.0, -0.0, 1.0, 1.0, -inf], [-0.0, 0.0, nan, 1.0, -inf], [2.0, 2.0, nan, inf, -inf], [-inf] * 5]
    plane = torch.tensor([rows], dtype=torch.float32, device="cpu")
    wide = (integers(3, 6, 41) / 2).masked_fill_(numbers(3, 6, 41, seed=1) > 0.95, nan)
    for index, case in enumerate(_CASES):
        for input in (plane, wide):
            windows = _windows(tuple(input.shape[-2:]), *case)
            if windows is None or not _same(_run(call, input, windows, 1 + index // 5), _pool(input, *case)):
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
    enough=1 << 13,
)


def _backward_agrees(call: Call) -> bool:
    """Bit for bit, also where windows share a maximum, whose parts are added in their order."""
    for index, case in enumerate(_CASES):
        input = integers(2, 3, 6, 41, seed=index)
        values, places = _pool(input, *case)
        g = numbers(*values.shape, seed=index + 9)
        g[0, 0, 0, 0] = nan  # must stay in its plane
        wanted = _pool_backward(g, input, *case, [1, 1], False, places)
        found = _back(call, g, places, input.shape, 1 + index // 3)
        if not torch.equal(found.view(torch.int32), wanted.view(torch.int32)):
            return False
    return True


BACKWARD = Kernel(
    "max pooling backwards",
    lambda loaded: function(loaded, "tacit_max_pool_backward", POINTER, POINTER, LONG, LONG, LONG, POINTER, INT),
    _backward_agrees,
    enough=1 << 15,
)
