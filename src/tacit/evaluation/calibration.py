"""Calibration of class probabilities: does a confidence of 80 % mean right in 80 % of the cases?

ECE = sum_m |B_m|/n |acc(B_m) - conf(B_m)| and MCE = max_m |acc(B_m) - conf(B_m)| over M equal bins (Zhang et al. 2021,
C.1).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.errors import InputError, check_count

ENOUGH = 25  # a bin with fewer records says nothing: over all bins the MCE is noise


@dataclass(frozen=True, slots=True)
class Reliability:
    """The reliability diagram as numbers: per bin the count, accuracy and mean confidence (NaN where empty)."""

    counts: Tensor
    accuracies: Tensor
    confidences: Tensor

    @property
    def accuracy(self) -> float:
        return float((self.counts * self.accuracies.nan_to_num()).sum() / self.counts.sum())

    @property
    def ece(self) -> float:
        return float((self.counts * self._gaps()).sum() / self.counts.sum())

    @property
    def mce(self) -> float:
        return float(self._gaps().max())

    @property
    def mce_of_filled_bins(self) -> float | None:
        """MCE over bins with at least 25 records; None if there is no such bin."""
        filled = self.counts >= ENOUGH
        return float(self._gaps()[filled].max()) if bool(filled.any()) else None

    def _gaps(self) -> Tensor:
        return (self.accuracies - self.confidences).abs().nan_to_num()


def reliability(probabilities: Tensor, labels: Tensor, bins: int = 15) -> Reliability:
    """Sort predictions into equal bins of confidence and compare with what came true.

    Example:
        >>> round(reliability(torch.tensor([[0.1, 0.9], [0.2, 0.8]]), torch.tensor([1, 1])).ece, 3)
        0.15
    """
    check_probabilities(probabilities, labels)
    check_count("bins", bins)
    confidence, classes = probabilities.double().max(1)
    right = (classes == labels).double()
    index = (confidence * bins).ceil().long().clamp(1, bins) - 1  # bins are (k/M, (k+1)/M]
    counts = torch.zeros(bins, dtype=torch.float64).index_add_(0, index, torch.ones_like(right))
    accuracies = torch.zeros(bins, dtype=torch.float64).index_add_(0, index, right) / counts
    confidences = torch.zeros(bins, dtype=torch.float64).index_add_(0, index, confidence) / counts
    return Reliability(counts, accuracies, confidences)


def check_probabilities(probabilities: Tensor, labels: Tensor) -> None:
    """One row of probabilities and one class for each record."""
    if probabilities.dim() != 2 or len(probabilities) != len(labels) or len(labels) == 0:
        raise InputError(f"probabilities {list(probabilities.shape)} need as many labels as rows, found {len(labels)}")
    if labels.is_floating_point():
        raise InputError(f"labels must be whole numbers, one class for each record, found {labels.dtype}")
    if not bool(((probabilities >= 0) & (probabilities <= 1 + 1e-6)).all()):  # NaN is neither
        raise InputError("probabilities must lie in [0, 1], found some outside or NaN")
    if int(labels.min()) < 0 or int(labels.max()) >= probabilities.shape[1]:
        raise InputError(f"labels must lie in 0 to {probabilities.shape[1] - 1}, found {int(labels.max())}")


def draw_reliability(axes: Any, result: Reliability, title: str) -> None:
    """A reliability diagram: accuracy against confidence, with the share of records in each bin beneath it."""
    bins = len(result.counts)
    centres = (np.arange(bins) + 0.5) / bins
    share = (result.counts / result.counts.sum()).numpy()
    axes.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=1, label="perfect")
    axes.bar(centres, share, width=0.9 / bins, color="#c6d5e8", label="share of records")
    axes.plot(result.confidences.numpy(), result.accuracies.numpy(), "o-", color="#1f5a99", label="accuracy")
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="confidence", ylabel="accuracy", title=title)
    axes.legend(loc="upper left", frameon=False)
