"""Clipped gradients at the price of plain ones: one forward, one backward without weight gradients, then the sums.

Phase one asks autograd for the gradients of the outputs of the operations that use parameters, and for nothing else, so
that no weight gradient is formed. Phase two takes, layer by layer, the records' norms from the kept inputs and those
output gradients, turns them into clip factors and forms the clipped sum, once. A plan that was verified against
autograd (``plans``) says where the records are in every tensor; what it does not cover goes to vmap.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from tacit.gradients.batches import count_records, map_tensors, take_records, tensors_of
from tacit.gradients.by_graph import clipped_sum_by_graph, trust_graph
from tacit.gradients.plans import Key, Plans, full_precision, output_gradients
from tacit.gradients.record_gradients import RecordGradients
from tacit.gradients.uses import UncoveredError, WatchUses
from tacit.losses import Batch, Losses, ModelLosses, check_one_loss_per_record
from tacit.mechanisms import GaussianSumMechanism, Vectors

_FEW = 8


def clipped_sum_by_ghost(
    losses: Losses,
    params: Mapping[str, Tensor],
    batch: Batch,
    mechanism: GaussianSumMechanism,
    views: int | None,
    plans: Plans,
) -> tuple[Vectors, Tensor]:
    """The clipped sum over a chunk of records and their squared norms; raises UncoveredError where it is not sure."""
    records = count_records(batch)
    rows = batch if views is None else map_tensors(lambda tensor: tensor.flatten(0, 1), batch)
    if plans.uncovered and _kind(rows) in plans.uncovered:
        raise UncoveredError("known to be uncovered")
    if views is None and (found_by_graph := clipped_sum_by_graph(losses, params, rows, records, mechanism, plans)):
        return found_by_graph
    try:
        with torch.enable_grad():
            leaves, values, watch = _forward(losses, params, rows, records * (views or 1))
            watch.check()
            if records > _FEW and plans.layouts_of(watch) is None:
                # Verifying takes two backward passes at once: a few records show as much, in a fraction of the memory.
                del leaves, values, watch
                few = take_records(batch, slice(0, _FEW))
                clipped_sum_by_ghost(losses, params, few, mechanism, views, plans)
                leaves, values, watch = _forward(losses, params, rows, records * (views or 1))
                watch.check()
            if not values.requires_grad:
                return _clip_and_sum({}, mechanism, records, values.device, torch.float64)
            if views is None:
                trust_graph(values, watch, mechanism, plans)
            per_record = values if views is None else values.view(records, views).mean(1)
            found = output_gradients(
                per_record, watch, leaves, plans, lambda: _first_alone(losses, leaves, rows, views)
            )
    except UncoveredError as error:
        if error.always:
            plans.uncovered.add(_kind(rows))
        raise
    single = all(leaf.dtype == torch.float32 for leaf in leaves.values())
    with torch.no_grad(), full_precision(values.device):
        dtype = torch.float32 if single else torch.float64
        return _clip_and_sum(found, mechanism, records, values.device, dtype)


def as_written() -> AbstractContextManager[object]:
    """Models under torch.compile run uncompiled here: the watch must see the operations that were written."""
    if "torch._dynamo" not in sys.modules:  # then nothing is compiled, and importing it takes seconds
        return nullcontext()
    stance: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return stance


def _forward(
    losses: Losses, params: Mapping[str, Tensor], batch: Batch, rows: int
) -> tuple[dict[str, Tensor], Tensor, WatchUses]:
    own = isinstance(losses, ModelLosses) and losses.owns(params)
    leaves = dict(params) if own else {name: value.detach().requires_grad_() for name, value in params.items()}
    watch = WatchUses(leaves, rows)
    with as_written(), watch:
        if isinstance(losses, ModelLosses) and own:
            values = losses.user_losses(losses.model, batch)  # as it is: nothing to swap
        else:
            values = losses(leaves, batch)
    check_one_loss_per_record(values, rows)
    return leaves, values, watch


def _first_alone(losses: Losses, params: Mapping[str, Tensor], rows: Batch, views: int | None) -> Tensor:
    """The loss of the first record without the others."""
    with torch.no_grad(), as_written():
        return losses(params, take_records(rows, slice(0, views or 1))).mean()


def _clip_and_sum(
    gradients: dict[str, RecordGradients],
    mechanism: GaussianSumMechanism,
    records: int,
    device: torch.device,
    dtype: torch.dtype,
) -> tuple[Vectors, Tensor]:
    columns = [
        gradients[name].squared_norms() if name in gradients else torch.zeros(records, device=device).double()
        for name in mechanism.shapes
    ]
    squared_norms = torch.stack(columns, dim=1)
    factors = mechanism.factors(squared_norms)
    all_kept = float(factors.min()) > 0
    sums: Vectors = {}
    for (name, shape), factor in zip(mechanism.shapes.items(), _columns(factors, dtype), strict=True):
        part = gradients.get(name)
        if part is None:
            sums[name] = torch.zeros(shape, dtype=torch.float64, device=device)
        elif all_kept:
            sums[name] = part.weighted_sum(factor)
        else:
            sums[name] = part.select(factor > 0).weighted_sum(factor[factor > 0])
    return {**sums, **mechanism.counts(squared_norms)}, squared_norms


def _columns(factors: Tensor, dtype: torch.dtype) -> Sequence[Tensor]:
    """The factors of each parameter; one tensor for all where they are clipped as one, rounded once."""
    if factors.stride(1) != 0:
        return factors.unbind(1)
    return [factors[:, 0].to(dtype)] * factors.shape[1]


def _kind(batch: Batch) -> Key:
    return tuple((tensor.shape[1:], tensor.dtype) for tensor in tensors_of(batch))
