"""AES-256-CTR key streams, apart for sampling and for noise, and the float64 normal draws made from them.

Why not ``torch.randn``: its float32 Box-Muller never passes 5.76811, so that an output outside the range reveals a
record, and its generator can be predicted from a few outputs (maths.md section 10).
"""

import hashlib
import os
from typing import Literal, NoReturn, final

import numpy as np
import numpy.typing as npt
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tacit.errors import InputError

Purpose = Literal["sampling", "noise"]
_PURPOSES: dict[Purpose, int] = {"sampling": 1, "noise": 2}


@final
class Randomness:
    """Independent streams of random words for each purpose.

    Every call reads its own stretch of key stream: the counter block is (purpose, number of the call, position). So the
    draw for record i of step t does not depend on how many records there are, and neighbouring data sets replayed with
    the same seed see the same draws (failure-modes, first paragraph).

    A secure source takes a fresh 256-bit key from the operating system in every process, after every fork too, and
    refuses to be copied or pickled: a key must never reach a checkpoint (F9).

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

    @property
    def kind(self) -> Literal["secure", "seeded"]:
        return "secure" if self._seed is None else "seeded"

    def words(self, purpose: Purpose, count: int) -> npt.NDArray[np.uint64]:
        """``count`` uniform 64-bit words from the next stretch of the purpose's stream."""
        if self._seed is None and self._process != os.getpid():
            self._start(os.urandom(32))  # a forked child must not repeat its parent's noise
        call = self._calls[purpose]
        self._calls[purpose] = call + 1
        nonce = bytes([_PURPOSES[purpose]]) + call.to_bytes(7, "big") + bytes(8)
        stream = Cipher(algorithms.AES(self._key), modes.CTR(nonce)).encryptor()
        out = bytearray(8 * count + 15)
        stream.update_into(bytes(8 * count), out)
        return np.frombuffer(out, dtype="<u8", count=count)

    def normals(self, count: int) -> torch.Tensor:
        """Standard normal draws in float64: symmetric, never infinite, reaching 8.29.

        A 52-bit integer k gives the half-range uniform (k + 1/2) 2^-53 in (0, 1/2), whose inverse normal is the
        negative half; the sign has its own bit. The plain 53-bit form gives +inf at its top value.
        """
        words = torch.from_numpy(self.words("noise", count).view(np.int64))
        half = (words & ((1 << 52) - 1)).double().add_(0.5).mul_(2.0**-53)
        draws: torch.Tensor = torch.special.ndtri(half)
        # ndtri rather than erfinv: the latter loses its last digits beyond 7 standard deviations.
        return draws.mul_((words >> 63).mul_(2).add_(1))

    def _start(self, key: bytes) -> None:
        self._key = key
        self._process = os.getpid()
        self._calls: dict[Purpose, int] = dict.fromkeys(_PURPOSES, 0)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a source of randomness cannot be copied or saved: its key would repeat the noise")
