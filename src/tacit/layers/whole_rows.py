"""Functions without parameters whose rules under vmap are slow: rows are merged into the batch by hand."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from tacit.kernels import max_pool

if TYPE_CHECKING:
    from tacit.gradients.bookkeeping import ForwardPass

POOLED_BY_KERNEL = 1 << 14  # entries at least: of fewer PyTorch is done before the kernel is called
_pool: Any = torch.ops.aten.max_pool2d_with_indices.default


def applied(function: Any, *args: Any) -> Any:
    """A _SingleLevelFunction of tensors of all rows: vmap has no part in it, though it is at work around this.

    It is what PyTorch itself makes of an autograd.Function for one level of a transform; that would ask for a rule.
    """
    functorch: Any = torch._functorch.autograd_function
    with functorch.enable_single_level_autograd_function():
        return function.apply(*args)


def cross_entropy(
    run: "ForwardPass",
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


def gaussian_nll(
    run: "ForwardPass",
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Any:
    """As PyTorch's, whose question about variances and whose write into them vmap cannot do."""
    if not isinstance(var, Tensor) or reduction not in ("none", "mean", "sum"):
        return NotImplemented
    if var.shape != input.shape and var.shape == input.shape[:-1]:
        var = var.unsqueeze(-1)
    spread = [other for one, other in zip(input.shape, var.shape, strict=False) if one != other]
    if var.dim() != input.dim() or spread not in ([], [1]):
        return NotImplemented  # PyTorch says what is wrong
    with run:
        if torch.any(var < 0):
            raise ValueError("var has negative entry/entries")
        least = var + (var.clamp(min=eps) - var).detach()  # its gradient is that of the variance, also below eps
        loss = 0.5 * (least.log() + (input - target) ** 2 / least)
        loss = loss + 0.5 * math.log(2 * math.pi) if full else loss
        return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def histc(run: "ForwardPass", input: Tensor, *args: Any, **kwargs: Any) -> Any:
    if not run.is_of_rows(input):
        return NotImplemented
    return run.wrap(torch.stack([torch.histc(row, *args, **kwargs) for row in run.rows_first(input)]))


def product(run: "ForwardPass", input: Tensor, *_: Any, **__: Any) -> Any:
    """PyTorch takes another formula for the gradients of all rows where one of them holds a zero: run those apart."""
    if run.is_of_rows(input) and run.rows_first(input).requires_grad:
        with run:
            bool((input == 0).any())
    return NotImplemented


def pooling(function: Callable[..., Any]) -> Callable[..., Any]:
    """Max pooling, which has a kernel of its own."""

    def rule(run: "ForwardPass", input: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not run.is_of_rows(input):
            return NotImplemented
        pooled = call_faster(function, (run.rows_first(input).flatten(0, 1), *args), kwargs)
        if isinstance(pooled, tuple):
            return tuple(run.wrap(run.split(part)) for part in pooled)
        return run.wrap(run.split(pooled))

    return rule


def call_faster(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a max pooling of PyTorch; if it is a large one, the kernel computes it where it can, bit for bit as PyTorch.

    Only the numbers are computed elsewhere: below autograd, for the time of one call. The graph, what it keeps and its
    backward pass are PyTorch's own.
    """
    if args[0].numel() < POOLED_BY_KERNEL:
        return function(*args, **kwargs)
    with _ByKernel():  # type: ignore[no-untyped-call]
        return function(*args, **kwargs)


class _ByKernel(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Stands below autograd and answers the one operation that all max poolings of one and two dimensions become."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and to tell dynamo so would import it, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = max_pool(*args) if func is _pool and not kwargs else None
        return func(*args, **(kwargs or {})) if found is None else found


_POOLING = (
    functional.max_pool1d,
    functional.max_pool1d_with_indices,
    functional.max_pool2d,
    functional.max_pool2d_with_indices,
    torch.max_pool1d,
    torch.max_pool2d,
)
POOLING: dict[Any, Callable[..., Any]] = {function: pooling(function) for function in _POOLING}
