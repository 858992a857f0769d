"""Adult (UCI census income, 1994), as unit-norm features that use nothing but what its documentation declares.

Levels are those of ``adult.names``; bounds and bins are round numbers chosen without the data. Levels and values
outside them count as unknown or as the nearest bound, so no row can change the features of another.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tacit.data.files import Original, data_folder

_SHA256 = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
}
_LEVELS = {
    1: "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked",
    3: "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th Masters 1st-4th 10th "
    "Doctorate 5th-6th Preschool",
    5: "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent Married-AF-spouse",
    6: "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
    "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv Armed-Forces",
    7: "Wife Own-child Husband Not-in-family Other-relative Unmarried",
    8: "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
    9: "Female Male",
    13: "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India Japan Greece South "
    "China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico Portugal Ireland France "
    "Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand Yugoslavia "
    "El-Salvador Trinadad&Tobago Peru Hong Holand-Netherlands",
}
_BOUNDS = {0: (15.0, 90.0), 4: (1.0, 16.0), 12: (0.0, 100.0)}
_BINS = {
    0: (20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70),
    10: (1, 2000, 3500, 4500, 5500, 7000, 10_000, 20_000),
    11: (1, 1500, 1700, 1850, 2000, 2300, 2600),
    12: (10, 20, 30, 36, 40, 41, 45, 50, 55, 60),
}
_COLUMNS = 15
_PLACE = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"


@dataclass(frozen=True, slots=True)
class TableData:
    """Features [n, d], each row of norm 1, and labels [n]: classes, or numbers to predict."""

    train_inputs: Tensor
    train_labels: Tensor
    test_inputs: Tensor
    test_labels: Tensor


def load_adult(folder: str | Path | None = None, *, download: bool = False) -> TableData:
    """Whether a person earns more than 50,000 dollars: 32,561 rows for training and 16,281 for testing.

    Args:
        folder: where ``adult/adult.data`` and ``adult/adult.test`` lie; by default the folder that TACIT_DATA names.
        download: fetch what is not there.
    """
    place = data_folder(folder, "adult")
    originals = [Original(name, digest, urls=(_PLACE + name,)) for name, digest in _SHA256.items()]
    parts = [_table(original.read(place, download).decode("ascii")) for original in originals]
    return TableData(*parts[0], *parts[1])


def _table(text: str) -> tuple[Tensor, Tensor]:
    rows = [[value.strip() for value in line.split(",")] for line in text.splitlines()]
    rows = [row for row in rows if len(row) == _COLUMNS]
    columns = list(zip(*rows, strict=True))
    parts = [np.ones((len(rows), 1), dtype=np.float32)]
    for number, levels in _LEVELS.items():
        parts.append(np.asarray(columns[number])[:, None] == np.asarray(levels.split()))
    for number, (low, high) in _BOUNDS.items():
        parts.append(
            2 * (np.clip(np.asarray(columns[number], dtype=float)[:, None], low, high) - low) / (high - low) - 1
        )
    for number, edges in _BINS.items():
        place = np.digitize(np.asarray(columns[number], dtype=float), edges)
        parts.append(place[:, None] == np.arange(len(edges) + 1))
    inputs = np.concatenate([part.astype(np.float32) for part in parts], axis=1)
    inputs /= np.linalg.norm(inputs, axis=1, keepdims=True)
    labels = np.char.startswith(np.asarray(columns[-1]), ">50K").astype(np.int64)
    return torch.from_numpy(inputs), torch.from_numpy(labels)
