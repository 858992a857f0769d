"""A model whose parameters are sharded over the ranks by FSDP2 (``fully_shard``): each is whole only while it is used.

Every pass over some records gathers one module after the other, forward and back (:mod:`.gathers`), and its layers'
clipped sums are scattered into shards as soon as they are formed; those of a small model at the end of the step. A rank
adds the noise of its own shards from its own key.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate, Shard

from tacit.distributed.adding import sums_of_parts
from tacit.distributed.gathers import Gathers
from tacit.distributed.group import patience
from tacit.distributed.meetings import GATHER, LOOK, REDUCE, ExchangeError, Meetings, exchanging
from tacit.distributed.ranks import Ranks
from tacit.distributed.whole_sums import as_floats, whole
from tacit.losses import ModelLosses, UserLosses
from tacit.mechanisms import GaussianSumMechanism
from tacit.randomness import Randomness
from tacit.types import Batch, Vectors

Result = TypeVar("Result")
_TOLD_AT_ONCE = 16 * 2**20  # bytes of sums: fewer and larger exchanges, in memory that is next to nothing


class ShardedLosses(ModelLosses):
    """The losses of a model whose parameters lie in shards; every call of them is a meeting of all ranks."""

    def __init__(self, model: nn.Module, losses: UserLosses, ranks: Ranks) -> None:
        super().__init__(model, losses)
        self.meeting = ShardedSums(model, self.params, ranks)

    def owns(self, params: Mapping[str, Tensor], held: Mapping[str, Tensor] | None = None) -> bool:
        """Whole or in shards, they are the model's own tensors."""
        return True

    def __call__(self, params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return self.meeting.gather(lambda: self.user_losses(self.model, batch))


class ShardedSums:
    """Clipped sums in shards: this rank's part of every parameter's."""

    def __init__(self, model: nn.Module, params: Mapping[str, Tensor], ranks: Ranks) -> None:
        self._params = params
        _wait_no_longer(params)
        self._gathers = Gathers(model, params)
        self._meetings = Meetings(ranks, self._gathers.take_part, partial(self._reduce, lambda name: None))
        self._sums: Vectors = {}
        self._unsent: Vectors = {}  # of a small model: this rank's own sums, whole
        self._bounds: Mapping[str, float] | None = None
        self.whole = self._gathers.whole

    @contextmanager
    def step(self, mechanism: GaussianSumMechanism, *, deterministic: bool = False) -> Iterator[None]:
        """All passes of one step; afterwards ``shards`` holds the sums. An error on one rank is raised on all."""
        self._sums, self._unsent = {}, {}
        self._bounds = mechanism.bound_by_name() if deterministic else None
        try:
            with self._gathers.step():
                try:
                    yield
                except Exception as error:
                    self._meetings.ended(error)
                    raise
                self._meetings.ended(None)
            if self._gathers.is_small:
                with exchanging():
                    self._reduce(lambda name: self._unsent.pop(name, None))
        except ExchangeError as failed:
            raise failed.error from failed.error.__cause__

    def look(self, compute: Callable[[], Result]) -> Result:
        """A pass of the losses that does not go back."""
        return self.gather(compute, LOOK)

    def gather(self, compute: Callable[[], Result], kind: int = GATHER) -> Result:
        """One pass of the losses, in which modules are whole when they are used."""
        if self._gathers.is_open:
            return compute()
        one_pass = partial(self._gathers.one_pass, compute, kind)
        return one_pass() if self._gathers.is_small else self._meetings.gather(one_pass, kind)

    def add(self, value: Callable[[str], Tensor | None]) -> None:
        """Add the sums of one pass, formed one after the other; None for a parameter that was not used."""
        if not self._gathers.is_small:
            self._meetings.until(REDUCE)
            with exchanging():
                self._reduce(lambda name: self._exact(name, value(name)))
            return
        for name in self._params:
            found = self._exact(name, value(name))
            if found is not None:
                self._unsent[name] = self._unsent[name].add_(found) if name in self._unsent else found

    def _exact(self, name: str, value: Tensor | None) -> Tensor | None:
        """As it is added up: in float64, or in whole numbers where all bits are to be the same."""
        if value is None:
            return None
        return value.double() if self._bounds is None else whole(value, self._bounds[name])

    def _reduce(self, value: Callable[[str], Tensor | None]) -> None:
        waiting: dict[str, Tensor] = {}
        for name, parameter in self._params.items():
            if waiting and not _lies_like(parameter, self._params[next(iter(waiting))]):
                self._scatter(waiting)
            found = value(name)
            if found is None:
                kind = torch.float64 if self._bounds is None else torch.int64
                found = torch.zeros(parameter.shape, dtype=kind, device=parameter.device)
            waiting[name] = found
            if sum(one.nbytes for one in waiting.values()) >= _TOLD_AT_ONCE:
                self._scatter(waiting)
        self._scatter(waiting)

    def _scatter(self, waiting: dict[str, Tensor]) -> None:
        """Add the shards of some sums over all ranks to those of this rank, in one exchange."""
        if not waiting:
            return
        like = self._params[next(iter(waiting))]
        assert isinstance(like, DTensor)
        for name, local in zip(waiting, _scattered(list(waiting.values()), like), strict=True):
            self._sums[name] = self._sums[name].add_(local) if name in self._sums else local
        waiting.clear()

    def release(self, mechanism: GaussianSumMechanism, denominator: float, randomness: Randomness) -> dict[str, Tensor]:
        """The noisy mean as shards of this rank, each with noise of its own."""
        like = {name: _shard_of(parameter) for name, parameter in self._params.items()}
        nothing = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in like.items()}
        sums, self._sums = self._sums or nothing, {}  # of an empty sample noise is released all the same
        if self._bounds is not None:
            sums = as_floats(mechanism, sums)
        released = mechanism.release(sums, denominator, randomness, like=like)
        return {name: self._as_shard(name, value) for name, value in released.items()}

    def _as_shard(self, name: str, value: Tensor) -> Tensor:
        parameter = self._params[name]
        assert isinstance(parameter, DTensor)
        mesh = parameter.device_mesh
        for dim, placement in enumerate(parameter.placements):  # replicas of a shard take the noise of the first
            if isinstance(placement, Replicate) and mesh.size(dim) > 1:
                group = mesh.get_group(dim)
                dist.broadcast(value, dist.get_global_rank(group, 0), group=group)
        return DTensor.from_local(
            value, mesh, parameter.placements, run_check=False, shape=parameter.shape, stride=parameter.stride()
        )


