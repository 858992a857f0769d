"""The compiled kernel for 2-d convolutions: gradients of all records and their squared norms in one call."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import Tensor

from tacit.gradients.record_gradients import Dense
from tacit.gradients.scratch import borrow
from tacit.kernels import library

_MANY = 1 << 16  # entries of gradients for which a second thread pays


Sizes = tuple[int, ...]
Pads = tuple[tuple[int, int], ...]


@dataclass(slots=True, weakref_slot=True)
class FormedRows:
    """Gradients that the compiled kernel has formed, as [records, out, *kernel, in], and their squared norms."""

    shape: torch.Size
    rows: Tensor = field(init=False)
    squares: Tensor = field(init=False)

    def squared_norms(self) -> Tensor:
        return self.squares

    def weighted_sum(self, factors: Tensor) -> Tensor:
        return self._turned(Dense(self.rows).weighted_sum(factors)[None])[0].contiguous()

    def materialise(self, start: int, stop: int) -> Tensor:
        return self._turned(self.rows[start:stop])

    def select(self, records: Tensor) -> "FormedRows":
        some = FormedRows(self.shape)
        some.rows, some.squares = self.rows[records], self.squares[records]
        return some

    def _turned(self, rows: Tensor) -> Tensor:
        return rows.view(-1, self.shape[0], *self.shape[2:], self.shape[1]).movedim(-1, 2)


def form_rows(image: Tensor, g: Tensor, shape: torch.Size, stride: Sizes, padding: Pads) -> FormedRows | None:
    """The gradients of all rows for a weight of this shape, without groups and dilation; None if the kernel cannot."""
    kernel = tuple(shape[2:])
    call = _kernel()
    if call is None or not _suits(image, g, kernel, stride, padding):
        return None
    formed = FormedRows(shape)
    formed.rows = borrow(formed, len(g) * shape.numel(), g.dtype, g.device).view(len(g), -1)
    formed.squares = torch.empty(len(g), dtype=torch.float64)
    before = [pair[0] for pair in padding]
    numbers = (*image.shape[1:], *g.shape[1:], *kernel, *stride, *before, *_padded(image, padding))
    sizes = (ctypes.c_long * len(numbers))(*numbers)
    threads = torch.get_num_threads() if formed.rows.numel() >= _MANY else 1
    image, g = image.contiguous(), g.contiguous()
    pointers = formed.rows.data_ptr(), formed.squares.data_ptr()
    if call(image.data_ptr(), g.data_ptr(), len(g), sizes, *pointers, threads):
        raise MemoryError("no memory for one record's image")
    return formed


def _suits(image: Tensor, g: Tensor, kernel: Sizes, stride: Sizes, padding: Pads) -> bool:
    if len(kernel) != 2 or not (image.dtype == g.dtype == torch.float32 and image.is_cpu):
        return False
    reach = [(places - 1) * s + k for places, s, k in zip(g.shape[2:], stride, kernel, strict=True)]
    inside = all(least <= size for least, size in zip(reach, _padded(image, padding), strict=True))
    return inside and min(min(pair) for pair in padding) >= 0


def _padded(image: Tensor, padding: Pads) -> list[int]:
    return [size + before + after for size, (before, after) in zip(image.shape[2:], padding, strict=True)]


@cache
def _kernel() -> Callable[..., int] | None:
    loaded = library()
    if loaded is None:
        return None
    call: Callable[..., int] = loaded.tacit_convolution
    pointer, size = ctypes.c_void_p, ctypes.c_long
    loaded.tacit_convolution.argtypes = (pointer, pointer, size, pointer, pointer, pointer, ctypes.c_int)
    return call
