"""(sum + stddev * noise) / denominator in one pass, from the words of an AES-256-CTR key stream."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from torch import Tensor

from tacit.kernels.checks import DOUBLE, INT, LONG, POINTER, Call, Kernel, close, function, numbers

_SINGLE, _DOUBLE = torch.float32, torch.float64
_KINDS = {(_DOUBLE, _DOUBLE): 0, (_SINGLE, _DOUBLE): 1, (_DOUBLE, _SINGLE): 2, (_SINGLE, _SINGLE): 3}  # sum and result
_VECTOR = "qqqqqd"  # as in noise.c: sum, result, first draw, count, kind, stddev


@dataclass(frozen=True, slots=True)
class _Calls:
    add_noise: Call
    normals: Call


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
    ready = KERNEL.ready(sum([value.numel() for value in sums]))
    if ready is None or not all(map(_suits, sums, outs)):
        return False
    calls, threads = ready
    _run(calls.add_noise, key, counter, sums, stddevs, denominator, outs, threads)
    return True


def _suits(value: Tensor, out: Tensor) -> bool:
    """Whether both lie in memory in the order of their entries, in types that the kernel knows."""
    if not (value.is_cpu and out.is_cpu and value.is_contiguous() and out.is_contiguous()):
        return False
    return (value.dtype, out.dtype) in _KINDS and value.numel() == out.numel() and not value.is_neg()


def _run(
    call: Call,
    key: bytes,
    counter: bytes,
    sums: Sequence[Tensor],
    stddevs: Sequence[float],
    denominator: float,
    outs: Sequence[Tensor],
    threads: int,
) -> None:
    fields: list[float] = []
    first = 0
    for value, stddev, out in zip(sums, stddevs, outs, strict=True):
        count, kind = value.numel(), _KINDS[value.dtype, out.dtype]
        fields += (value.data_ptr(), out.data_ptr(), first, count, kind, stddev)
        first += count
    vectors = struct.pack(_VECTOR * len(sums), *fields)
    call(key, counter, vectors, len(sums), denominator, threads)


_COUNTS = [1, 0, 1040, 16_996]  # more than a block, more than are left to one thread; the last draw lies in the tail
_BORDERS = [0, 1, 125_090, 125_091, 675539944105573, 675539944105574, (1 << 52) - 1]  # of the kernel's three formulas


def _agrees(calls: _Calls) -> bool:
    """Whether the draws are PyTorch's: those from a fixed key, few and many, and those that no key finds."""
    words = torch.tensor([k - (k % 2 << 63) for k in _BORDERS], dtype=torch.int64, device="cpu")
    found, wanted = torch.empty(len(words), dtype=_DOUBLE, device="cpu"), _inverse_normal(words)
    calls.normals(words.data_ptr(), found.data_ptr(), len(words))
    return close(found, wanted, wanted.abs(), 1e-13) and _sums_agree(calls.add_noise)


def _sums_agree(call: Call) -> bool:
    """For sums and results of either type."""
    key, counter = bytes(range(32)), bytes([7, *range(7), *bytes(8)])
    draws, values = _draws(key, counter, sum(_COUNTS)), numbers(sum(_COUNTS))
    stddevs = [1.7, 2.0, 0.3, 1.1]
    scaled = draws * torch.cat(
        [torch.full((n,), s, dtype=_DOUBLE, device="cpu") for n, s in zip(_COUNTS, stddevs, strict=True)]
    )
    for source, target in _KINDS:
        for counts, threads in ((_COUNTS[:3], 1), (_COUNTS, 2)):
            sums = values[: sum(counts)].to(source)
            wanted = (sums + scaled[: len(sums)]) / 3.0
            out = torch.empty(len(sums), dtype=target, device="cpu")
            _run(
                call,
                key,
                counter,
                torch.split(sums, counts),
                stddevs[: len(counts)],
                3.0,
                torch.split(out, counts),
                threads,
            )
            if not close(out, wanted, wanted.abs() + 1e-3, 1e-13 if target == _DOUBLE else 6e-8):
                return False
    return True


def _draws(key: bytes, counter: bytes, count: int) -> Tensor:
    """From the key stream's words."""
    stream = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor().update(bytes(8 * count))
    return _inverse_normal(torch.frombuffer(bytearray(stream), dtype=torch.int64))


def _inverse_normal(words: Tensor) -> Tensor:
    """As ``randomness`` makes it: the last 52 bits give the size, the first one the sign."""
    halves: Tensor = torch.special.ndtri(((words & ((1 << 52) - 1)).double() + 0.5) * 2.0**-53)
    return -halves.copysign_(words.view(torch.float64))


KERNEL = Kernel(
    "noise",
    lambda loaded: _Calls(
        function(loaded, "tacit_add_noise", POINTER, POINTER, POINTER, LONG, DOUBLE, INT),
        function(loaded, "tacit_normals", POINTER, POINTER, LONG),
    ),
    _agrees,
    enough=1 << 14,
)
