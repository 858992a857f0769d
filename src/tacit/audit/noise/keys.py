"""Keys: does noise come twice, over processes and over sources, and is a key as large as it must be?

16-byte blocks of noise from this process and from forked ones must all differ. Keys of fresh sources must span all 256
bits, so many of them must not repeat, and every bit of a key must change what is drawn from it.
"""

import os
import signal
import warnings
from collections.abc import Callable, Iterable

import numpy as np
import torch

from tacit.randomness import Randomness

_STEPS, _COORDINATES = 100, 16
_KEY = 32  # bytes
_ATTEMPTS, _PATIENCE = 5, 5


def repeated_blocks(processes: int) -> tuple[str, ...]:
    """Fork ``processes`` children that go on with this process' source; each releases noise 100 times."""
    source = Randomness()
    blocks = [*_blocks(_release(source)), *_blocks(_release(Randomness()))]
    for _ in range(processes):
        blocks += _blocks(in_forked_child(lambda: _release(source)))
    blocks += _blocks(_release(source))
    twice = len(blocks) - len(set(blocks))
    return (f"{twice} of {len(blocks)} 16-byte blocks of noise came twice",) if twice else ()


def small_keys(sources: int) -> tuple[str, ...]:
    """What is wrong with the size of keys.

    Keys that hold fewer bits, padded, repeated or spread by linear maps, span fewer dimensions. Keys that were hashed
    from few bits span them all, but among 300,000 of them ten or so come twice if there are only 2^32.
    """
    broke = []
    keys = [Randomness()._key for _ in range(sources)]
    if (shortest := min(map(len, keys))) < _KEY:
        broke.append(f"key size: a key has {8 * shortest} bits, {8 * _KEY} are needed")
    elif (rank := _rank(int.from_bytes(key, "big") for key in keys[: 16 * _KEY])) < 8 * _KEY:
        broke.append(f"key size: {16 * _KEY} fresh keys span {rank} bits, {8 * _KEY} are needed")
    if twice := len(keys) - len(set(keys)):
        broke.append(f"key size: {twice} of {sources:,} fresh keys came twice")
    for name, draw in _DRAWS.items():
        if unused := _unused_bits(draw):
            broke.append(f"key size: {unused} of {8 * _KEY} bits of the key change nothing in {name}")
    return tuple(broke)


def _rank(vectors: Iterable[int]) -> int:
    """Over the field of two elements: how many of the vectors are no sum of others."""
    basis: dict[int, int] = {}
    for vector in vectors:
        while vector:
            top = vector.bit_length()
            if top not in basis:
                basis[top] = vector
                break
            vector ^= basis[top]
    return len(basis)


def _unused_bits(draw: Callable[[Randomness], bytes]) -> int:
    """Bits of a key that may be turned without any effect."""
    source = Randomness()
    key = source._key

    def drawn(key: bytes) -> bytes:
        source._start(key)
        return draw(source)

    right, number = drawn(key), int.from_bytes(key, "big")
    return sum(drawn((number ^ (1 << bit)).to_bytes(len(key), "big")) == right for bit in range(8 * len(key)))


def _noise(source: Randomness) -> bytes:
    out = torch.empty(2, dtype=torch.float64)
    source.add_noise([torch.zeros(2, dtype=torch.float64)], [1.0], 1.0, [out])
    return out.numpy().tobytes()


_DRAWS: dict[str, Callable[[Randomness], bytes]] = {
    "the noise": _noise,
    "normal draws": lambda source: source.normals(2).numpy().tobytes(),
    "the sampling": lambda source: source.words("sampling", 2).tobytes(),
    "the chance of records": lambda source: source.record_chance(np.arange(2)).seeds.tobytes(),
}


def _release(source: Randomness) -> bytes:
    outs = []
    for _ in range(_STEPS):
        out = torch.empty(_COORDINATES, dtype=torch.float64)
        source.add_noise([torch.zeros(_COORDINATES)], [1.0], 1.0, [out])
        outs.append(out)
    return torch.cat(outs).numpy().tobytes()


def _blocks(data: bytes) -> list[bytes]:
    return [data[start : start + 16] for start in range(0, len(data), 16)]


def in_forked_child(work: Callable[[], bytes]) -> bytes:
    """What a forked child answers. A fork beside other threads may hang through no fault of ours: then once more."""
    for _ in range(_ATTEMPTS):
        data = _fork(work)
        if data:
            return data
    raise RuntimeError("no forked process came to an end; the audit of forked processes was not made")


def _fork(work: Callable[[], bytes]) -> bytes:
    reader, writer = os.pipe()
    with warnings.catch_warnings():  # newer Pythons warn about threads; the child only ciphers and leaves
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_PATIENCE)
            os.write(writer, work())  # fits into a pipe
        finally:
            os._exit(0)
    os.close(writer)
    parts = []
    while part := os.read(reader, 1 << 16):
        parts.append(part)
    os.close(reader)
    os.waitpid(child, 0)
    return b"".join(parts)
