"""(sum + stddev * noise) / denominator in one pass: by the compiled kernel, or part by part with PyTorch.

Both take the same words of the same key stream, and their draws differ by a few units in the last place.
"""

import ctypes
from collections.abc import Callable, Iterable, Sequence
from functools import cache

import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from torch import Tensor

from tacit.kernels import library
from tacit.randomness.inverse_normal import to_normals

Kernel = Callable[..., None]
Parts = Iterable[tuple[int, Tensor]]

_MANY = 1 << 14  # draws for which a second thread pays
_NAMES = {torch.float32: "float", torch.float64: "double"}
_KEY, _POINTER, _LONG, _DOUBLE = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_double


def add_noise_by_kernel(
    key: bytes,
    counter: bytes,
    sums: Sequence[Tensor],
    stddevs: Sequence[float],
    denominator: float,
    outs: Sequence[Tensor],
) -> bool:
    """Whether the kernel could do it: not without a compiler, on another device, or for other types."""
    calls = [_kernels().get((value.dtype, out.dtype)) for value, out in zip(sums, outs, strict=True)]
    if None in calls or not all(value.is_cpu and value.is_contiguous() for value in (*sums, *outs)):
        return False
    first = 0
    for call, value, stddev, out in zip(calls, sums, stddevs, outs, strict=True):
        count = value.numel()
        threads = torch.get_num_threads() if count >= _MANY else 1
        assert call is not None
        call(key, counter, first, value.data_ptr(), out.data_ptr(), count, stddev, denominator, threads)
        first += count
    return True


def add_noise_by_parts(
    parts: Parts, sums: Sequence[Tensor], stddevs: Sequence[float], denominator: float, outs: Sequence[Tensor]
) -> None:
    """While the noise is in the cache. ``outs`` are contiguous, whatever the layout of the sums."""
    spans = [(v.reshape(-1), s, o.view(-1)) for v, s, o in zip(sums, stddevs, outs, strict=True) if v.numel()]
    first = 0  # where the vector at the head of the spans starts in the concatenation of all
    for start, noise in parts:
        end = start + len(noise)
        while spans and first < end:
            values, stddev, out = spans[0]
            last = first + len(values)
            low, high = max(first, start), min(last, end)
            draw = noise[low - start : high - start].mul_(stddev)
            draw = draw if draw.device == values.device else draw.to(values.device)
            out[low - first : high - first] = draw.add_(values[low - first : high - first]).div_(denominator)
            if last > end:
                break
            spans.pop(0)
            first = last


@cache
def _kernels() -> dict[tuple[torch.dtype, torch.dtype], Kernel]:
    """By the types of sum and result; empty where there is no library or it does not give PyTorch's numbers."""
    loaded = library()
    if loaded is None:
        return {}
    found: dict[tuple[torch.dtype, torch.dtype], Kernel] = {}
    for source, source_name in _NAMES.items():
        for target, target_name in _NAMES.items():
            call = loaded[f"tacit_add_noise_{source_name}_to_{target_name}"]
            call.restype = None
            call.argtypes = (_KEY, _KEY, _LONG, _POINTER, _POINTER, _LONG, _DOUBLE, _DOUBLE, ctypes.c_int)
            found[source, target] = call
    return found if _agrees(found[torch.float64, torch.float64]) else {}


def _agrees(kernel: Kernel, count: int = 5000) -> bool:
    """Whether the kernel's draws from a fixed key are PyTorch's."""
    key, counter = bytes(range(32)), bytes([7, *range(7), *bytes(8)])
    words = bytearray(8 * count + 16)
    Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor().update_into(bytes(8 * count), words)
    right = to_normals(torch.frombuffer(words, dtype=torch.int64, count=count), torch.empty(count).double())
    draws = torch.empty(count).double()
    kernel(key, counter, 1, torch.zeros(count).double().data_ptr(), draws.data_ptr(), count - 1, 1.0, 1.0, 1)
    return torch.allclose(draws[:-1], right[1:], rtol=1e-13, atol=0.0)
