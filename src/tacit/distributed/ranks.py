"""The ranks of a ``torchrun`` job as one value: who decides, who computes what, and how all of them hear of a failure.

Rank 0 alone draws samples, adds noise and writes the ledger; what it draws is told to the others as row numbers, so
that no key ever leaves a process. Drawn units are dealt out in blocks whose size does not depend on the number of
ranks, and block sums are added in the order of the blocks: any number of ranks gives the same bits. Everything that is
exchanged has a size that all ranks know, also when a rank has nothing to do.
"""

import atexit
import json
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from tacit.errors import BudgetError, InputError, LedgerError, RefusedError, TacitError
from tacit.types import Indices, Vectors

if dist.is_available() and not dist.is_initialized():
    # Imported while a world is up, the default arguments of its functions keep that world, and its threads, to the end.
    import torch.distributed.nn.functional

Result = TypeVar("Result")

_ERRORS: dict[str, type[TacitError]] = {
    kind.__name__: kind for kind in (TacitError, InputError, RefusedError, LedgerError, BudgetError)
}


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among ``size``; alone, every method is what a single process would do anyway.

    Example:
        >>> import numpy as np
        >>> Ranks(1, 2).part(np.arange(10), block=2)
        array([2, 3, 6, 7])
    """

    rank: int = 0
    size: int = 1

    @property
    def group(self) -> Any:
        """The group through which ranks speak, looked up at each use: to keep it would keep its threads alive."""
        return _group()

    @property
    def first(self) -> bool:
        """Whether this is the rank that decides and writes."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        return self.size == 1

    def owners(self, units: int, block: int) -> Indices:
        """Which rank works on each block: in turn."""
        return np.asarray(np.arange(-(-units // block)) % self.size)

    def part(self, units: Indices, block: int) -> Indices:
        """The units of this rank."""
        if self.alone:
            return units
        here = self.owners(len(units), block)[np.arange(len(units)) // block] == self.rank
        return np.asarray(units[here])

    def same(self, numbers: Indices | None) -> Indices:
        """Rank 0's whole numbers, on every rank."""
        if self.alone:
            assert numbers is not None
            return numbers
        count = self._tell(torch.tensor([0 if numbers is None else len(numbers)]))
        found = torch.zeros(int(count), dtype=torch.int64) if numbers is None else torch.from_numpy(numbers).clone()
        rows: Indices = self._tell(found).numpy() if len(found) else found.numpy()
        return rows

    def from_first(self, value: Any = None) -> Any:
        """Rank 0's JSON value, on every rank."""
        return value if self.alone else self._from(0, value)

    def together(self, action: Callable[[], Result]) -> Result:
        """Do something on every rank; if it fails on any, it fails on all, and nobody waits for one who is gone."""
        if self.alone:
            return action()
        error: Exception | None = None
        try:
            result = action()
        except Exception as caught:  # told to the others, then raised again
            error = caught
        self._raise_any(error)
        return result

    def _raise_any(self, error: Exception | None) -> None:
        failed = torch.tensor([self.size if error is None else self.rank])
        dist.all_reduce(failed, dist.ReduceOp.MIN, group=self.group)
        culprit = int(failed)
        if culprit == self.size:
            return
        said = self._from(culprit, None if error is None else {"kind": type(error).__name__, "text": str(error)})
        if error is not None:
            raise error
        raise _ERRORS.get(said["kind"], TacitError)(f"rank {culprit} stopped: {said['text']}")

    def _from(self, source: int, value: Any) -> Any:
        text = json.dumps(value).encode() if self.rank == source else b""
        length = torch.tensor([len(text)])
        dist.broadcast(length, source, group=self.group)
        data = torch.zeros(int(length), dtype=torch.uint8)
        if self.rank == source:
            data = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        dist.broadcast(data, source, group=self.group)
        return json.loads(data.numpy().tobytes())

    def share(self, tensors: Sequence[Tensor]) -> None:
        """Give every rank rank 0's values, in place."""
        if self.alone:
            return
        with torch.no_grad():
            for tensor in tensors:
                copy = tensor.detach().cpu().clone().contiguous()
                dist.broadcast(copy, 0, group=self.group)
                tensor.copy_(copy)

    def added(self, parts: Iterator[Vectors], owners: Indices, zeros: Vectors) -> Vectors:
        """The sum of all ranks' block sums in the order of the blocks, on rank 0; zeros on the others.

        ``parts`` yields this rank's blocks; all of them are formed, and found good, before anything is sent.
        """
        mine = self.together(lambda: list(parts))
        total: Vectors = {}
        for owner in owners.tolist():
            part = self._to_first(mine, owner, zeros)
            if part is not None:
                for name, value in part.items():
                    total[name] = total[name] + value if name in total else value
        return total or zeros

    def _to_first(self, mine: list[Vectors], owner: int, zeros: Mapping[str, Tensor]) -> Vectors | None:
        if owner == self.rank:
            values = {name: value.to(zeros[name].dtype) for name, value in mine.pop(0).items()}
            if self.first:
                return values
            for value in values.values():
                dist.send(value.detach().cpu().contiguous(), 0, group=self.group)
        elif self.first:
            received = {name: torch.empty_like(value, device="cpu") for name, value in zeros.items()}
            for value in received.values():
                dist.recv(value, owner, group=self.group)
            return {name: value.to(zeros[name].device) for name, value in received.items()}
        return None

    def _tell(self, value: Tensor) -> Tensor:
        dist.broadcast(value, 0, group=self.group)
        return value


def current_ranks() -> Ranks:
    """The ranks of this job; a single one unless ``init_process_group`` was called."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return Ranks()
    _group()  # made by all ranks together, at a point that all of them pass
    return Ranks(dist.get_rank(), dist.get_world_size())


# One gloo group per process: what is exchanged lies in main memory, whatever the job's own backend is. PyTorch owns it,
# and it is held weakly: a reference of ours would outlive destroy_process_group. Its threads would not be joined, and
# one that drops its last work while the interpreter goes down aborts the process ("terminate called without an active
# exception").
_ours: "weakref.ref[Any] | None" = None


def _group() -> Any:
    global _ours
    found = None if _ours is None else _ours()
    if found is None or not _is_alive(found):
        if _ours is None:
            atexit.register(_leave)
        found = dist.new_group(backend="gloo")
        _ours = weakref.ref(found)
    return found


def _is_alive(group: Any) -> bool:
    """Whether PyTorch still knows the group; it ends with its world."""
    try:
        return bool(dist.get_process_group_ranks(group))
    except KeyError:
        return False


def _leave() -> None:
    """End the groups before the interpreter does, where the program has not done so itself."""
    if dist.is_initialized():
        dist.destroy_process_group()
