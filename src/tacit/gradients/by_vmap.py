"""Per-record gradients of any model by ``vmap(grad)``: each record runs alone, so records cannot mix."""

from collections.abc import Callable, Mapping
from operator import itemgetter

import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.gradients.batches import copy_records, count_records, map_tensors
from tacit.losses import Batch, Losses, check_one_loss_per_record
from tacit.mechanisms import GaussianSumMechanism, Vectors

# What a single record's values can make a model raise. Anything else is not about data and is not caught.
RECORD_FAULTS = (IndexError, RuntimeError, ValueError)


def clipped_sum_by_vmap(
    losses: Losses,
    params: Mapping[str, Tensor],
    batch: Batch,
    mechanism: GaussianSumMechanism,
    views: int | None,
    faults: list[Exception],
) -> tuple[Vectors, Tensor]:
    """The clipped sum over a chunk of records, in float64, and the records' squared norms [records, vectors]."""
    gradients = per_record_gradients(losses, params, batch, views, faults)
    return clip_and_sum(gradients, mechanism)


def per_record_gradients(
    losses: Losses, params: Mapping[str, Tensor], batch: Batch, views: int | None, faults: list[Exception]
) -> Vectors:
    """Gradients with a leading dimension of records. With views, a record's loss is the mean over its views."""
    loss_of_one = _loss_of_one(losses, views)
    gradient = torch.func.vmap(torch.func.grad(loss_of_one), in_dims=(None, 0), randomness="different")
    detached = {name: value.detach() for name, value in params.items()}
    try:
        result: Vectors = gradient(detached, batch)
    except InputError:
        raise
    except RECORD_FAULTS:
        result = _record_by_record(loss_of_one, detached, batch, faults)
    return result


LossOfOne = Callable[[Mapping[str, Tensor], Batch], Tensor]


def _loss_of_one(losses: Losses, views: int | None) -> LossOfOne:
    def loss_of_one(params: Mapping[str, Tensor], record: Batch) -> Tensor:
        rows = record if views is not None else map_tensors(lambda tensor: tensor[None], record)
        values = losses(params, rows)
        check_one_loss_per_record(values, views or 1)
        return values.mean()

    return loss_of_one


def clipped_sum_alone(
    losses: Losses,
    params: Mapping[str, Tensor],
    batch: Batch,
    mechanism: GaussianSumMechanism,
    views: int | None,
    faults: list[Exception],
) -> tuple[Vectors, Tensor]:
    """For strict numerics: each record by itself, in memory of its own, so that no other one touches its last bits.

    Library kernels choose their order of operations by the size of a batch and the place in it; a gradient computed
    among others would be rounded to the grid differently when one of them is missing.
    """
    sums = mechanism.zeros(next(iter(params.values())).device)
    detached = {name: value.detach() for name, value in params.items()}
    loss_of_one, norms = _loss_of_one(losses, views), []
    for index in range(count_records(batch)):
        record = copy_records(batch, slice(index, index + 1))
        gradient = _record_by_record(loss_of_one, detached, record, faults)
        part, part_norms = clip_and_sum(gradient, mechanism)
        for name, value in part.items():
            sums[name] += value
        norms.append(part_norms)
    return sums, torch.cat(norms)


def _record_by_record(loss_of_one: LossOfOne, params: Vectors, batch: Batch, faults: list[Exception]) -> Vectors:
    """One record's fault must not stop the release (failure-modes F5): it contributes zero, the others count.

    Plain autograd, so that operations which vmap does not know (some recurrent layers) are served too.
    """
    parts: list[Vectors] = []
    for index in range(count_records(batch)):
        record = map_tensors(itemgetter(index), batch)
        try:
            parts.append(_gradient_of_one(loss_of_one, params, record))
        except RECORD_FAULTS as fault:
            faults.append(fault)
            parts.append({name: value.new_zeros((1, *value.shape)) for name, value in params.items()})
    return {name: torch.cat([part[name] for part in parts]) for name in params}


def _gradient_of_one(loss_of_one: LossOfOne, params: Vectors, record: Batch) -> Vectors:
    leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
    with torch.enable_grad():
        loss = loss_of_one(leaves, record)
    if not loss.requires_grad:
        return {name: torch.zeros_like(value)[None] for name, value in params.items()}
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return {name: gradient[None] for name, gradient in zip(leaves, found, strict=True)}


def clip_and_sum(gradients: Vectors, mechanism: GaussianSumMechanism) -> tuple[Vectors, Tensor]:
    """Clip records whose gradients are at hand and add them up, all in float64."""
    flat = {name: value.detach().reshape(len(value), -1).double() for name, value in gradients.items()}
    squared_norms = torch.stack([value.square().sum(1) for value in flat.values()], dim=1)
    factors = mechanism.factors(squared_norms)
    if mechanism.numerics == "strict":
        return _one_on_grid(gradients, factors, mechanism), squared_norms
    sums: Vectors = {}
    for column, (name, value) in enumerate(flat.items()):
        factor = factors[:, column]
        # 0 * inf is NaN: a record without a share must not enter the product at all.
        kept = torch.where((factor > 0)[:, None], value, 0.0)
        sums[name] = (factor @ kept).view(gradients[name].shape[1:])
    return {**sums, **mechanism.counts(squared_norms)}, squared_norms


def _one_on_grid(gradients: Vectors, factors: Tensor, mechanism: GaussianSumMechanism) -> Vectors:
    """The contribution of a single record or unit, in whole steps."""
    clipped = {}
    for column, (name, value) in enumerate(gradients.items()):
        if len(value) != 1:  # rounding is each record's own
            raise AssertionError(f"strict numerics take records one by one, found {len(value)}")
        factor = factors[0, column]
        clipped[name] = value[0].detach().double() * factor if factor > 0 else torch.zeros_like(value[0]).double()
    return mechanism.on_grid(clipped)
