"""Functions without parameters whose rules under vmap are slow: rows are merged into the batch by hand."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.gradients.max_pooling import call_faster

if TYPE_CHECKING:
    from tacit.gradients.isolation import Isolated


def cross_entropy(
    run: "Isolated",
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: None = None,
    ignore_index: int = -100,
    reduce: None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    known = weight is None and size_average is None and reduce is None and input.dim() > 1
    if not known or reduction not in ("none", "mean", "sum") or not run.is_of_rows(input):
        return NotImplemented
    rows, targets = run.rows_first(input).flatten(0, 1), run.rows_first(target).flatten(0, 1)
    merged = functional.cross_entropy(
        rows, targets, ignore_index=ignore_index, reduction="none", label_smoothing=label_smoothing
    )
    each = run.split(merged)
    if reduction == "none":
        return run.wrap(each)
    total = each.flatten(1).sum(1)
    if reduction == "mean":
        counted = (targets != ignore_index) if not targets.is_floating_point() else torch.ones_like(each)
        total = total / counted.reshape(run.rows, -1).sum(1)
    return run.wrap(total)


def histc(run: "Isolated", input: Tensor, *args: Any, **kwargs: Any) -> Any:
    if not run.is_of_rows(input):
        return NotImplemented
    return run.wrap(torch.stack([torch.histc(row, *args, **kwargs) for row in run.rows_first(input)]))


def pooling(function: Callable[..., Any]) -> Callable[..., Any]:
    """Max pooling, which has a kernel of its own."""

    def rule(run: "Isolated", input: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not run.is_of_rows(input):
            return NotImplemented
        rows = run.rows_first(input)
        pooled = call_faster(function, (rows.flatten(0, 1), *args), kwargs)
        parts = pooled if isinstance(pooled, tuple) else (pooled,)
        wrapped = tuple(run.wrap(run.split(part)) for part in parts)
        return wrapped if isinstance(pooled, tuple) else wrapped[0]

    return rule


_POOLING = (
    functional.max_pool1d,
    functional.max_pool1d_with_indices,
    functional.max_pool2d,
    functional.max_pool2d_with_indices,
    torch.max_pool1d,
    torch.max_pool2d,
)
POOLING: dict[Any, Callable[..., Any]] = {function: pooling(function) for function in _POOLING}
