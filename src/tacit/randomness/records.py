"""Chance that belongs to a record: what a random layer, an augmentation or a random ``__getitem__`` draws for it.

A record's draws come from a secret word of its own, made from the run's key, the step and the record's number. They
therefore do not depend on which other records were drawn, and no seed in a user's script foretells them: a reader who
could foresee the masks of a batch could tell who was in it.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.random import mtrand

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # odd, so that seeds of views differ
Seeds = npt.NDArray[np.uint64]

_globals = threading.RLock()  # the generators of torch, numpy and random are one for all threads
_spare: list[np.random.MT19937] = []  # of numpy's, for use inside


class RecordChance:
    """The chance of the records of one step.

    Args:
        key: secret, of this step.
        seeds: a secret word for each record.
    """

    def __init__(self, key: bytes, seeds: Seeds) -> None:
        self.key, self.seeds, self.records = key, seeds, len(seeds)

    def take(self, places: npt.NDArray[np.int64]) -> "RecordChance":
        """The chance of some of the records."""
        return RecordChance(self.key, self.seeds[places])

    def spread(self, views: int) -> "RecordChance":
        """Another chance for each view of a record, where its rows are given ``views`` times in a row."""
        if views == 1:
            return self
        number = np.arange(len(self.seeds), dtype=np.uint64) % np.uint64(views)
        return RecordChance(self.key, self.seeds + number * _GOLDEN)

    def words(self, call: int, entries: int) -> npt.NDArray[np.uint32]:
        """Uniform words [records, entries] for the ``call``-th random operation of every record.

        Block b of record r is AES(key, seed_r | call | b): a function of the record alone.
        """
        blocks = -(-entries // 4)
        counters = np.empty((len(self.seeds), blocks, 2), dtype="<u8")
        counters[:, :, 0] = self.seeds[:, None]
        counters[:, :, 1] = (np.uint64(call) << np.uint64(40)) + np.arange(blocks, dtype=np.uint64)
        return encrypt(self.key, counters).view("<u4").reshape(len(self.seeds), -1)[:, :entries]


class LazyChance(RecordChance):
    """The same, made when somebody asks for it: a model without random layers never does."""

    def __init__(self, key: bytes, counter: bytes, numbers: npt.NDArray[np.int64]) -> None:
        self._made_from, self.records = (key, counter, numbers), len(numbers)

    @cached_property
    def _made(self) -> tuple[bytes, Seeds]:
        return _seeds_of(*self._made_from)

    @property
    def key(self) -> bytes:  # type: ignore[override]
        return self._made[0]

    @property
    def seeds(self) -> Seeds:  # type: ignore[override]
        return self._made[1]


def _seeds_of(key: bytes, counter: bytes, numbers: npt.NDArray[np.int64]) -> tuple[bytes, Seeds]:
    """One word for each number: block ``number`` of the key stream from ``counter`` on, whoever else is asked for."""
    blocks = np.empty((len(numbers) + 1, 2), dtype=">u8")
    blocks[:, 0] = int.from_bytes(counter[:8], "big")
    blocks[:-1, 1] = numbers
    blocks[-1, 1] = (1 << 64) - 1  # no record has this number: the key of the step
    stream = encrypt(key, blocks)
    return stream[-1].tobytes(), stream[:-1, 0].astype(np.uint64)


def encrypt(key: bytes, blocks: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Counter blocks [..., 2] of 16 bytes, each made into two words of key stream."""
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305 (counters never repeat: this is CTR)
    return np.frombuffer(cipher.update(blocks.tobytes()), dtype="<u8").reshape(blocks.shape)


@contextmanager
def global_chance(device: torch.device | None = None) -> Iterator[None]:
    """The generators of torch, numpy and random get their own state back after it; other threads wait for them.

    Only the second of a pair of normals that numpy has drawn and kept is lost.

    Example:
        >>> before = torch.get_rng_state()
        >>> with global_chance():
        ...     seed_everything(7)
        ...     draw = torch.rand(3)
        >>> bool((torch.get_rng_state() == before).all())
        True
    """
    of_device = None if device is None or device.type != "cuda" else torch.cuda.get_rng_state(device)
    with _globals:
        of_torch, of_python = torch.default_generator.get_state(), random.getstate()
        of_numpy, ours = mtrand.get_bit_generator(), _spare.pop() if _spare else np.random.MT19937(0)
        mtrand.set_bit_generator(ours)  # laid aside, not copied, which takes as long as a small model's gradients
        try:
            yield
        finally:
            torch.default_generator.set_state(of_torch)
            random.setstate(of_python)
            mtrand.set_bit_generator(of_numpy)
            _spare.append(ours)
            if of_device is not None and device is not None:
                torch.cuda.set_rng_state(of_device, device)


def seed_everything(seed: int) -> None:
    """Start the global generators from a secret word, inside :func:`global_chance` or a process of our own."""
    torch.default_generator.manual_seed(seed & ((1 << 63) - 1))
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed(seed & ((1 << 63) - 1))
    random.seed(seed)
    np.random.seed(np.frombuffer(seed.to_bytes(8, "little"), dtype="<u4").astype(np.uint32))
