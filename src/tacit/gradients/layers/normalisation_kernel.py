"""The compiled kernel for group normalisation: it needs no second copy of the layer's output."""

import ctypes
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from tacit.kernels import library

_MANY = 1 << 15  # entries for which a second thread pays


def group_norm_by_kernel(x: Tensor, g: Tensor, groups: int, eps: float) -> tuple[Tensor, Tensor] | None:
    """The gradients of scale and shift [rows, channels] for contiguous x and g; None if it cannot."""
    call = _kernel()
    if call is None or not (x.dtype == g.dtype == torch.float32 and x.is_cpu):
        return None
    rows, channels = x.shape[:2]
    scale, shift = x.new_empty(rows, channels), x.new_empty(rows, channels)
    threads = torch.get_num_threads() if x.numel() >= _MANY else 1
    places = x.numel() // (rows * channels)
    pointers = scale.data_ptr(), shift.data_ptr()
    call(x.data_ptr(), g.data_ptr(), rows, channels, places, groups, eps, *pointers, threads)
    return scale, shift


@cache
def _kernel() -> Callable[..., None] | None:
    loaded = library()
    if loaded is None:
        return None
    call = loaded.tacit_group_norm
    pointer, size = ctypes.c_void_p, ctypes.c_long
    call.argtypes = (pointer, pointer, size, size, size, size, ctypes.c_double, pointer, pointer, ctypes.c_int)
    call.restype = None
    found: Callable[..., None] = call
    return found
