"""Normalisation layers: scale and shift are small, so their gradients are formed for every record."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from tacit.gradients.layers.normalisation_kernel import group_norm_by_kernel
from tacit.gradients.layers.rule import LayerCall, LayerRule
from tacit.gradients.record_gradients import Dense, RecordGradients
from tacit.gradients.record_layout import RecordLayout


def _last_dims(
    normalise: Callable[[Tensor], Tensor],
    dims: int,
    inputs: Sequence[Tensor],
    g: Tensor,
    layout: RecordLayout,
    records: int,
) -> list[RecordGradients | None]:
    """Scale and shift have the shape of the last dimensions."""
    g = layout.records_first(_full(g), records)
    normal = layout.records_first(normalise(_full(inputs[0])), records)
    shape = g.shape[g.dim() - dims :]
    rows = g.reshape(records, -1, shape.numel())
    scale = (rows * normal.reshape(rows.shape)).sum(1)
    return [Dense(scale.view(records, *shape)), Dense(rows.sum(1).view(records, *shape))]


def _channels(
    normalise: Callable[[Tensor], Tensor], inputs: Sequence[Tensor], g: Tensor, layout: RecordLayout, records: int
) -> list[RecordGradients | None]:
    """Scale and shift have one entry per channel, dimension 1 of the output."""
    g = _full(g).flatten(2) if g.dim() > 2 else _full(g)[:, :, None]
    normal = normalise(_full(inputs[0])).reshape(g.shape)
    scale, shift = torch.linalg.vecdot(g, normal), g.sum(2)
    return [
        Dense(layout.records_first(rows, records).reshape(records, -1, g.shape[1]).sum(1)) for rows in (scale, shift)
    ]


def _full(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def bind_layer_norm(
    output: Tensor,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> LayerCall:
    dims = len(normalized_shape)
    normalise = partial(functional.layer_norm, normalized_shape=list(normalized_shape), eps=eps)
    return LayerCall((weight, bias), (input,), partial(_last_dims, normalise, dims), output.dim() - dims)


def bind_rms_norm(
    output: Tensor,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> LayerCall:
    dims = len(normalized_shape)
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    normalise = partial(functional.rms_norm, normalized_shape=list(normalized_shape), eps=eps)
    return LayerCall((weight, None), (input,), partial(_last_dims, normalise, dims), output.dim() - dims)


def _grouped(
    groups: int, eps: float, inputs: Sequence[Tensor], g: Tensor, layout: RecordLayout, records: int
) -> list[RecordGradients | None]:
    """Scale and shift of every row at once."""
    x, g = _full(inputs[0]).contiguous(), _full(g).contiguous()
    rows = group_norm_by_kernel(x, g, groups, eps) or _group_norm_rows(x, g, groups, eps)
    parts = (layout.records_first(part, records) for part in rows)
    return [Dense(part.reshape(records, -1, x.shape[1]).sum(1) if len(part) > records else part) for part in parts]


def _group_norm_rows(x: Tensor, g: Tensor, groups: int, eps: float) -> tuple[Tensor, Tensor]:
    """By PyTorch's own kernel, told that rows are groups of one large row."""
    rows, channels = x.shape[:2]
    places = x[0, 0].numel()
    _, mean, spread = torch.native_group_norm(x, None, None, rows, channels, places, groups, eps)
    sizes = (1, rows * channels, places)
    _, scale, shift = torch.ops.aten.native_group_norm_backward(
        g.view(sizes),
        x.view(sizes),
        mean.view(1, -1),
        spread.view(1, -1),
        x.new_ones(rows * channels),
        1,
        rows * channels,
        places,
        rows * groups,
        [False, True, True],
    )
    return scale.view(rows, channels), shift.view(rows, channels)


def bind_group_norm(
    output: Tensor,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> LayerCall:
    return LayerCall((weight, bias), (input,), partial(_grouped, num_groups, eps), 1)


def bind_instance_norm(
    output: Tensor,
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> LayerCall | None:
    if not use_input_stats or running_mean is not None:
        return None
    return LayerCall((weight, bias), (input,), partial(_channels, partial(functional.instance_norm, eps=eps)), 1)


def bind_batch_norm(
    output: Tensor,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> LayerCall | None:
    """With fixed statistics only; with those of the batch, records mix."""
    if training or running_mean is None:
        return None
    normalise = partial(functional.batch_norm, running_mean=running_mean, running_var=running_var, eps=eps)
    return LayerCall((weight, bias), (input,), partial(_channels, normalise), 1)


LAYER_NORM = LayerRule("layer_norm", (functional.layer_norm, torch.layer_norm), bind_layer_norm)
RMS_NORM = LayerRule("rms_norm", (functional.rms_norm, torch.rms_norm), bind_rms_norm)
GROUP_NORM = LayerRule("group_norm", (functional.group_norm,), bind_group_norm)
INSTANCE_NORM = LayerRule("instance_norm", (functional.instance_norm,), bind_instance_norm)
BATCH_NORM = LayerRule("batch_norm", (functional.batch_norm,), bind_batch_norm)
