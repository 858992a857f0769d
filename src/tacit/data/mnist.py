"""MNIST from its four original files, in the folder that the environment variable TACIT_DATA names."""

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tacit.data.files import data_folder, read_original

_SHA256 = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}


@dataclass(frozen=True, slots=True)
class ImageData:
    """Images as bytes [n, 1, height, width] and labels [n]."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


def load_mnist(folder: str | Path | None = None) -> ImageData:
    """60,000 training and 10,000 test digits.

    Args:
        folder: where ``mnist/*.gz`` lie; by default the folder that TACIT_DATA names.
    """
    place = data_folder(folder, "mnist")
    arrays = [_read(place / name, digest) for name, digest in _SHA256.items()]
    return ImageData(*(torch.from_numpy(array if array.ndim == 1 else array[:, None]) for array in arrays))


def _read(path: Path, digest: str) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    """An idx file, checked against its published digest before it is unpacked."""
    data = gzip.decompress(read_original(path, digest))
    dimensions = data[3]
    shape = np.frombuffer(data, ">u4", dimensions, offset=4).astype(int)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(shape).copy()
