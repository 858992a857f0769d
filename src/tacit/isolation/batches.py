"""A batch is a tensor, or a tuple, list or mapping of batches; its first dimension counts records."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.types import Batch


@dataclass(frozen=True, slots=True)
class RecordGroup:
    """Records of one shape, stacked, and their places among the records of the sample.

    Records of different shapes (sentences of different lengths) are computed in groups of one shape: to pad them to a
    common one would let the longest record change what happens to the others.
    """

    batch: "Batch"
    places: npt.NDArray[np.int64]


def map_tensors(function: Callable[[Tensor], Tensor], batch: Batch) -> Batch:
    """The same tree with the function applied to every tensor."""
    match batch:
        case Tensor():
            return function(batch)
        case tuple() if hasattr(batch, "_fields"):
            return type(batch)(*(map_tensors(function, part) for part in batch))
        case tuple() | list():
            return type(batch)([map_tensors(function, part) for part in batch])
        case Mapping():
            return {name: map_tensors(function, part) for name, part in batch.items()}
        case _:
            raise InputError(f"a batch holds tensors, tuples, lists and mappings of them; found {type(batch).__name__}")


def tensors_of(batch: Batch) -> list[Tensor]:
    """All tensors of the tree, in order."""
    found: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(keep, batch)
    return found


def count_records(batch: Batch) -> int:
    """The common first dimension of all tensors of the batch."""
    if any(tensor.is_nested for tensor in tensors_of(batch)):
        raise InputError("nested tensors have no rows that could be drawn; give a data set whose items are the records")
    sizes = {tensor.shape[0] if tensor.dim() else None for tensor in tensors_of(batch)}
    if len(sizes) != 1 or None in sizes:
        raise InputError(f"all tensors of a batch need as many rows as there are records; found {sizes}")
    return int(sizes.pop() or 0)


def take_records(batch: Batch, records: slice | Tensor | int) -> Batch:
    """Some records of a batch."""
    if isinstance(records, Tensor):  # several times as fast as tensor[records]
        return map_tensors(lambda tensor: tensor.index_select(0, records.to(tensor.device)), batch)
    return map_tensors(lambda tensor: tensor[records], batch)


def copy_records(batch: Batch, records: slice) -> Batch:
    """Some records in memory of their own: kernels round differently where a tensor is aligned differently."""
    return map_tensors(lambda tensor: tensor[records].clone(), batch)


def stack_views(views: list[Batch]) -> Batch:
    """Several views of the same records as one batch of shape [records, views, ...]."""
    flat = [tensors_of(view) for view in views]
    stacked = iter([torch.stack(parts, dim=1) for parts in zip(*flat, strict=True)])
    return map_tensors(lambda _: next(stacked), views[0])


def signature(batch: Batch) -> object:
    """What records must agree in to be stacked: the tree, and the type and shape of each tensor behind its rows."""
    match batch:
        case Tensor():
            return (batch.dtype, batch.device, tuple(batch.shape[1:]))
        case tuple() | list():
            return (type(batch), *map(signature, batch))
        case Mapping():
            return tuple((name, signature(part)) for name, part in batch.items())
        case _:
            raise InputError(f"a batch holds tensors, tuples, lists and mappings of them; found {type(batch).__name__}")


def join(batches: Sequence[Batch]) -> Batch:
    """Batches of one signature as one batch, in memory of its own."""
    flat = [tensors_of(batch) for batch in batches]
    joined = iter([torch.cat(parts) for parts in zip(*flat, strict=True)])
    return map_tensors(lambda _: next(joined), batches[0])
