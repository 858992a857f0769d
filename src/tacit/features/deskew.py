"""Pictures of writing set upright: a slant tells of the writer and not of the digit.

The shear and the centre come from the moments of the picture itself, so that this is a function of one record and free
under differential privacy.
"""

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from tacit.errors import InputError

_PART = 2048  # pictures at a time
_TINY = 1e-6


def deskew(images: Tensor) -> Tensor:
    """Shear each picture until its rows and columns are uncorrelated, and move its centre of mass to the middle.

    With ink as mass, (c_y, c_x) its centre and a = cov(x, y) / var(y), the value at (y, x) from the middle is that of
    the picture at (c_y + y, c_x + x + a y), between pixels by linear interpolation, beyond the edge 0.

    Args:
        images: [n, k, height, width] of at least 0, bright writing on a dark ground; k colours are moved together.

    Returns:
        Floating-point pictures of the same scale and shape.

    Example:
        >>> slanted = torch.eye(5)[None, None]
        >>> deskew(slanted)[0, 0, :, 2]
        tensor([1., 1., 1., 1., 1.])
    """
    if images.dim() != 4:
        raise InputError(f"images must be [n, colours, height, width], found {list(images.shape)}")
    return torch.cat([_upright(part.float()) for part in torch.split(images, _PART)])


def _upright(images: Tensor) -> Tensor:
    ink, (height, width) = images.sum(1), images.shape[2:]
    rows, columns = torch.arange(height)[:, None].to(ink), torch.arange(width)[None, :].to(ink)

    def mean(values: Tensor) -> Tensor:
        return ((ink * values).sum((1, 2)) / ink.sum((1, 2)).clamp(min=_TINY))[:, None, None]

    centre_y, centre_x = mean(rows), mean(columns)
    y, x = rows - centre_y, columns - centre_x
    slant = mean(x * y) / mean(y * y).clamp(min=_TINY)
    y, x = rows - (height - 1) / 2, columns - (width - 1) / 2
    seen_y, seen_x = (centre_y + y).expand_as(ink), centre_x + x + slant * y
    grid = torch.stack([2 * seen_x / (width - 1) - 1, 2 * seen_y / (height - 1) - 1], dim=-1)
    return grid_sample(images, grid, align_corners=True)
