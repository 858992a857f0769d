"""Distances between the gradients of pairs of records, for the leakage check of paper B, section 5.2. Private."""

from collections.abc import Mapping

import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.gradients.batches import count_records, take_records
from tacit.gradients.by_vmap import per_record_gradients
from tacit.losses import Batch, Losses

_CHUNK = 64


def gradient_distances(
    losses: Losses, params: Mapping[str, Tensor], batch: Batch, *, pairs: int = 1000, seed: int = 0
) -> Tensor:
    """|g_i - g_j| of random disjoint pairs of records, so that the distances are independent of each other.

    Args:
        losses: one loss per record, as ``method.losses`` or ``ModelLosses(model, losses)``.
        pairs: at most so many, and no more than half of the records.
        seed: of the choice of pairs.
    """
    records = count_records(batch)
    if records < 4:
        raise InputError(f"distances need at least 4 records, found {records}")
    order = torch.randperm(records, generator=torch.Generator().manual_seed(seed))
    number = min(pairs, records // 2)
    left, right = order[:number], order[number : 2 * number]
    found = []
    for start in range(0, number, _CHUNK):
        one, other = (_gradients(losses, params, batch, rows[start : start + _CHUNK]) for rows in (left, right))
        found.append((one - other).norm(dim=1))
    return torch.cat(found)


def _gradients(losses: Losses, params: Mapping[str, Tensor], batch: Batch, rows: Tensor) -> Tensor:
    gradients = per_record_gradients(losses, params, take_records(batch, rows), None, [])
    return torch.cat([value.flatten(1).double() for value in gradients.values()], dim=1)
