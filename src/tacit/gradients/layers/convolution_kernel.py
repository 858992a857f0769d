"""The compiled kernel for 2-d convolutions: gradients of all records and their squared norms in one call."""

import ctypes
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from tacit.kernels import library

_MANY = 1 << 16  # entries of gradients for which a second thread pays


def form_by_kernel(
    image: Tensor,
    g: Tensor,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    out: Tensor,
) -> Tensor | None:
    """Fills the rows of ``out`` with gradients [out, *kernel, in] and gives their squares' sums; None if it cannot.

    One row of the image and of g is one record; groups and dilation are 1.
    """
    call = _kernel()
    if call is None or len(kernel) != 2 or not (image.dtype == g.dtype == torch.float32 and image.is_cpu):
        return None
    padded = [size + before + after for size, (before, after) in zip(image.shape[2:], padding, strict=True)]
    reach = [(places - 1) * s + k for places, s, k in zip(g.shape[2:], stride, kernel, strict=True)]
    if any(least > size for least, size in zip(reach, padded, strict=True)) or min(min(pair) for pair in padding) < 0:
        return None
    numbers = (*image.shape[1:], *g.shape[1:], *kernel, *stride, *(before for before, _ in padding), *padded)
    shape = (ctypes.c_long * len(numbers))(*numbers)
    squares = torch.empty(len(image), dtype=torch.float64)
    threads = torch.get_num_threads() if out.numel() >= _MANY else 1
    image, g = image.contiguous(), g.contiguous()
    failed = call(image.data_ptr(), g.data_ptr(), len(image), shape, out.data_ptr(), squares.data_ptr(), threads)
    return None if failed else squares


@cache
def _kernel() -> Callable[..., int] | None:
    loaded = library()
    if loaded is None:
        return None
    call: Callable[..., int] = loaded.tacit_convolution
    pointer, size = ctypes.c_void_p, ctypes.c_long
    loaded.tacit_convolution.argtypes = (pointer, pointer, size, pointer, pointer, pointer, ctypes.c_int)
    return call
