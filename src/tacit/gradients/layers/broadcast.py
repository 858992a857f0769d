"""Raw parameters (positions, class tokens, scales) that broadcasting joins to the records: x + p, x * p, p.expand."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from tacit.gradients.layers.rule import LayerCall, LayerRule
from tacit.gradients.record_gradients import Dense, RecordGradients
from tacit.gradients.record_layout import RecordLayout


def _form(
    shape: torch.Size, sign: float, inputs: Sequence[Tensor], g: Tensor, layout: RecordLayout, records: int
) -> list[RecordGradients | None]:
    """The record's gradient is that of the output (times the other factor), summed over what was broadcast."""
    if inputs:
        g = g * inputs[0].expand(g.shape)
    g = (g if g.dtype in (torch.float32, torch.float64) else g.float()) * sign
    split, dim = layout.split(g, records)
    sizes = [1] * (g.dim() - len(shape)) + list(shape)
    if split.dim() > g.dim():
        sizes.insert(layout.dim, 1)
    summed = [d for d, size in enumerate(sizes) if size == 1 and d != dim and split.shape[d] != 1]
    rows = split.sum(summed, keepdim=True) if summed else split
    return [Dense(rows.movedim(dim, 0).reshape(records, *shape))]


def _joins(output: Tensor, parameter: Tensor) -> bool:
    """Whether the output is the parameter's shape broadcast, with at least one dimension that is new or was 1."""
    padded = (1,) * (output.dim() - parameter.dim()) + tuple(parameter.shape)
    pairs = list(zip(padded, output.shape, strict=True)) if len(padded) == output.dim() else []
    return bool(pairs) and all(p in (1, o) for p, o in pairs) and any(p == 1 < o for p, o in pairs)


def _bind_pair(
    output: Tensor, first: Tensor | float, second: Tensor | float, is_parameter: Sequence[bool]
) -> tuple[Tensor, Tensor] | None:
    match (first, second):
        case Tensor(), Tensor() if is_parameter[0] != is_parameter[1]:
            pair = (first, second) if is_parameter[0] else (second, first)
            return pair if _joins(output, pair[0]) else None
    return None


def bind_sum(
    output: Tensor, input: Tensor | float, other: Tensor | float, *, alpha: float = 1, is_parameter: Sequence[bool]
) -> LayerCall | None:
    pair = _bind_pair(output, input, other, is_parameter)
    if pair is None or (is_parameter[1] and alpha != 1):
        return None
    return LayerCall((pair[0],), (), partial(_form, pair[0].shape, 1.0), output.dim())


def bind_difference(
    output: Tensor, input: Tensor | float, other: Tensor | float, *, alpha: float = 1, is_parameter: Sequence[bool]
) -> LayerCall | None:
    pair = _bind_pair(output, input, other, is_parameter)
    if pair is None or alpha != 1:
        return None
    return LayerCall((pair[0],), (), partial(_form, pair[0].shape, 1.0 if is_parameter[0] else -1.0), output.dim())


def bind_product(
    output: Tensor, input: Tensor | float, other: Tensor | float, *, is_parameter: Sequence[bool]
) -> LayerCall | None:
    pair = _bind_pair(output, input, other, is_parameter)
    return None if pair is None else LayerCall((pair[0],), (pair[1],), partial(_form, pair[0].shape, 1.0), output.dim())


def bind_expand(output: Tensor, input: Tensor, *sizes: object, **named: object) -> LayerCall | None:
    if not _joins(output, input):
        return None
    return LayerCall((input,), (), partial(_form, input.shape, 1.0), output.dim())


_T = torch.Tensor
SUM = LayerRule("sum", (torch.add, _T.add, _T.add_, _T.__add__, _T.__radd__, _T.__iadd__), bind_sum)
DIFFERENCE = LayerRule("difference", (torch.sub, torch.subtract, _T.sub, _T.__sub__), bind_difference)
PRODUCT = LayerRule("product", (torch.mul, torch.multiply, _T.mul, _T.__mul__, _T.__rmul__), bind_product)
EXPAND = LayerRule("expand", (_T.expand, _T.expand_as, torch.broadcast_to, _T.broadcast_to, _T.repeat), bind_expand)
