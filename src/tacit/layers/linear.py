"""Linear maps: the gradient of a record is a sum of outer products g_t x_t^T over its positions t."""

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.layers.record_gradients import RecordGradients, outer_products, shifts

if TYPE_CHECKING:
    from tacit.gradients.bookkeeping import ForwardPass


def _form(records: int, x: Tensor, transposed: bool, bias: bool, g: Tensor) -> list[RecordGradients | None]:
    return [outer_products(records, x, g, transposed), shifts(records, g) if bias else None]


def linear(run: "ForwardPass", input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if weight.dim() != 2 or not run.joins(input, weight, bias):
        return NotImplemented
    x = run.rows_first(input)
    flat = x.flatten(0, -2)
    run.multiplies(*weight.shape)
    out = functional.linear(flat, run.twin(weight), run.twin(bias))  # type: ignore[arg-type]
    run.keep(out, (flat,), (weight, bias), partial(_form, run.records, flat, False, bias is not None))
    return run.wrap(out.view(*x.shape[:-1], -1))


def matmul(run: "ForwardPass", input: Tensor, other: Tensor) -> Any:
    """x @ W with a plain matrix on the right; W @ x and batched products go the general way."""
    if not isinstance(other, Tensor) or other.dim() != 2 or input.dim() < 1 or not run.joins(input, other):
        return NotImplemented
    x = run.rows_first(input)
    flat = x.flatten(0, -2)
    run.multiplies(*other.shape)
    out = torch.matmul(flat, run.twin(other))  # type: ignore[arg-type]
    run.keep(out, (flat,), (other, None), partial(_form, run.records, flat, True, False))
    return run.wrap(out.view(*x.shape[:-1], -1))


def addmm(
    run: "ForwardPass",
    input: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: None = None,
) -> Any:
    """bias + x @ W, as the Conv1D of Hugging Face's GPT-2 computes it."""
    if input.dim() != 1 or beta != 1 or alpha != 1 or not run.joins(mat1, mat2, input):
        return NotImplemented
    x = run.rows_first(mat1)
    flat = x.flatten(0, -2)
    run.multiplies(*mat2.shape)
    result = torch.addmm(run.twin(input), flat, run.twin(mat2))  # type: ignore[arg-type]
    run.keep(result, (flat,), (mat2, input), partial(_form, run.records, flat, True, True))
    return run.wrap(result.view(*x.shape[:-1], -1))
