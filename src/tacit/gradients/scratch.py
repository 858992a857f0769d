"""Large buffers that outlive a call, because fresh memory costs a page fault every 4 kB, and that at every step.

They hold private gradients until they are written over, as all memory that a process has freed does. Each thread has
its own, so that no two calls can be given the same buffer.
"""

import threading
import weakref

import torch
from torch import Tensor

_MOST_BYTES = 1 << 27


class _Free(threading.local):
    """The buffers of this thread that nobody holds."""

    def __init__(self) -> None:
        self.buffers: list[Tensor] = []


_free = _Free()


def borrow(owner: object, entries: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A buffer of so many entries, for as long as the owner lives; what it holds is left from earlier."""
    buffer = _take(entries, dtype, device)
    weakref.finalize(owner, _give_back, buffer).atexit = False
    return buffer[:entries]


def _take(entries: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    fits = [b for b in _free.buffers if entries <= len(b) <= 2 * entries and b.dtype == dtype and b.device == device]
    if not fits:
        return torch.empty(entries, dtype=dtype, device=device)
    best = min(fits, key=len)
    for index, buffer in enumerate(_free.buffers):
        if buffer is best:
            return _free.buffers.pop(index)
    return torch.empty(entries, dtype=dtype, device=device)


def _give_back(buffer: Tensor) -> None:
    _free.buffers.append(buffer)
    while sum(free.nbytes for free in _free.buffers) > _MOST_BYTES:
        _free.buffers.pop(0)
