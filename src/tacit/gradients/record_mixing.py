"""Clipping bounds a record only if its gradient is its own. Layers that mix records are refused (failure-modes F4)."""

import copy

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from tacit.errors import InputError, RecordMixingError, check_count
from tacit.gradients.batches import map_tensors, tensors_of
from tacit.losses import Batch, Losses, ModelLosses, check_one_loss_per_record

_PROBES = 3


def refuse_mixing_layers(model: nn.Module) -> None:
    """Refuse, by name, layers that are known to mix records.

    Batch normalisation in evaluation mode uses fixed statistics and is accepted; those must be public.
    """
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and (module.training or not module.track_running_stats):
            raise RecordMixingError(
                f"layer {name or 'model'} is {type(module).__name__}, which mixes the records of a batch; "
                "use tacit.replace_batch_norm(model), which gives a copy with GroupNorm"
            )
        if isinstance(module, _InstanceNorm) and module.track_running_stats and module.training:
            raise RecordMixingError(
                f"layer {name or 'model'} is {type(module).__name__} with track_running_stats=True, which keeps "
                "statistics of private records; set track_running_stats=False"
            )


def replace_batch_norm(model: nn.Module, groups: int = 32) -> nn.Module:
    """A copy of the model with every batch normalisation replaced by a fresh GroupNorm.

    At most ``groups`` groups, of four channels or more where there are so many.

    Example:
        >>> replace_batch_norm(nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8)))[1].num_groups
        2
    """
    check_count("groups", groups)
    model = copy.deepcopy(model)
    if isinstance(model, _BatchNorm):
        return _group_norm(model, groups)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, _BatchNorm):
                setattr(module, name, _group_norm(child, groups))
    return model


def _group_norm(layer: _BatchNorm, groups: int) -> nn.GroupNorm:
    channels = layer.num_features
    groups = max(1, min(groups, channels // 4))
    while channels % groups:
        groups -= 1
    return nn.GroupNorm(groups, channels, eps=layer.eps, affine=layer.affine)


def check_records_stay_apart(losses: Losses, params: dict[str, Tensor], like: Batch, *, public: bool = False) -> None:
    """Change one record of a batch; the gradients of the others must not move.

    Private data is never used: only shapes and dtypes are taken from ``like``, and inputs are generated: standard
    normal floats, and integers 0 and 1, which are valid tokens, classes and counts nearly everywhere. Where they are
    not, ``public=True`` says that ``like`` holds public records, which are then used as they are.
    """
    first, second = (_cycle(like, 0), _cycle(like, 1)) if public else (_generate(like, 0), _generate(like, 1))
    mixed = _swap_middle(first, second)
    before, after = _losses_and_gradients(losses, params, first), _losses_and_gradients(losses, params, mixed)
    for record in (0, _PROBES - 1):
        for name in params:
            if not _close(before[record][name], after[record][name]):
                raise RecordMixingError(
                    f"the gradient of {name} for one record depends on another record of the batch; "
                    "the model or the losses mix records (a statistic, an attention or a sum over the batch)"
                )


def _close(one: Tensor, other: Tensor) -> bool:
    """Equal up to what another order of summation may change."""
    size = float(one.abs().max().nan_to_num())
    return torch.allclose(one, other, rtol=1e-3, atol=1e-5 * size + 1e-12, equal_nan=True)


def _generate(like: Batch, seed: int) -> Batch:
    generator = torch.Generator().manual_seed(1000 + seed)

    def fresh(tensor: Tensor) -> Tensor:
        shape = (_PROBES, *tensor.shape[1:])
        if tensor.is_floating_point():
            return torch.randn(shape, generator=generator).to(tensor.dtype).to(tensor.device) * (1 + 3 * seed)
        if tensor.is_complex():
            return torch.randn(shape, generator=generator).to(tensor.dtype).to(tensor.device)
        return torch.randint(0, 2, shape, generator=generator).to(tensor.dtype).to(tensor.device)

    return map_tensors(fresh, like)


def _cycle(like: Batch, shift: int) -> Batch:
    """Three of the public records, from another start for another shift."""
    return map_tensors(lambda tensor: tensor[(torch.arange(_PROBES) + shift) % len(tensor)], like)


def _swap_middle(first: Batch, second: Batch) -> Batch:
    others = iter(tensors_of(second))

    def swap(tensor: Tensor) -> Tensor:
        changed = tensor.clone()
        changed[1] = next(others)[1]
        return changed

    return map_tensors(swap, first)


def _losses_and_gradients(losses: Losses, params: dict[str, Tensor], batch: Batch) -> list[dict[str, Tensor]]:
    if isinstance(losses, ModelLosses):  # a copy: running it must leave nothing behind in the user's model
        losses = ModelLosses(copy.deepcopy(losses.model), losses.user_losses)
    leaves = {name: value.detach().clone().requires_grad_() for name, value in params.items()}
    with torch.random.fork_rng(), torch.enable_grad():
        torch.manual_seed(0)  # the same dropout masks both times
        try:
            values = losses(leaves, batch)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"losses failed on generated inputs of the data's shape and dtype: {error}; "
                "pass example=, a small public batch that it accepts"
            ) from error
        check_one_loss_per_record(values, _PROBES)
        gradients = []
        for record in range(_PROBES):
            found = torch.autograd.grad(
                values[record], list(leaves.values()), retain_graph=True, allow_unused=True, materialize_grads=True
            )
            gradients.append(dict(zip(leaves, found, strict=True)))
    return gradients
