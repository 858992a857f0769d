"""Per-record gradients of any model by ``vmap(grad)``: each record runs alone, so records cannot mix."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from tacit.gradients.batches import Batch, count_records, map_tensors, take_records
from tacit.gradients.losses import Losses, check_one_loss_per_record
from tacit.mechanisms import GaussianSumMechanism, Vectors


def clipped_sum_by_vmap(
    losses: Losses, params: Mapping[str, Tensor], batch: Batch, mechanism: GaussianSumMechanism, views: int | None
) -> tuple[Vectors, Tensor]:
    """The clipped sum over a chunk of records, in float64, and the records' squared norms [records, vectors]."""
    gradients = per_record_gradients(losses, params, batch, views)
    return clip_and_sum(gradients, mechanism)


def per_record_gradients(losses: Losses, params: Mapping[str, Tensor], batch: Batch, views: int | None) -> Vectors:
    """Gradients with a leading dimension of records. With views, a record's loss is the mean over its views."""

    def loss_of_one(params: Mapping[str, Tensor], record: Batch) -> Tensor:
        rows = record if views is not None else map_tensors(lambda tensor: tensor[None], record)
        values = losses(params, rows)
        check_one_loss_per_record(values, views or 1)
        return values.mean()

    gradient = torch.func.vmap(torch.func.grad(loss_of_one), in_dims=(None, 0), randomness="different")
    detached = {name: value.detach() for name, value in params.items()}
    try:
        result: Vectors = gradient(detached, batch)
    except (IndexError, RuntimeError, ValueError) as error:
        result = _record_by_record(loss_of_one, detached, batch, error)
    return result


def _record_by_record(
    loss_of_one: Callable[[Mapping[str, Tensor], Batch], Tensor], params: Vectors, batch: Batch, error: Exception
) -> Vectors:
    """One record's fault must not stop the release (failure-modes F5): it contributes zero, the others count.

    Plain autograd, so that operations which vmap does not know (recurrent layers) are served too. A fault of every record is no private fact about one of them but an error in the model, the losses or the data's
    type: it is raised, to the data holder alone.
    """
    records = count_records(batch)
    parts: list[Vectors | None] = []
    for record in range(records):
        try:
            parts.append(_gradient_of_one(loss_of_one, params, map_tensors(lambda t, i=record: t[i], batch)))  # type: ignore[misc]
        except (IndexError, RuntimeError, ValueError):
            parts.append(None)
    if not any(parts):
        raise error
    blank = {name: value.new_zeros((1, *value.shape)) for name, value in params.items()}
    return {name: torch.cat([(part or blank)[name] for part in parts]) for name in params}


def _gradient_of_one(
    loss_of_one: Callable[[Mapping[str, Tensor], Batch], Tensor], params: Vectors, record: Batch
) -> Vectors:
    leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
    with torch.enable_grad():
        loss = loss_of_one(leaves, record)
    if not loss.requires_grad:
        return {name: torch.zeros_like(value)[None] for name, value in params.items()}
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return {name: gradient[None] for name, gradient in zip(leaves, found, strict=True)}


def clip_and_sum(gradients: Vectors, mechanism: GaussianSumMechanism) -> tuple[Vectors, Tensor]:
    """Clip records whose gradients are at hand and add them up, all in float64."""
    flat = {name: value.detach().flatten(1).double() for name, value in gradients.items()}
    squared_norms = torch.stack([value.square().sum(1) for value in flat.values()], dim=1)
    factors = mechanism.factors(squared_norms)
    sums: Vectors = {}
    for column, (name, value) in enumerate(flat.items()):
        factor = factors[:, column]
        # 0 * inf is NaN: a record without a share must not enter the product at all.
        kept = torch.where((factor > 0)[:, None], value, 0.0)
        sums[name] = (factor @ kept).view(gradients[name].shape[1:])
    return {**sums, **mechanism.counts(squared_norms)}, squared_norms
