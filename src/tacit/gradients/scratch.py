"""Large buffers that outlive a call, because fresh memory costs a page fault every 4 kB, and that at every step."""

import weakref

import torch
from torch import Tensor

_MOST_BYTES = 1 << 27
_free: list[Tensor] = []


def borrow(owner: object, entries: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A buffer of so many entries, for as long as the owner lives; what it holds is left from earlier."""
    buffer = _take(entries, dtype, device)
    weakref.finalize(owner, _give_back, buffer).atexit = False
    return buffer[:entries]


def _take(entries: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    fits = [b for b in _free if entries <= len(b) <= 2 * entries and b.dtype == dtype and b.device == device]
    if not fits:
        return torch.empty(entries, dtype=dtype, device=device)
    best = min(fits, key=len)
    for index, buffer in enumerate(_free):
        if buffer is best:
            return _free.pop(index)
    return torch.empty(entries, dtype=dtype, device=device)


def _give_back(buffer: Tensor) -> None:
    _free.append(buffer)
    while sum(free.nbytes for free in _free) > _MOST_BYTES:
        _free.pop(0)
