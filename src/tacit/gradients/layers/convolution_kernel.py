"""The compiled kernel for 2-d convolutions: gradients of all records and their squared norms in one call."""

import ctypes
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from tacit.kernels import library

_MANY = 1 << 16  # entries of gradients for which a second thread pays


Sizes = tuple[int, ...]
Pads = tuple[tuple[int, int], ...]


def can_form(image: Tensor, g: Tensor, kernel: Sizes, stride: Sizes, padding: Pads) -> bool:
    """Whether the kernel knows these types and sizes; groups and dilation must be 1."""
    if _kernel() is None or len(kernel) != 2 or not (image.dtype == g.dtype == torch.float32 and image.is_cpu):
        return False
    reach = [(places - 1) * s + k for places, s, k in zip(g.shape[2:], stride, kernel, strict=True)]
    inside = all(least <= size for least, size in zip(reach, _padded(image, padding), strict=True))
    return inside and min(min(pair) for pair in padding) >= 0


def form_by_kernel(image: Tensor, g: Tensor, kernel: Sizes, stride: Sizes, padding: Pads, out: Tensor) -> Tensor:
    """Fills the rows of ``out`` with the gradients [out, *kernel, in] of the records; the sums of their squares."""
    call = _kernel()
    assert call is not None
    before = [pair[0] for pair in padding]
    numbers = (*image.shape[1:], *g.shape[1:], *kernel, *stride, *before, *_padded(image, padding))
    shape = (ctypes.c_long * len(numbers))(*numbers)
    squares = torch.empty(len(image), dtype=torch.float64)
    threads = torch.get_num_threads() if out.numel() >= _MANY else 1
    image, g = image.contiguous(), g.contiguous()
    if call(image.data_ptr(), g.data_ptr(), len(image), shape, out.data_ptr(), squares.data_ptr(), threads):
        raise MemoryError("no memory for the patches of one record")
    return squares


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
