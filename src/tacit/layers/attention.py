"""Attention: PyTorch's fused kernels loop over rows under vmap, so the rows are merged into its batch by hand."""

import math
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from tacit.gradients.bookkeeping import ForwardPass


def attention(
    run: "ForwardPass",
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Scaled dot-product attention over [..., positions, features], of any number of leading dimensions."""
    q, k, v = (_merged(run, tensor, query.dim()) for tensor in (query, key, value))
    mask = None if attn_mask is None else _mask(run, attn_mask, query)
    written_out = dropout_p > 0 or (mask is not None and mask.requires_grad)
    if written_out:  # the fused kernels draw for all rows at once, and give no gradient of a mask
        out = _attend(run, q, k, v, mask, dropout_p, is_causal, scale, enable_gqa)
    else:
        out = functional.scaled_dot_product_attention(
            q, k, v, mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
        )
    return run.wrap(run.split(out) if query.dim() > 3 else out)


def _merged(run: "ForwardPass", tensor: Tensor, dims: int) -> Tensor:
    """Rows and the first of the leading dimensions as one; the kernels know [batch, heads, positions, features]."""
    rows = run.rows_first(tensor)
    return rows.flatten(0, 1) if dims > 3 else rows


def _mask(run: "ForwardPass", mask: Tensor, query: Tensor) -> Tensor:
    """A mask broadcasts to [..., queries, keys]; one that belongs to no row serves all of them."""
    dims, own = query.dim(), run.is_of_rows(mask) or run.is_trained(mask)
    if not own and (mask.dim() < dims or mask.shape[0] == 1):
        return mask
    rows = run.rows_first(mask)
    rows = rows.view(run.rows, *[1] * (dims + 1 - rows.dim()), *rows.shape[1:])
    return rows if dims <= 3 else rows.expand(-1, query.shape[0], *rows.shape[2:]).flatten(0, 1)


def _attend(
    run: "ForwardPass",
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    dropout: float,
    causal: bool,
    scale: float | None,
    grouped: bool,
) -> Tensor:
    """softmax(q k^T scale + mask) v, with weights dropped by each row's own chance."""
    if grouped:
        k, v = (part.repeat_interleave(q.shape[-3] // part.shape[-3], -3) for part in (k, v))
    scores = q @ k.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu_(1)
        scores = scores.masked_fill(later, -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    weights = scores.softmax(-1)
    if mask is not None and mask.dtype == torch.bool:
        weights = weights.masked_fill(~mask.any(-1, keepdim=True), 0.0)  # nothing to attend to: PyTorch gives zeros
    if dropout > 0:
        each = run.split(weights)
        weights = run.dropped(each, dropout, tuple(each.shape[1:])).flatten(0, 1)
    return weights @ v


def _transparent(function: Any) -> Callable[..., Any]:
    """A function of PyTorch written in Python, such that the calls inside it are seen as well."""
    names = {**function.__globals__, "has_torch_function": lambda *tensors: False}
    twin = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    twin.__kwdefaults__ = function.__kwdefaults__
    return twin


_multi_head = _transparent(functional.multi_head_attention_forward)


def multi_head(run: "ForwardPass", *args: Any, **kwargs: Any) -> Any:
    """nn.MultiheadAttention is made of linear maps and attention, which have rules of their own."""
    with run:
        return _multi_head(*args, **kwargs)
