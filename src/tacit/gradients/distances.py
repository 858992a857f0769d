"""Distances between the gradients of pairs of records, for ``tacit.evaluation.leakage``. Private."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.gradients.computing import Computing
from tacit.isolation.apart import run_apart
from tacit.losses import Losses, Places, count_records, take_records
from tacit.randomness import Randomness, global_chance
from tacit.types import Batch

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
    """[records, entries] in float64."""
    some = take_records(batch, rows)
    chance = Randomness().record_chance(np.arange(len(rows)))
    computing = Computing(losses, params)
    found = torch.zeros(len(rows), sum(value.numel() for value in params.values()), dtype=torch.float64)

    def together(places: Places, filled: Places) -> None:
        gradients = computing.together(some, filled, len(filled), chance.take(filled))
        for place, index in enumerate(places):
            found[index] = _joined({name: g.materialise(place, place + 1)[0] for name, g in gradients.items()}, params)

    def alone(places: Places) -> None:
        for index in places:
            row = take_records(some, slice(index, index + 1))
            found[index] = _joined(computing.alone([row], [int(chance.seeds[index])]), params)

    with global_chance():
        run_apart(np.arange(len(rows)), together, alone)
    return found


def _joined(gradient: Mapping[str, Tensor], params: Mapping[str, Tensor]) -> Tensor:
    parts = [gradient.get(name, torch.zeros_like(value)).detach().flatten().double() for name, value in params.items()]
    return torch.cat(parts)
