"""SVHN, house numbers photographed in the street (Netzer et al. 2011). For non-commercial use only."""

import io
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tacit.data.files import Original, data_folder
from tacit.data.mnist import ImageData
from tacit.data.sheets import read_labels, read_sheet
from tacit.errors import InputError

NOTICE = "SVHN is free for non-commercial use only; its makers ask you to cite Netzer et al. 2011"
_PLACE = "http://ufldl.stanford.edu/housenumbers/"
_FILES = {
    "train": Original(
        "train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373", 200_000_000, (_PLACE + "train_32x32.mat",)
    ),
    "test": Original("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3", 100_000_000, (_PLACE + "test_32x32.mat",)),
}
_SHEETS = {
    "train": (
        Original("train_first10000.webp", "48a4e44f37acfab1e4d38eaff56875152ed038e3e867026faa33c2711e456411"),
        10_000,
    ),
    "test": (
        Original("test_first4000.webp", "62b2d965a642a3e3e1fdf153dd9660592bfff2982467513f967469f14f8afc54"),
        4_000,
    ),
}
_LABELS = Original("labels.npz", "fa3d06f068d11754c3826d9fd62906f43c1c9285b17156b09fde6dfd5ce6f072")


def load_svhn(folder: str | Path | None = None, *, download: bool = False) -> ImageData:
    """73,257 training and 26,032 test digits in colour, [n, 3, 32, 32]: inputs that a model of CIFAR-10 cannot know.

    Args:
        folder: where ``svhn/`` lies, by default the folder that TACIT_DATA names. It holds train_32x32.mat and
            test_32x32.mat, or sheets of the first 10,000 and 4,000 images only, which need pillow.
        download: fetch the two files if neither is there.
    """
    print(NOTICE, file=sys.stderr)
    place = data_folder(folder, "svhn")
    if (place / _LABELS.name).exists() and not (place / _FILES["train"].name).exists():
        labels = read_labels(_LABELS.read(place))
        images = {part: read_sheet(sheet.read(place), count, sheet.name) for part, (sheet, count) in _SHEETS.items()}
        return ImageData(images["train"], labels["train"], images["test"], labels["test"])
    parts = [parse_mat(original.read(place, download), original.name) for original in _FILES.values()]
    return ImageData(*(tensor for part in parts for tensor in part))


def parse_mat(data: bytes, name: str) -> tuple[Tensor, Tensor]:
    """Images X [32, 32, 3, n] and classes y [n, 1], in which ten stands for the digit zero."""
    from scipy.io import loadmat

    try:
        table = loadmat(io.BytesIO(data), variable_names=["X", "y"])
        images = np.ascontiguousarray(table["X"].transpose(3, 2, 0, 1))
        labels = (table["y"].reshape(-1) % 10).astype(np.uint8)
    except Exception as error:  # whatever the parser of a foreign format stumbles over
        raise InputError(f"{name} is not one of SVHN's files: {type(error).__name__}: {error}") from error
    if images.dtype != np.uint8 or images.shape[1:] != (3, 32, 32) or len(labels) != len(images):
        raise InputError(f"{name} is not one of SVHN's files: it holds images of {list(images.shape)}")
    return torch.from_numpy(images), torch.from_numpy(labels)
