"""The ranks of a ``torchrun`` job as one value: who owns which units, and how all of them hear of a failure.

Every unit of privacy belongs to one rank, which draws it and computes it; nobody else is told whether it was drawn, and
no key ever leaves a process. Rank 0 alone writes the ledger. Everything that is exchanged has a size that all ranks
know, also when a rank has nothing to do.
"""

import json
import sys
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from tacit.distributed.group import group, speaking
from tacit.errors import BudgetError, InputError, LedgerError, RefusedError, TacitError
from tacit.types import Indices

Result = TypeVar("Result")

_ERRORS: dict[str, type[TacitError]] = {
    kind.__name__: kind for kind in (TacitError, InputError, RefusedError, LedgerError, BudgetError)
}


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among ``size``; alone, every method is what a single process would do anyway.

    Units belong to ranks in turn, ``block`` of them at a time.

    Example:
        >>> ranks = Ranks(1, 2)
        >>> ranks.owned(10, block=2)
        4
        >>> ranks.units(np.arange(4), block=2)
        array([2, 3, 6, 7])
    """

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        return self.size == 1

    def owned(self, units: int, block: int = 1) -> int:
        """How many of so many units are this rank's."""
        blocks, rest = divmod(units, block)
        whole, odd = divmod(blocks, self.size)
        return (whole + (self.rank < odd)) * block + (rest if self.rank == odd else 0)

    def units(self, places: Indices, block: int = 1) -> Indices:
        """The units at these places among the rank's own."""
        return np.asarray((places // block * self.size + self.rank) * block + places % block)

    def dealt(self, units: Indices | None, block: int = 1) -> Indices:
        """Of rank 0's units those that this rank owns. It is told no others."""
        if self.alone:
            assert units is not None
            return units
        if not self.first:
            with speaking() as ours:
                count = torch.zeros(1, dtype=torch.int64)
                dist.recv(count, 0, group=ours)
                found = torch.zeros(int(count), dtype=torch.int64)
                dist.recv(found, 0, group=ours)
            return np.asarray(found.numpy())
        assert units is not None
        owners = units // block % self.size
        with speaking() as ours:
            for rank in range(1, self.size):
                theirs = torch.from_numpy(units[owners == rank])
                dist.send(torch.tensor([len(theirs)]), rank, group=ours)
                dist.send(theirs, rank, group=ours)
        return np.asarray(units[owners == 0])

    def from_first(self, value: Any = None) -> Any:
        """Rank 0's JSON value, on every rank."""
        return value if self.alone else self._from(0, value)

    def most(self, number: int) -> int:
        """The largest of all ranks' numbers."""
        if self.alone:
            return number
        found = torch.tensor([number])
        with speaking() as ours:
            dist.all_reduce(found, dist.ReduceOp.MAX, group=ours)
        return int(found)

    def even_share(self, rows: int, most: int) -> int:
        """How many of this rank's rows to compute at once, so that all ranks need as many passes as the busiest one."""
        passes = max(1, self.most(-(-rows // most)))
        return max(1, -(-rows // passes))

    def together(self, action: Callable[[], Result]) -> Result:
        """Do something on every rank; if it fails on any, it fails on all, and nobody waits for one who is gone."""
        if self.alone:
            return action()
        error: Exception | None = None
        try:
            result = action()
        except Exception as caught:  # told to the others, then raised again
            error = caught
        self.raise_any(error)
        return result

    def raise_any(self, error: Exception | None) -> None:
        """Raise, on every rank, what went wrong on one."""
        culprit = self.size - self.most(0 if error is None else self.size - self.rank)
        if culprit == self.size:
            return
        said = self._from(culprit, None if error is None else {"kind": type(error).__name__, "text": str(error)})
        if error is not None:
            raise error
        raise _ERRORS.get(said["kind"], TacitError)(f"rank {culprit} stopped: {said['text']}")

    def _from(self, source: int, value: Any) -> Any:
        text = json.dumps(value).encode() if self.rank == source else b""
        length = torch.tensor([len(text)])
        with speaking() as ours:
            dist.broadcast(length, source, group=ours)
            data = torch.zeros(int(length), dtype=torch.uint8)
            if self.rank == source:
                data = torch.frombuffer(bytearray(text), dtype=torch.uint8)
            dist.broadcast(data, source, group=ours)
        return json.loads(data.numpy().tobytes())

    def share(self, tensors: Sequence[Tensor]) -> None:
        """Give every rank rank 0's values, in place, if any of them has others."""
        if self.alone or self.most(self._differs(tensors)) == 0:
            return
        with torch.no_grad(), speaking() as ours:
            for tensor in tensors:
                copy = tensor.detach().cpu().clone().contiguous()
                dist.broadcast(copy, 0, group=ours)
                tensor.copy_(copy)

    def _differs(self, tensors: Sequence[Tensor]) -> int:
        """Whether this rank's values are not rank 0's, to a fingerprint."""
        mine = _fingerprint(tensors)
        theirs = mine.clone()
        with speaking() as ours:
            dist.broadcast(theirs, 0, group=ours)
        return int(not torch.equal(mine, theirs))


def current_ranks() -> Ranks:
    """The ranks of this job; a single one unless ``init_process_group`` was called."""
    if not in_a_job() or dist.get_world_size() == 1:
        return Ranks()
    group()  # made by all ranks together, at a point that all of them pass
    return Ranks(dist.get_rank(), dist.get_world_size())


def in_a_job() -> bool:
    """Whether this process was started as one of a job, be it the only one."""
    return dist.is_available() and dist.is_initialized()


def is_sharded(values: Iterable[Any]) -> bool:
    """Whether any of these is a shard. Who has none has not loaded what makes them, which takes a second."""
    made_by = sys.modules.get("torch.distributed.tensor")
    return made_by is not None and any(isinstance(value, made_by.DTensor) for value in values)


def _fingerprint(tensors: Sequence[Tensor]) -> Tensor:
    """A checksum of each tensor's bytes: for ranks that came apart by chance, not by intent."""
    copies = (tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy() for tensor in tensors)
    return torch.tensor([zlib.crc32(copy.data) for copy in copies])
