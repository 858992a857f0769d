"""CIFAR-10 and a part of SVHN from lossless picture sheets, in the folder that TACIT_DATA names.

A sheet holds 100 pictures of 32 x 32 pixels in a row of tiles, row by row; tiles that are not used are black.
"""

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from tacit.data.files import data_folder, read_original
from tacit.data.mnist import ImageData

_CIFAR10 = {
    "data_batch_1.webp": "7862ba6f532eb26481636723b49a74914d0a8186dde88a2afa9047668b1214b8",
    "data_batch_2.webp": "223eb5388d46cd9050b630ada011bb521e9e66e56f8922c4e3c90068bfb4de74",
    "data_batch_3.webp": "72340f10fb016c6a6f645cbf5e19c99d4d83b500574b3838a6850d00fc20b354",
    "data_batch_4.webp": "b5646e97fe600f24a0e4662426280aa23704f9e04033e7beab0808a51212f814",
    "data_batch_5.webp": "20fd741c090103a8703cd393ed42c0b9bb55c84a099564b3a290171531a473f9",
    "test_batch.webp": "5fb7e1221ce9526ce00d6f53ad5e520f96044b42580400979c573f910e687a8e",
    "labels.npz": "100457827cb30b2869dbdce3761c5279714820de9a8c6fa4d0dcc7cbc3037527",
}
_SVHN = {
    "train_first10000.webp": "48a4e44f37acfab1e4d38eaff56875152ed038e3e867026faa33c2711e456411",
    "test_first4000.webp": "62b2d965a642a3e3e1fdf153dd9660592bfff2982467513f967469f14f8afc54",
    "labels.npz": "fa3d06f068d11754c3826d9fd62906f43c1c9285b17156b09fde6dfd5ce6f072",
}
_SIDE, _ROW = 32, 100


def load_cifar10(folder: str | Path | None = None) -> ImageData:
    """50,000 training and 10,000 test pictures of ten kinds of things, [n, 3, 32, 32] (Krizhevsky 2009).

    Args:
        folder: where ``cifar10/`` lies; by default the folder that TACIT_DATA names.
    """
    return _load(data_folder(folder, "cifar10"), _CIFAR10)


def load_svhn(folder: str | Path | None = None) -> ImageData:
    """The first 10,000 training and 4,000 test pictures of house numbers, [n, 3, 32, 32]; for non-commercial use.

    Args:
        folder: where ``svhn/`` lies; by default the folder that TACIT_DATA names.
    """
    return _load(data_folder(folder, "svhn"), _SVHN)


def _load(place: Path, digests: dict[str, str]) -> ImageData:
    files = {name: read_original(place / name, digest) for name, digest in digests.items()}
    sheets = [name for name in files if name.endswith(".webp")]
    labels = np.load(io.BytesIO(files["labels.npz"]), allow_pickle=False)
    train = torch.cat([_pictures(files[name]) for name in sheets[:-1]])[: len(labels["train"])]
    test = _pictures(files[sheets[-1]])[: len(labels["test"])]
    return ImageData(train, torch.from_numpy(labels["train"]), test, torch.from_numpy(labels["test"]))


def _pictures(sheet: bytes) -> Tensor:
    pixels = np.asarray(Image.open(io.BytesIO(sheet)).convert("RGB"))
    rows = pixels.shape[0] // _SIDE
    tiles = pixels.reshape(rows, _SIDE, _ROW, _SIDE, 3).transpose(0, 2, 4, 1, 3)
    return torch.from_numpy(tiles.reshape(-1, 3, _SIDE, _SIDE).copy())
