"""Abalone (UCI, 1995): the age of a shellfish from its size and weight, as unit-norm features with declared bounds.

The bounds are round numbers chosen without the data; values outside count as the nearest bound, a sex that is not in
``abalone.names`` as unknown, so no row can change the features of another.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tacit.data.adult import TableData
from tacit.data.files import Original, data_folder
from tacit.errors import InputError

_FILE = Original(
    "abalone.data",
    "de37cdcdcaaa50c309d514f248f7c2302a5f1f88c168905eba23fe2fbc78449f",
    1 << 20,
    ("https://archive.ics.uci.edu/ml/machine-learning-databases/abalone/abalone.data",),
)
_SEXES = ("M", "F", "I")
_LARGEST = (1.0, 1.0, 0.5, 3.0, 1.5, 1.0, 1.5)  # lengths and weights, in the file's units of 200 mm and 200 g
_TRAIN = 3_133  # the split that abalone.names reports results for; the other 1,044 rows test


def load_abalone(folder: str | Path | None = None, *, download: bool = False) -> TableData:
    """The number of rings (age in years less 1.5) of 3,133 abalones for training and 1,044 for testing.

    Args:
        folder: where ``abalone/abalone.data`` lies; by default the folder that TACIT_DATA names.
        download: fetch what is not there.
    """
    inputs, rings = parse_table(_FILE.read(data_folder(folder, "abalone"), download).decode("ascii"))
    return TableData(inputs[:_TRAIN], rings[:_TRAIN], inputs[_TRAIN:], rings[_TRAIN:])


def parse_table(text: str) -> tuple[Tensor, Tensor]:
    """Features [n, 11], each row of norm 1, and rings [n]."""
    rows = [line.split(",") for line in text.splitlines() if line]
    try:
        numbers = np.array([[float(value) for value in row[1:]] for row in rows], dtype=float)
        sexes = np.array([[row[0] == sex for sex in _SEXES] for row in rows], dtype=float)
    except ValueError as error:
        raise InputError(f"the table of abalones holds what is not a number: {error}") from error
    if numbers.ndim != 2 or numbers.shape[1] != len(_LARGEST) + 1 or not np.isfinite(numbers).all():
        raise InputError("the table of abalones needs a sex and eight numbers in every row")
    scaled = 2 * np.clip(numbers[:, :-1] / np.asarray(_LARGEST), 0, 1) - 1
    inputs = np.concatenate([np.ones((len(rows), 1)), sexes, scaled], axis=1)
    inputs /= np.linalg.norm(inputs, axis=1, keepdims=True)
    return torch.from_numpy(inputs.astype(np.float32)), torch.from_numpy(numbers[:, -1].astype(np.float32))
