"""Large tensors in memory that is used again: fresh memory costs a page fault every 4 kB, and that at every step.

A buffer is given out again only when no tensor refers to its memory any more, which PyTorch counts: nobody has to give
it back, and nobody's numbers can change under their hands. Until it is written over it holds what it held, private
gradients perhaps, as all memory that a process has freed does. Each thread has its own.
"""

import ctypes
import math
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

_SMALL = 1 << 17  # bytes below which the allocator has memory at hand
_MOST = {torch.float64: 1 << 25}  # bytes that are kept: sums, which the next forward pass has to live beside ...
_MOST_OF_OTHERS = 1 << 27  # ... and rows
_use_count: Any = torch._C._storage_Use_Count
_TRIM, _MAP = -1, -3  # as glibc's malloc.h numbers what can be set
_KEPT = 1 << 28  # bytes that are free at the end of the heap, and stay the process's
_MAPPED = 1 << 25  # bytes from which a tensor is memory of its own: where glibc itself would end up at the most


class _Buffers(threading.local):
    """Of this thread, by type, the last one given out at the end; apart, those for numbers that leave the engine."""

    def __init__(self) -> None:
        self.inner: defaultdict[torch.dtype, list[Tensor]] = defaultdict(list)
        self.released: defaultdict[torch.dtype, list[Tensor]] = defaultdict(list)


_buffers = _Buffers()


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device, *, released: bool = False) -> Tensor:
    """Like ``torch.empty``. With ``released`` the memory behind the tensor is just as long and never held a record."""
    entries = math.prod(shape)
    if entries * dtype.itemsize < _SMALL or device.type != "cpu" or torch.is_inference_mode_enabled():
        return torch.empty(shape, dtype=dtype, device=device)
    known, most = (_buffers.released[dtype], entries) if released else (_buffers.inner[dtype], 2 * entries)
    for index, buffer in enumerate(known):
        if entries <= len(buffer) <= most and _is_free(buffer):
            del known[index]
            break
    else:
        spare = 0 if released else entries // 4  # the next sample may be larger
        buffer = torch.empty(entries + spare, dtype=dtype, device=device)
    known.append(buffer)
    _forget_the_oldest(known)
    view: Tensor = torch.empty(0, dtype=dtype).set_(buffer.untyped_storage(), 0, shape)  # type: ignore[call-overload]
    return view


@cache
def keep_freed_memory() -> None:
    """Tell glibc to keep what a step frees for the next one: a step's activations are freed all at once.

    It would give them back to the system, and take them again page by page. Whoever has set it otherwise is obeyed.
    """
    names = [name for name in os.environ if name.startswith("MALLOC_")]
    if sys.platform != "linux" or names or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:  # other libraries have none
        set_option(_MAP, _MAPPED)
        set_option(_TRIM, _KEPT)


def _is_free(buffer: Tensor) -> bool:
    """Whether nobody refers to its memory, in this process or in another."""
    return _references(buffer) == _ALONE and not buffer.is_shared()  # type: ignore[no-untyped-call]


def _references(tensor: Tensor) -> tuple[int, int]:
    """To its memory: PyTorch counts tensors, and all of Python's for one; Python counts its own."""
    storage = tensor.untyped_storage()
    return _use_count(storage._cdata), sys.getrefcount(storage)


_ALONE = _references(torch.empty(1, device="cpu"))


def _forget_the_oldest(known: list[Tensor]) -> None:
    """Whoever uses one of them keeps it; otherwise its memory is freed."""
    held = sum([buffer.nbytes for buffer in known])
    while known and held > _MOST.get(known[0].dtype, _MOST_OF_OTHERS):  # one alone may be too large to be kept
        held -= known.pop(0).nbytes
