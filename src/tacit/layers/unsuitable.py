"""Layers that cannot work with private gradients, and what takes their place."""

import copy

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import prune
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from tacit.errors import LossesError, RecordMixingError, check_count


def refuse_layers(model: nn.Module) -> None:
    """Refuse, by name, layers that cannot work, with what takes their place; their calls themselves are refused anyway.

    Batch normalisation that is not in evaluation mode, and weights that a hook sets anew at every call.
    """
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and (module.training or not module.track_running_stats):
            raise RecordMixingError(
                f"layer {name or 'model'} is {type(module).__name__}, which mixes the records of a batch; "
                "use tacit.replace_batch_norm(model), which gives a copy with GroupNorm"
            )
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, prune.BasePruningMethod | WeightNorm | SpectralNorm):
                raise LossesError(
                    f"layer {name or 'model'} has its weights set anew at every call by {type(hook).__name__}; use "
                    "torch.nn.utils.parametrizations, or after pruning torch.nn.utils.prune.remove"
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
