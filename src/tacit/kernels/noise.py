"""(sum + stddev * noise) / denominator in one pass, from the words of an AES-256-CTR key stream."""

import ctypes
from collections.abc import Sequence

import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from torch import Tensor

from tacit.kernels.checks import DOUBLE, INT, LONG, POINTER, Call, Kernel, close, function, numbers, threads_for

_ENOUGH = 1 << 14  # draws for which a second thread pays
_NAMES = {torch.float32: "float", torch.float64: "double"}
_Calls = dict[tuple[torch.dtype, torch.dtype], Call]


def add_noise(
    key: bytes,
    counter: bytes,
    sums: Sequence[Tensor],
    stddevs: Sequence[float],
    denominator: float,
    outs: Sequence[Tensor],
) -> bool:
    """Fill outs with (sum + stddev * draw) / denominator, rounded once; False, and nothing done, if the kernel cannot.

    The draws are those of the words of the key stream in a row, the vectors' one after another.
    """
    calls = KERNEL.calls()
    if calls is None or not all(value.is_cpu and value.is_contiguous() for value in (*sums, *outs)):
        return False
    kinds = [calls.get((value.dtype, out.dtype)) for value, out in zip(sums, outs, strict=True)]
    if None in kinds:
        return False
    first = 0
    for call, value, stddev, out in zip(kinds, sums, stddevs, outs, strict=True):
        assert call is not None
        _run(call, key, counter, first, value, stddev, denominator, out, threads_for(value.numel(), _ENOUGH))
        first += value.numel()
    return True


def _run(
    call: Call,
    key: bytes,
    counter: bytes,
    first: int,
    value: Tensor,
    stddev: float,
    denominator: float,
    out: Tensor,
    threads: int,
) -> None:
    call(key, counter, first, value.data_ptr(), out.data_ptr(), value.numel(), stddev, denominator, threads)


def _bind(loaded: ctypes.CDLL) -> _Calls:
    bytes_ = ctypes.c_char_p
    types = (bytes_, bytes_, LONG, POINTER, POINTER, LONG, DOUBLE, DOUBLE, INT)
    return {
        (source, target): function(loaded, f"tacit_add_noise_{source_name}_to_{target_name}", *types)
        for source, source_name in _NAMES.items()
        for target, target_name in _NAMES.items()
    }


_COUNTS = [(1, 1), (1030, 1), (17_001, 2)]  # and threads: less and more than a block, and than the draws of one thread


def _agrees(calls: _Calls) -> bool:
    """Whether the draws from a fixed key are PyTorch's, for sums and results of either type."""
    key, counter, most = bytes(range(32)), bytes([7, *range(7), *bytes(8)]), max(_COUNTS)[0] + 3
    draws, values = _draws(key, counter, most), numbers(most)
    for source, target in calls:
        for skipped, (count, threads) in enumerate(_COUNTS):
            value, out = values[:count].to(source), torch.empty(count, dtype=target, device="cpu")
            _run(calls[source, target], key, counter, skipped, value, 1.7, 3.0, out, threads)
            wanted = (value + 1.7 * draws[skipped : skipped + count]) / 3.0
            if not close(out, wanted, wanted.abs() + 1e-3, 1e-13 if target == torch.float64 else 6e-8):
                return False
    return True


def _draws(key: bytes, counter: bytes, count: int) -> Tensor:
    """The inverse normal of the key stream's words, as ``randomness`` makes it."""
    stream = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor().update(bytes(8 * count))
    words = torch.frombuffer(bytearray(stream), dtype=torch.int64)
    halves: Tensor = torch.special.ndtri(((words & ((1 << 52) - 1)).double() + 0.5) * 2.0**-53)
    return -halves.copysign_(words.view(torch.float64))


KERNEL = Kernel("noise", _bind, _agrees)
