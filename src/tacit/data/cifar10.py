"""CIFAR-10: from its binary archive, which holds no pickles, or from lossless sheets of the same images."""

from pathlib import Path

import numpy as np
import torch

from tacit.data.archives import untar
from tacit.data.files import Original, data_folder
from tacit.data.mnist import ImageData
from tacit.data.sheets import read_labels, read_sheet

_ARCHIVE = Original(
    "cifar-10-binary.tar.gz",
    "c32a1d4ab5d03f1284b67883e8d87530",  # md5, the only digest that was published
    most=180_000_000,
    urls=("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
)
_BATCHES = tuple(f"cifar-10-batches-bin/data_batch_{number}.bin" for number in range(1, 6))
_TEST = "cifar-10-batches-bin/test_batch.bin"
_EACH, _IMAGE = 10_000, 3 * 32 * 32
_SHEETS = (
    Original("data_batch_1.webp", "7862ba6f532eb26481636723b49a74914d0a8186dde88a2afa9047668b1214b8"),
    Original("data_batch_2.webp", "223eb5388d46cd9050b630ada011bb521e9e66e56f8922c4e3c90068bfb4de74"),
    Original("data_batch_3.webp", "72340f10fb016c6a6f645cbf5e19c99d4d83b500574b3838a6850d00fc20b354"),
    Original("data_batch_4.webp", "b5646e97fe600f24a0e4662426280aa23704f9e04033e7beab0808a51212f814"),
    Original("data_batch_5.webp", "20fd741c090103a8703cd393ed42c0b9bb55c84a099564b3a290171531a473f9"),
    Original("test_batch.webp", "5fb7e1221ce9526ce00d6f53ad5e520f96044b42580400979c573f910e687a8e"),
)
_LABELS = Original("labels.npz", "100457827cb30b2869dbdce3761c5279714820de9a8c6fa4d0dcc7cbc3037527")


def load_cifar10(folder: str | Path | None = None, *, download: bool = False) -> ImageData:
    """50,000 training and 10,000 test photographs of ten kinds of things, [n, 3, 32, 32] (Krizhevsky 2009).

    Args:
        folder: where ``cifar10/`` lies, by default the folder that TACIT_DATA names. It holds the original
            cifar-10-binary.tar.gz, or sheets of its images (data_batch_1.webp and so on), which need pillow.
        download: fetch the archive if neither is there.
    """
    place = data_folder(folder, "cifar10")
    if (place / _LABELS.name).exists() and not (place / _ARCHIVE.name).exists():
        return _from_sheets(place)
    return parse_archive(_ARCHIVE.read(place, download), _ARCHIVE.name)


def parse_archive(data: bytes, name: str) -> ImageData:
    """The images of the binary archive: each is a byte of class, then the red, green and blue planes."""
    size = _EACH * (1 + _IMAGE)
    files = untar(data, dict.fromkeys((*_BATCHES, _TEST), size), name)
    parts = [np.frombuffer(files[member], np.uint8).reshape(_EACH, 1 + _IMAGE) for member in (*_BATCHES, _TEST)]
    train, test = np.concatenate(parts[:-1]), parts[-1]
    tables = [(table[:, 1:].reshape(-1, 3, 32, 32), table[:, 0]) for table in (train, test)]
    return ImageData(*(torch.from_numpy(part.copy()) for table in tables for part in table))


def _from_sheets(place: Path) -> ImageData:
    labels = read_labels(_LABELS.read(place))
    images = [read_sheet(sheet.read(place), _EACH, sheet.name) for sheet in _SHEETS]
    return ImageData(torch.cat(images[:-1]), labels["train"], images[-1], labels["test"])
