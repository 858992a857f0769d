"""Any other operation on parameters and records: exact per-record gradients by vmap of that one operation."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from tacit.gradients.layers.rule import LayerCall
from tacit.gradients.record_gradients import Dense, RecordGradients
from tacit.gradients.record_layout import RecordLayout

Operation = Callable[..., Any]


def bind_anything(
    operation: Operation, output: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any], parameters: Sequence[Tensor]
) -> LayerCall | None:
    """Rows of the output come from rows of the other tensors with as many of them; the rest is shared."""
    leaves, tree = _pytree.tree_flatten((args, kwargs))
    places = [index for index, leaf in enumerate(leaves) if any(leaf is p for p in parameters)]
    rows = output.shape[0] if output.dim() else 0
    data = [
        index
        for index, leaf in enumerate(leaves)
        if isinstance(leaf, Tensor) and index not in places and leaf.dim() and leaf.shape[0] == rows
    ]
    if not data or not rows:
        return None
    inputs = tuple(leaves[index].detach() for index in data)
    shared = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    for index in (*places, *data):
        shared[index] = None

    def run(values: Sequence[Tensor], record: Sequence[Tensor]) -> Tensor:
        filled = list(shared)
        for index, value in zip(places, values, strict=True):
            filled[index] = value
        for index, value in zip(data, record, strict=True):
            filled[index] = value[None]
        called_args, called_kwargs = _pytree.tree_unflatten(filled, tree)
        result: Tensor = operation(*called_args, **called_kwargs)
        return result[0]

    values = tuple(leaves[index].detach() for index in places)
    return LayerCall(tuple(leaves[index] for index in places), inputs, partial(_form, run, values), 1)


def _form(
    run: Callable[[Sequence[Tensor], Sequence[Tensor]], Tensor],
    values: Sequence[Tensor],
    inputs: Sequence[Tensor],
    g: Tensor,
    layout: RecordLayout,
    records: int,
) -> list[RecordGradients | None]:
    def pull(row: Tensor, *record: Tensor) -> tuple[Tensor, ...]:
        back = torch.func.vjp(lambda *values: run(values, record), *values)[1]
        pulled: tuple[Tensor, ...] = back(row)
        return pulled

    rows = torch.func.vmap(pull)(g, *inputs)
    return [Dense(layout.records_first(r, records).reshape(records, -1, *r.shape[1:]).sum(1)) for r in rows]
