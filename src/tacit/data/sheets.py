"""Many small images on one lossless WebP sheet: 100 tiles of 32 x 32 in each row, row after row."""

import io

import numpy as np
import torch
from torch import Tensor

from tacit.errors import InputError

_TILE, _ACROSS = 32, 100


def read_sheet(data: bytes, count: int, name: str) -> Tensor:
    """The first ``count`` images of a sheet as bytes [count, 3, 32, 32]; its digest has been checked."""
    try:
        from PIL import Image
    except ImportError as error:
        raise InputError(f"{name} is a sheet of images and needs pillow; install tacit[images]") from error
    with Image.open(io.BytesIO(data), formats=["WEBP"]) as image:
        pixels = np.asarray(image.convert("RGB"))
    rows = pixels.shape[0] // _TILE
    if pixels.shape[1] != _ACROSS * _TILE or rows * _ACROSS < count:
        raise InputError(f"{name} holds no {count} images: it has {list(pixels.shape)}")
    tiles = pixels.reshape(rows, _TILE, _ACROSS, _TILE, 3).transpose(0, 2, 4, 1, 3).reshape(-1, 3, _TILE, _TILE)
    return torch.from_numpy(tiles[:count].copy())


def read_labels(data: bytes) -> dict[str, Tensor]:
    """The labels beside the sheets; an array of Python objects, which could run code, is refused by numpy."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in ("train", "test")}
