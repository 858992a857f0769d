"""Pictures of how good predictions are."""

from typing import Any

import numpy as np

from tacit.evaluation.calibration import Reliability


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
