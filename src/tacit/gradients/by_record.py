"""One record after the other: slow, right for any losses, and each record in memory of its own."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from tacit.errors import LossesError
from tacit.isolation import Watched, as_written
from tacit.losses import check_one_loss_per_record
from tacit.randomness import seed_everything
from tacit.types import Batch, Vectors


def mean_gradient(
    losses: Callable[[Batch], Tensor],
    leaves: Mapping[str, Tensor],
    rows: Sequence[Batch],
    seeds: Sequence[int],
    watch: Watched,
) -> Vectors:
    """The mean gradient of a record's rows, each computed alone, in float64."""
    total: Vectors = {}
    for row, seed in zip(rows, seeds, strict=True):
        seed_everything(seed)
        with torch.enable_grad(), as_written(), watch:
            values = losses(row)
        check_one_loss_per_record(values, 1)
        for name, value in gradient_of(values.sum(), leaves).items():
            total[name] = total[name].add_(value) if name in total else value
    return {name: value.div_(len(rows)) for name, value in total.items()}


def gradient_of(loss: Tensor, leaves: Mapping[str, Tensor]) -> Vectors:
    """By plain autograd, in float64."""
    if not loss.requires_grad:
        return {name: torch.zeros_like(leaf, dtype=torch.float64) for name, leaf in leaves.items()}
    found = torch.autograd.grad(
        loss, list(leaves.values()), allow_unused=True, materialize_grads=True, retain_graph=True
    )  # kept: losses may reuse what they have computed from parameters before
    return {name: value.to_dense().double() for name, value in zip(leaves, found, strict=True)}


def is_fault_of_a_record(error: Exception) -> bool:
    """Whether an error may be about a record's values: then the record contributes zero and the others count."""
    return not isinstance(error, LossesError | MemoryError | torch.OutOfMemoryError)
