"""The demo's data: breast cancer (Wisconsin), inside scikit-learn, with bounds that were declared, not learned.

Bounds taken from private data would leak it (failure-modes F15). These are the ranges in the data set's own public
documentation, rounded outward.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

NAMES = ("malignant", "benign")
# mean, standard error and worst of: radius, texture, perimeter, area, smoothness, compactness, concavity,
# concave points, symmetry, fractal dimension. All start at 0.
UPPER_BOUNDS = (
    *(30.0, 40.0, 200.0, 2600.0, 0.2, 0.4, 0.5, 0.25, 0.35, 0.1),
    *(3.0, 5.0, 25.0, 600.0, 0.04, 0.15, 0.4, 0.06, 0.08, 0.03),
    *(40.0, 50.0, 260.0, 4500.0, 0.25, 1.1, 1.3, 0.3, 0.7, 0.22),
)
FEATURES = len(UPPER_BOUNDS) + 1


@dataclass(frozen=True, slots=True)
class Split:
    """426 private training records and 143 test records, which the demo declares public."""

    train_inputs: Tensor
    train_labels: Tensor
    test_inputs: Tensor
    test_labels: Tensor


def load(seed: int = 0) -> Split:
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import train_test_split

    values, labels = load_breast_cancer(return_X_y=True)
    parts = train_test_split(values, labels, test_size=0.25, random_state=seed, stratify=labels)
    return Split(features(parts[0]), torch.tensor(parts[2]), features(parts[1]), torch.tensor(parts[3]))


def features(values: npt.NDArray[np.float64]) -> Tensor:
    """Clamp to the bounds, take roots (the measurements are skewed), add a bias, scale each record to norm 1.

    Every step treats a record by itself, so it costs no privacy; unit norm bounds the logistic gradient by 1.
    """
    inside = np.sqrt(np.clip(values / np.array(UPPER_BOUNDS), 0, 1)) * 2 - 1
    rows = np.concatenate([inside, np.ones((len(inside), 1))], axis=1)
    return torch.tensor(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=torch.float32)
