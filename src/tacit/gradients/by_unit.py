"""Gradients of units with several rows (users, microbatches): the mean gradient of a unit's rows is clipped once."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.gradients.batches import copy_records, take_records
from tacit.gradients.by_vmap import RECORD_FAULTS, clip_and_sum
from tacit.losses import Batch, Losses, check_one_loss_per_record
from tacit.mechanisms import GaussianSumMechanism, Vectors


def clipped_sum_by_unit(
    losses: Losses,
    params: Mapping[str, Tensor],
    batch: Batch,
    sizes: Sequence[int],
    mechanism: GaussianSumMechanism,
    chunk: int,
    faults: list[Exception],
) -> tuple[Vectors, Tensor]:
    """The clipped sum over units whose rows follow each other in the batch, ``sizes`` of them each."""
    sums = mechanism.zeros(next(iter(params.values())).device)
    norms = []
    start = 0
    for size in sizes:
        rows = copy_records(batch, slice(start, start + size))  # its place must not matter
        gradient = _mean_gradient(losses, params, rows, size, chunk, faults)
        unit_sums, unit_norms = clip_and_sum({name: g[None] for name, g in gradient.items()}, mechanism)
        for name, value in unit_sums.items():
            sums[name] += value
        norms.append(unit_norms)
        start += size
    return sums, torch.cat(norms)


def _mean_gradient(
    losses: Losses, params: Mapping[str, Tensor], rows: Batch, size: int, chunk: int, faults: list[Exception]
) -> Vectors:
    """A unit with a faulty row has no usable gradient and contributes zero (failure-modes F5)."""
    total = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in params.items()}
    try:
        for start in range(0, size, chunk):
            part = _sum_gradient(losses, params, take_records(rows, slice(start, start + chunk)))
            for name, value in part.items():
                total[name] += value.double()
    except InputError:
        raise
    except RECORD_FAULTS as fault:
        faults.append(fault)
        return {name: torch.zeros_like(value) for name, value in total.items()}
    return {name: value / size for name, value in total.items()}


def _sum_gradient(losses: Losses, params: Mapping[str, Tensor], rows: Batch) -> Vectors:
    leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
    values = losses(leaves, rows)
    check_one_loss_per_record(values, values.shape[0] if values.dim() else 0)
    gradients = torch.autograd.grad(values.sum(), list(leaves.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(leaves, gradients, strict=True))
