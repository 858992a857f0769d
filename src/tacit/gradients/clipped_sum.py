"""The clipped sum of a sample, in physical chunks of bounded memory. The chunking changes speed only (F3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tacit.gradients.batches import Batch, count_records, take_records
from tacit.gradients.by_ghost import clipped_sum_by_ghost
from tacit.gradients.by_unit import clipped_sum_by_unit
from tacit.gradients.by_vmap import clipped_sum_by_vmap
from tacit.gradients.losses import Losses
from tacit.gradients.plans import Plans, plans_of
from tacit.gradients.uses import UncoveredError
from tacit.mechanisms import GaussianSumMechanism, Vectors

GradientStrategy = Literal["auto", "ghost", "vmap"]


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
    if sizes is not None:
        return ClippedSum(*clipped_sum_by_unit(losses, params, batch, sizes, mechanism, chunk))
    plans = None if strategy == "vmap" else plans_of(losses)
    total: Vectors = {}
    norms = []
    for start in range(0, count_records(batch), chunk):
        records = take_records(batch, slice(start, start + chunk))
        part, part_norms = _sum_chunk(losses, params, records, mechanism, views, plans, strategy)
        for name, value in part.items():
            total[name] = total[name].add_(value) if name in total else value.double()
        norms.append(part_norms)
    return ClippedSum(total, torch.cat(norms))


def _sum_chunk(
    losses: Losses,
    params: Mapping[str, Tensor],
    records: Batch,
    mechanism: GaussianSumMechanism,
    views: int | None,
    plans: Plans | None,
    strategy: GradientStrategy,
) -> tuple[Vectors, Tensor]:
    if plans is not None:
        try:
            return clipped_sum_by_ghost(losses, params, records, mechanism, views, plans)
        except (UncoveredError, IndexError, RuntimeError, ValueError):
            if strategy == "ghost":
                raise
    return clipped_sum_by_vmap(losses, params, records, mechanism, views)
