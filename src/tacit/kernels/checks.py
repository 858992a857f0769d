"""A kernel is compared with PyTorch when it is first asked for, and left out if it differs.

A compiler, a processor or a PyTorch that nobody has tried may round, order or branch in another way. What a kernel
computes bounds what one record may do, so that a wrong one would be a wrong guarantee: it is never used.
"""

import ctypes
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from tacit.kernels.library import library

Calls = TypeVar("Calls")
Call = Callable[..., Any]
POINTER, LONG, DOUBLE, INT = ctypes.c_void_p, ctypes.c_long, ctypes.c_double, ctypes.c_int


class KernelWarning(UserWarning):
    """A compiled kernel does not give PyTorch's numbers on this machine, and PyTorch does its work."""


@dataclass(slots=True)
class Kernel(Generic[Calls]):
    """Functions of the library that belong together: how to bind them, and whether they give PyTorch's numbers.

    ``enough`` is the work for which a second thread pays.
    """

    name: str
    bind: Callable[[ctypes.CDLL], Calls]
    agrees: Callable[[Calls], bool]
    enough: int
    _known: list[Calls | None] = field(default_factory=list)

    def ready(
        self, work: int, floats: Sequence[Tensor] = (), doubles: Sequence[Tensor] = (), integers: Sequence[Tensor] = ()
    ) -> tuple[Calls, int] | None:
        """The functions, and the number of threads that so much work is worth.

        None where there are none, or the numbers of a tensor do not lie in memory as they are, in the type they need.
        """
        calls = self._known[0] if self._known else self.calls()
        if calls is None:
            return None
        for tensors, dtype in ((floats, torch.float32), (doubles, torch.float64), (integers, torch.int64)):
            for tensor in tensors:
                if tensor.dtype is not dtype or not tensor.is_cpu or tensor.is_neg():
                    return None
        return calls, torch.get_num_threads() if work >= self.enough else 1

    def calls(self) -> Calls | None:
        """The functions, or None where there is no library or it differs, which is said once."""
        if not self._known:
            loaded = library()
            self._known.append(None if loaded is None else self.checked(loaded))
            if loaded is not None and self._known[0] is None and self.is_in(loaded):
                text = f"tacit: the compiled kernel for {self.name} differs from PyTorch here; PyTorch does its work"
                warnings.warn(text, KernelWarning, stacklevel=3)
        return self._known[0]

    def is_in(self, loaded: ctypes.CDLL) -> bool:
        """Whether the library has these functions: some are made for one kind of processor only."""
        try:
            return bool(self.bind(loaded))
        except AttributeError:
            return False

    def checked(self, loaded: ctypes.CDLL) -> Calls | None:
        """The functions of this library if they agree with PyTorch."""
        try:
            calls = self.bind(loaded)
            return calls if _undisturbed(lambda: self.agrees(calls)) else None
        except Exception:  # whatever it is, PyTorch can do the work
            return None


def _undisturbed(question: Callable[[], bool]) -> bool:
    """Asked in a thread of its own, where no mode, transform or default device of the caller's is in force."""
    found: list[bool | Exception] = []

    def ask() -> None:
        try:
            with torch.no_grad():
                found.append(question())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=ask, name="tacit kernel check")
    thread.start()
    thread.join()
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def function(loaded: ctypes.CDLL, name: str, *arguments: Any, result: Any = None) -> Call:
    """A function of the library with the types of its arguments."""
    call = loaded[name]
    call.argtypes, call.restype = arguments, result
    return call


# ---- numbers to compare with ----


def numbers(*shape: int, seed: int = 0) -> Tensor:
    """Irregular floats in (-1, 1), the same in every process: no generator is touched."""
    count, start = torch.Size(shape).numel(), 577 * seed % 8192
    return _irregular()[start : start + count].view(shape).clone()


@cache
def _irregular() -> Tensor:
    """Hashes of 1, 2, ...: so few, and by such operations, that PyTorch starts no threads, which can take a while."""
    bits = torch.arange(1, 1 << 15, dtype=torch.int64, device="cpu")
    for factor in (0x9E3779B1, 0x85EBCA6B):
        bits = (bits * factor) & 0xFFFFFFFF
        bits ^= bits >> 15
    return ((bits.double() + 0.5) / 2.0**31 - 1.0).float()


def integers(*shape: int, seed: int = 0) -> Tensor:
    """Small whole numbers: sums of their products are exact in single precision, in any order."""
    return (numbers(*shape, seed=seed) * 9).to(torch.int8).float()


def close(found: Tensor, wanted: Tensor, size: Tensor, tolerance: float) -> bool:
    """Whether each number differs by at most the tolerance times its size; NaN and infinity must be the same."""
    if found.shape != wanted.shape:
        return False
    near = (found.double() - wanted).abs_() <= tolerance * size
    return bool(near.all()) or bool((near | (found == wanted) | (found.isnan() & wanted.isnan())).all())
