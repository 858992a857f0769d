"""MNIST and Fashion-MNIST from their original files, in the folder that the environment variable TACIT_DATA names."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tacit.data.archives import gunzip
from tacit.data.files import Original, data_folder
from tacit.errors import InputError

_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
_SHA256 = {
    "mnist": (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
    "fashion-mnist": (
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
}
_PLACES = {
    "mnist": (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    "fashion-mnist": ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
}
_LARGEST_FILE = 1 << 26  # bytes of a file once unpacked; the largest has 47 million


@dataclass(frozen=True, slots=True)
class ImageData:
    """Images as bytes [n, channels, height, width] and labels [n]."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


def load_mnist(folder: str | Path | None = None, *, download: bool = False) -> ImageData:
    """60,000 training and 10,000 test digits.

    Args:
        folder: where ``mnist/*.gz`` lie; by default the folder that TACIT_DATA names.
        download: fetch what is not there.
    """
    return _load("mnist", folder, download)


def load_fashion_mnist(folder: str | Path | None = None, *, download: bool = False) -> ImageData:
    """60,000 training and 10,000 test pictures of clothes, in the form of MNIST: inputs that a digit model cannot know.

    Args:
        folder: where ``fashion-mnist/*.gz`` lie; by default the folder that TACIT_DATA names.
        download: fetch what is not there.
    """
    return _load("fashion-mnist", folder, download)


def _load(name: str, folder: str | Path | None, download: bool) -> ImageData:
    place = data_folder(folder, name)
    arrays = []
    for file, digest in zip(_FILES, _SHA256[name], strict=True):
        original = Original(file, digest, urls=tuple(url + file for url in _PLACES[name]))
        arrays.append(read_idx(gunzip(original.read(place, download), _LARGEST_FILE, file), file))
    return ImageData(*(torch.from_numpy(array if array.ndim == 1 else array[:, None]) for array in arrays))


def read_idx(data: bytes, name: str) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    """An idx file of bytes: two zeros, the type 8, the number of dimensions, each of them, then the values."""
    dimensions = data[3] if len(data) >= 4 and data[:3] == b"\0\0\x08" else 0
    start = 4 + 4 * dimensions
    shape = [int(size) for size in np.frombuffer(data[4:start], ">u4")] if dimensions and len(data) >= start else []
    if not shape or math.prod(shape) != len(data) - start:
        raise InputError(f"{name} is not an idx file of bytes, or not a whole one")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape).copy()
