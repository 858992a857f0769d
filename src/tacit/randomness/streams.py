"""AES-256-CTR key streams, apart for sampling and for noise, and the float64 normal draws made from them.

Why not ``torch.randn``: its float32 Box-Muller never passes 5.76811, so that an output outside the range reveals a
record, and its generator can be predicted from a few outputs (maths.md section 10).
"""

import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Literal, NoReturn, final

import numpy as np
import numpy.typing as npt
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from tacit.errors import InputError
from tacit.randomness.discrete_gaussian import discrete_gaussians
from tacit.randomness.inverse_normal import to_normals
from tacit.randomness.noisy_sums import add_few, add_noise_by_kernel, add_noise_by_parts
from tacit.randomness.records import LazyChance, RecordChance, encrypt

Purpose = Literal["sampling", "noise", "layers"]
_PURPOSES: dict[Purpose, int] = {"sampling": 1, "noise": 2, "layers": 3}
_PART = 1 << 18
_ZEROS = memoryview(bytes(8 * _PART))
_FEW, _CALLS = 1 << 14, 20  # draws that are made at once, for so many calls at most: each by itself costs some 20 us


@final
class Randomness:
    """Independent streams of random words for each purpose.

    Every call reads its own stretch of key stream: the counter block is (purpose, number of the call, position). So the
    draw for record i of step t does not depend on how many records there are, and neighbouring data sets replayed with
    the same seed see the same draws (failure-modes, first paragraph).

    A secure source takes a fresh 256-bit key from the operating system in every process, after every fork too, and
    refuses to be copied or pickled: a key must never reach a checkpoint.

    Example:
        >>> noise = Randomness.seeded(1).normals(4)
        >>> bool((noise == Randomness.seeded(1).normals(4)).all())
        True
    """

    def __init__(self) -> None:
        self._seed: int | None = None
        self._start(os.urandom(32))

    @classmethod
    def seeded(cls, seed: int) -> "Randomness":
        """For tests only. The ledger marks the run as seeded and it can never be released."""
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise InputError(f"seed must be a whole number, found {seed!r}")
        source = cls()
        source._seed = seed
        source._start(hashlib.sha256(f"tacit seeded randomness {seed}".encode()).digest())
        return source

    def for_rank(self, rank: int) -> "Randomness":
        """What this process of a job draws from. A secure key is each process's own; a seed is taken apart by rank."""
        if self._seed is None or rank == 0:
            return self
        found = Randomness()
        found._seed = self._seed
        found._start(hashlib.sha256(f"tacit seeded randomness {self._seed} of rank {rank}".encode()).digest())
        return found

    @classmethod
    def of_key(cls, key: bytes) -> "Randomness":
        """A secure source whose key the caller made and guards, to draw one release again after a stop.

        Two releases, or one of two tables, must never share a key: their difference would have no noise.
        """
        if not isinstance(key, bytes) or len(key) != 32:
            raise InputError("a key must be 32 bytes")
        source = cls()
        source._start(key)
        return source

    @property
    def kind(self) -> Literal["secure", "seeded"]:
        return "secure" if self._seed is None else "seeded"

    def words(self, purpose: Purpose, count: int) -> npt.NDArray[np.uint64]:
        """``count`` uniform 64-bit words from the next stretch of the purpose's stream."""
        out = np.empty(count + 2, dtype="<u8")  # the cipher wants room for one more block
        self._stream(self._next_counter(purpose)).update_into(bytes(8 * count), out.data.cast("B"))
        return out[:count]

    def normals(self, count: int) -> torch.Tensor:
        """Standard normal draws in float64: symmetric, never infinite, reaching 8.29."""
        if count <= _PART:
            return next((part for _, part in self.normal_parts(count)), torch.empty(0, dtype=torch.float64))
        draws = torch.empty(count, dtype=torch.float64)
        for start, part in self.normal_parts(count):
            draws[start : start + len(part)] = part
        return draws

    def normal_parts(self, count: int) -> Iterator[tuple[int, torch.Tensor]]:
        """The same draws in parts that stay in the processor's cache: (position, draws), to be used before the next."""
        return _normal_parts(self._stream(self._next_counter("noise")), count)

    def add_noise(
        self,
        sums: Sequence[torch.Tensor],
        stddevs: Sequence[float],
        denominator: float,
        outs: Sequence[torch.Tensor],
    ) -> None:
        """out = (sum + stddev * draw) / denominator for every vector, in float64, rounded once to the type of out.

        The draws are those that :meth:`normals` would give for all the vectors in a row.
        """
        counter = self._next_counter("noise")
        if not add_noise_by_kernel(self._key, counter, sums, stddevs, denominator, outs):
            count = sum([value.numel() for value in sums])
            if 0 < count <= _FEW // _CALLS:
                add_few(self._made_ahead(counter, count), sums, stddevs, denominator, outs)
            else:
                add_noise_by_parts(_normal_parts(self._stream(counter), count), sums, stddevs, denominator, outs)

    def _made_ahead(self, counter: bytes, count: int) -> torch.Tensor:
        """The draws of this call, made with those that the next calls will ask for if they want as many."""
        found = self._ahead.pop(counter, None)
        if found is None or len(found) != count:
            first = int.from_bytes(counter[:8], "big")
            found, *later = normals_of_calls(self._key, first, _CALLS, count)
            self._ahead.clear()
            self._ahead.update({_counter(first + number): draws for number, draws in enumerate(later, start=1)})
        return found

    def record_chance(self, numbers: npt.NDArray[np.int64]) -> RecordChance:
        """The chance of the records with these numbers at the next step: a number's words do not depend on the others.

        Example:
            >>> one = Randomness.seeded(1).record_chance(np.array([3, 5]))
            >>> other = Randomness.seeded(1).record_chance(np.array([5]))
            >>> bool(one.seeds[1] == other.seeds[0])
            True
        """
        return LazyChance(self._key, self._next_counter("layers"), numbers)

    def discrete_normals(self, sigma: int, count: int) -> npt.NDArray[np.int64]:
        """Whole numbers from the discrete Gaussian of parameter sigma, exactly."""
        return discrete_gaussians(lambda words: self.words("noise", words), sigma, count)

    def _next_counter(self, purpose: Purpose) -> bytes:
        if self._seed is None and self._process != os.getpid():
            self._start(os.urandom(32))  # a forked child must not repeat its parent's noise
        with self._one_thread:  # no two calls may have one number
            call = self._calls[purpose]
            self._calls[purpose] = call + 1
        return _counter((_PURPOSES[purpose] << 56) + call)

    def _stream(self, counter: bytes) -> CipherContext:
        return Cipher(algorithms.AES(self._key), modes.CTR(counter)).encryptor()

    def _start(self, key: bytes) -> None:
        self._key = key
        self._process = os.getpid()
        self._one_thread = threading.Lock()
        self._calls: dict[Purpose, int] = dict.fromkeys(_PURPOSES, 0)
        self._ahead: dict[bytes, torch.Tensor] = {}  # normal draws of coming calls, by their counters

    def __reduce__(self) -> NoReturn:
        raise TypeError("a source of randomness cannot be copied or saved: its key would repeat the noise")


