"""What may be done to each record alone, hence for nothing: normalise its channels, give its row the norm 1."""

import torch
from torch import Tensor
from torch.nn.functional import group_norm

from tacit.errors import InputError

_PART = 1024  # records at a time, so that no second copy of all features is needed
_TINY = 1e-12


def normalise_groups(features: Tensor, groups: int) -> Tensor:
    """Each record's channels in ``groups`` groups, each of mean 0 and variance 1; in place.

    Args:
        features: [n, channels, ...] of floating point.
    """
    if features.dim() < 2 or features.shape[1] % groups:
        raise InputError(f"{list(features.shape[1:2])} channels cannot be split into {groups} equal groups")
    for part in torch.split(features, _PART):
        part.copy_(group_norm(part, groups))
    return features


def unit_rows(features: Tensor) -> Tensor:
    """Each record scaled to norm 1, so that no record can add more than 1 to a sum; in place. A zero row stays zero.

    Example:
        >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    for part in torch.split(features, _PART):
        norms = part.flatten(1).double().norm(dim=1).clamp(min=_TINY)
        part.div_(norms.to(part.dtype).reshape(-1, *(1,) * (part.dim() - 1)))
    return features
