"""The clipped sum of a sample, in physical chunks of bounded memory. The chunking changes speed only (F3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tacit.gradients.batches import count_records, take_records
from tacit.gradients.by_unit import clipped_sum_by_unit
from tacit.gradients.by_vmap import clipped_sum_by_vmap
from tacit.losses import Batch, Losses
from tacit.mechanisms import GaussianSumMechanism, Vectors

GradientStrategy = Literal["vmap"]

_MANY = 8


@dataclass(frozen=True, slots=True)
class ClippedSum:
    """Private until noise is added: the sums in float64 and the squared norms [records, vectors] of the records."""

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
) -> ClippedSum:
    """Clip each record (or unit, given ``sizes`` of rows) and add up.

    Args:
        batch: the sample, or None for an empty one, whose sum is zero like that of no records.
        chunk: how many records are processed at once.
        views: with a number, batch tensors are [records, views, ...] and a record's loss is the mean over its views.
    """
    device = next(iter(params.values())).device
    if batch is None:
        return ClippedSum(mechanism.zeros(device), torch.zeros(0, len(mechanism.shapes), dtype=torch.float64))
    faults: list[Exception] = []
    if sizes is not None:
        result = ClippedSum(*clipped_sum_by_unit(losses, params, batch, sizes, mechanism, chunk, faults))
    else:
        result = _by_chunks(losses, params, batch, mechanism, chunk, views, faults)
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
) -> ClippedSum:
    sums = mechanism.zeros(next(iter(params.values())).device)
    norms = []
    for start in range(0, count_records(batch), chunk):
        records = take_records(batch, slice(start, start + chunk))
        part, part_norms = clipped_sum_by_vmap(losses, params, records, mechanism, views, faults)
        for name, value in part.items():
            sums[name] += value
        norms.append(part_norms)
    return ClippedSum(sums, torch.cat(norms))


def _refuse_if_all_failed(faults: list[Exception], units: int) -> None:
    """A fault of one record is its secret and stays silent. That every one of many fails is an error in the program.

    The refusal goes to the data holder alone and is no release; one record more or less does not decide it unless all
    others are faulty too.
    """
    if len(faults) == units >= _MANY:
        raise faults[0]