def _counter(call: int) -> bytes:
    """Of the first block of a call: its purpose and number, and position 0."""
    return call.to_bytes(8, "big") + bytes(8)


def normals_of_calls(key: bytes, first: int, calls: int, count: int) -> torch.Tensor:
    """The draws [calls, count] of several calls in a row, each from its own stretch of key stream."""
    blocks = np.empty((calls, -(-count // 2), 2), dtype=">u8")
    blocks[:, :, 0] = (first + np.arange(calls, dtype=np.uint64))[:, None]
    blocks[:, :, 1] = np.arange(blocks.shape[1])
    words = encrypt(key, blocks).astype(np.int64).reshape(calls, -1)[:, :count].copy()
    return to_normals(torch.from_numpy(words), torch.empty(calls, count, dtype=torch.float64))


def _normal_parts(stream: CipherContext, count: int) -> Iterator[tuple[int, torch.Tensor]]:
    size = min(count, _PART)
    block = np.empty(size + 2, dtype=np.int64)
    words = torch.from_numpy(block)
    draws = torch.empty(size, dtype=torch.float64)
    for start in range(0, count, _PART):
        length = min(_PART, count - start)
        stream.update_into(_ZEROS[: 8 * length], block.data.cast("B"))
        yield start, to_normals(words[:length], draws[:length])
