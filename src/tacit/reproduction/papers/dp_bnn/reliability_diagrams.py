"""Reliability diagrams of many fits, for figures 8 and 9."""

import matplotlib.pyplot as plt
from dp_bnn.mnist import Setting, fit

from tacit.evaluation import draw_reliability
from tacit.reproduction import Work


def draw_diagrams(work: Work, rows: list[list[Setting]]) -> None:
    """A panel for each; what it shows in one number is how far confidence exceeds accuracy on the whole."""
    figure, axes = plt.subplots(len(rows), len(rows[0]), figsize=(4.5 * len(rows[0]), 4 * len(rows)), squeeze=False)
    for panel, setting in zip(axes.flat, (setting for row in rows for setting in row), strict=True):
        names = [f"{setting.name}: {name}" for name in ("ECE", "confidence over accuracy")]
        if not work.wants(*names):
            continue
        found = fit(work, setting)
        told = found.reliability
        work.measure(names[0], told.ece)
        work.measure(names[1], float(found.mean.max(1).values.double().mean()) - told.accuracy)
        draw_reliability(panel, told, f"{setting.name}, ECE {told.ece:.3f}")
    figure.tight_layout()
    work.picture(figure)
    plt.close(figure)
