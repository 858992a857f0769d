"""The clipped sum of a sample, in physical chunks of bounded memory. The chunking changes speed only (F3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.gradients.batches import copy_records, count_records, map_tensors
from tacit.gradients.by_ghost import clipped_sum_by_ghost
from tacit.gradients.by_unit import clipped_sum_by_unit
from tacit.gradients.by_vmap import RECORD_FAULTS, clipped_sum_alone, clipped_sum_by_vmap
from tacit.gradients.plans import plans_of
from tacit.gradients.uses import UncoveredError
from tacit.losses import Batch, Losses
from tacit.mechanisms import GaussianSumMechanism, Vectors

GradientStrategy = Literal["auto", "ghost", "vmap"]

_MANY = 8


@dataclass(frozen=True, slots=True)
class ClippedSum:
    """Private until noise is added: the sums, and the squared norms [records, vectors] of the records.

    A sum over one chunk is in the precision in which it was formed, over several in float64; strict ones are whole.
    """

    sums: Vectors
    squared_norms: Tensor


def clipped_sum(
    losses: Losses,
    params: Mapping[str, Tensor],
    batch: Batch | None,
    mechanism: GaussianSumMechanism,
    *,
    chunk: int,
    sizes: Sequence[int] | None = None,
    views: int | None = None,
    strategy: GradientStrategy = "auto",
) -> ClippedSum:
    """Clip each record (or unit, given ``sizes`` of rows) and add up.

    Args:
        batch: the sample, or None for an empty one, whose sum is zero like that of no records.
        chunk: how many records are processed at once.
        views: with a number, batch tensors are [records, views, ...] and a record's loss is the mean over its views.
        strategy: "auto" takes the fast path where it is sure to be right and vmap elsewhere; "ghost" raises instead,
            "vmap" never tries. The result is the same.
    """
    device = next(iter(params.values())).device
    if batch is None:
        return ClippedSum(mechanism.zeros(device), torch.zeros(0, len(mechanism.shapes), dtype=torch.float64))
    faults: list[Exception] = []
    strict = mechanism.numerics == "strict"
    if strict and sizes is None:
        result = ClippedSum(*clipped_sum_alone(losses, params, batch, mechanism, views, faults))
    elif sizes is not None and not strict and strategy != "vmap" and 0 < max(sizes, default=0) == min(sizes) <= chunk:
        # Units of one size: the mean over a unit's rows is the mean over a record's views.
        rows = sizes[0]
        grouped = map_tensors(lambda tensor: tensor.reshape(-1, rows, *tensor.shape[1:]), batch)
        result = _by_chunks(losses, params, grouped, mechanism, chunk // rows, rows, faults, strategy)
    elif sizes is not None:
        result = ClippedSum(*clipped_sum_by_unit(losses, params, batch, sizes, mechanism, chunk, faults))
    else:
        result = _by_chunks(losses, params, batch, mechanism, chunk, views, faults, strategy)
    _refuse_if_all_failed(faults, len(result.squared_norms))
    return result


def _by_chunks(
    losses: Losses,
    params: Mapping[str, Tensor],
    batch: Batch,
    mechanism: GaussianSumMechanism,
    chunk: int,
    views: int | None,
    faults: list[Exception],
    strategy: GradientStrategy,
) -> ClippedSum:
    total: Vectors = {}
    norms = []
    count = count_records(batch)
    for start in range(0, count, chunk):
        records = batch if count <= chunk else copy_records(batch, slice(start, start + chunk))
        part, part_norms = _sum_chunk(losses, params, records, mechanism, views, faults, strategy)
        for name, value in part.items():
            total[name] = total[name].double().add_(value) if name in total else value
        norms.append(part_norms)
    return ClippedSum(total, torch.cat(norms) if len(norms) > 1 else norms[0])


def _sum_chunk(
    losses: Losses,
    params: Mapping[str, Tensor],
    records: Batch,
    mechanism: GaussianSumMechanism,
    views: int | None,
    faults: list[Exception],
    strategy: GradientStrategy,
) -> tuple[Vectors, Tensor]:
    if strategy != "vmap":
        try:
            return clipped_sum_by_ghost(losses, params, records, mechanism, views, plans_of(losses))
        except InputError:
            raise
        except (UncoveredError, *RECORD_FAULTS):
            if strategy == "ghost":
                raise
    return clipped_sum_by_vmap(losses, params, records, mechanism, views, faults)


def _refuse_if_all_failed(faults: list[Exception], units: int) -> None:
    """A fault of one record is its secret and stays silent. That every one of many fails is an error in the program.

    The refusal goes to the data holder alone and is no release; one record more or less does not decide it unless all
    others are faulty too.
    """
    if len(faults) == units >= _MANY:
        raise faults[0]
