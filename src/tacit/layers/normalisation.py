"""Normalisation layers: scale and shift are small, so their gradients are formed for every record."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.errors import RecordMixingError
from tacit.kernels import group_norm_rows, layer_norm_rows
from tacit.layers.record_gradients import Dense, RecordGradients, full

if TYPE_CHECKING:
    from tacit.gradients.bookkeeping import ForwardPass

Normalise = Callable[[Tensor], Tensor]


def _layer_norm(
    records: int, x: Tensor, mean: Tensor, spread: Tensor, dims: int, g: Tensor
) -> Sequence[RecordGradients | None]:
    """Scale and shift have the shape of the last dimensions."""
    shape = g.shape[g.dim() - dims :]
    g, x = (tensor.reshape(records, -1, shape.numel()) for tensor in (g, full(x)))
    mean, spread = (full(tensor).reshape(g.shape[:2]) for tensor in (mean, spread))
    found = layer_norm_rows(x, g, mean, spread)
    if found is None:
        found = (g * (x - mean[:, :, None]).mul_(spread[:, :, None])).sum(1), g.sum(1)
    return [Dense(part.view(records, *shape)) for part in found]


def _rms_norm(records: int, x: Tensor, normalise: Normalise, dims: int, g: Tensor) -> Sequence[RecordGradients | None]:
    """The scale has the shape of the last dimensions."""
    shape = g.shape[g.dim() - dims :]
    return [Dense((g * normalise(full(x))).reshape(records, -1, *shape).sum(1))]


def _channels(records: int, x: Tensor, normalise: Normalise, g: Tensor) -> Sequence[RecordGradients | None]:
    """Scale and shift have one entry per channel, dimension 1 of the output."""
    g = g.flatten(2) if g.dim() > 2 else g[:, :, None]
    normal = normalise(full(x)).reshape(g.shape)
    return [of_records(records, rows) for rows in (torch.linalg.vecdot(g, normal), g.sum(2))]


def of_records(records: int, rows: Tensor) -> Dense:
    return Dense(rows if len(rows) == records else rows.reshape(records, -1, rows.shape[1]).sum(1))


def layer_norm(
    run: "ForwardPass",
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:
    if not run.joins(input, weight, bias):
        return NotImplemented
    x, shape = run.rows_first(input), list(normalized_shape)
    out, mean, spread = torch.native_layer_norm(x, shape, run.twin(weight), run.twin(bias), eps)
    run.keep(out, (x,), (weight, bias), partial(_layer_norm, run.records, x, mean, spread, len(shape)))
    return run.wrap(out)


def rms_norm(
    run: "ForwardPass",
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Any:
    if not run.joins(input, weight):
        return NotImplemented
    x, shape = run.rows_first(input), list(normalized_shape)
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    out = functional.rms_norm(x, shape, run.twin(weight), eps)
    normalise = partial(functional.rms_norm, normalized_shape=shape, eps=eps)
    run.keep(out, (x,), (weight,), partial(_rms_norm, run.records, x, normalise, len(shape)))
    return run.wrap(out)


def group_norm(
    run: "ForwardPass",
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Any:
    if input.dim() < 2 or not run.joins(input, weight, bias):
        return NotImplemented
    x = run.rows_first(input).flatten(0, 1)
    out = functional.group_norm(x, num_groups, run.twin(weight), run.twin(bias), eps)
    run.keep(out, (x,), (weight, bias), partial(gradients_of_group_norm, run.records, x, num_groups, eps))
    return run.wrap(run.split(out))


def gradients_of_group_norm(
    records: int, x: Tensor, groups: int, eps: float, g: Tensor
) -> Sequence[RecordGradients | None]:
    """Scale and shift of every row at once."""
    x, g = full(x).contiguous(), g.contiguous()
    rows = group_norm_rows(x, g, groups, eps) or _group_norm_rows(x, g, groups, eps)
    return [of_records(records, part) for part in rows]


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


def instance_norm(
    run: "ForwardPass",
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    if use_input_stats and running_mean is not None:
        raise RecordMixingError(
            "instance normalisation with track_running_stats=True keeps statistics of private records; "
            "set track_running_stats=False"
        )
    if not use_input_stats or input.dim() < 3 or not run.joins(input, weight, bias):
        return NotImplemented
    x = run.rows_first(input).flatten(0, 1)
    out = functional.instance_norm(x, None, None, run.twin(weight), run.twin(bias), True, momentum, eps)
    run.keep(out, (x,), (weight, bias), partial(_channels, run.records, x, partial(functional.instance_norm, eps=eps)))
    return run.wrap(run.split(out))


def batch_norm(
    run: "ForwardPass",
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """With fixed statistics, which must be public; with those of the batch there is nothing to normalise by."""
    if training or running_mean is None:
        raise RecordMixingError(
            "batch normalisation in training mode mixes the records of a batch; "
            "use tacit.replace_batch_norm(model), which gives a copy with GroupNorm"
        )
    if not run.joins(input, weight, bias):
        return NotImplemented
    x = run.rows_first(input).flatten(0, 1)
    normalise = partial(functional.batch_norm, running_mean=running_mean, running_var=running_var, eps=eps)
    out = normalise(x, weight=run.twin(weight), bias=run.twin(bias))
    run.keep(out, (x,), (weight, bias), partial(_channels, run.records, x, normalise))
    return run.wrap(run.split(out))