def _wait_no_longer(params: Mapping[str, Tensor]) -> None:
    """The groups of the mesh are as patient as ours: by default they would wait half an hour for a silent rank."""
    meshes = {parameter.device_mesh for parameter in params.values() if isinstance(parameter, DTensor)}
    for one in {group for mesh in meshes for group in mesh.get_all_groups()}:
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=patience()), one)


def _lies_like(one: Tensor, other: Tensor) -> bool:
    """Whether the same ranks hold shards of both."""
    assert isinstance(one, DTensor)
    assert isinstance(other, DTensor)
    return one.device_mesh == other.device_mesh and one.placements == other.placements


def _scattered(values: list[Tensor], like: DTensor) -> list[Tensor]:
    """The sums over all ranks, of which each gets the shards that it holds of the parameters."""
    mesh = like.device_mesh
    for dim in sorted(range(mesh.ndim), key=lambda dim: isinstance(like.placements[dim], Replicate)):
        if isinstance(like.placements[dim], Shard):
            values = sums_of_parts(values, mesh.get_group(dim))
        else:
            for value in values:
                dist.all_reduce(value, group=mesh.get_group(dim))
    return values


def _shard_of(parameter: Tensor) -> Tensor:
    assert isinstance(parameter, DTensor)
    return parameter.to_local().detach()
