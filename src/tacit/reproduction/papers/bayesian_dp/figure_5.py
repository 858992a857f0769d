"""Paper B, figure 5: epsilon as a function of lambda, at q = 64/60000, sigma = 1, 10,000 steps, delta = 1e-5.

The distances are fixed at the clip C, so that this is the moments accountant; the best lambda lies far out when C is
small, beyond the range that is usually searched.
"""

import math

import matplotlib.pyplot as plt
import numpy as np

from tacit.accountants.bayesian import privacy_costs
from tacit.reproduction import Work

PROBABILITY, STEPS, DELTA = 64 / 60_000, 10_000, 1e-5
CLIPS = (0.1, 0.7, 1.0)


def epsilons(clip: float, moments: np.ndarray) -> np.ndarray:
    """(sum of costs + log 1/delta) / lambda, the paper's conversion."""
    [costs] = privacy_costs(PROBABILITY, [clip], moments)
    return (STEPS * costs - math.log(DELTA)) / moments


def reproduce(work: Work) -> None:
    figure, axes = plt.subplots(figsize=(6, 4))
    for clip in CLIPS:
        moments = np.arange(1, 700 if clip < 0.5 else 100)
        found = epsilons(clip, moments)
        work.measure(f"C = {clip:g}: best epsilon", found.min())
        work.measure(f"C = {clip:g}: best lambda", moments[found.argmin()])
        if clip == 1.0:
            work.measure("C = 1, lambda 8", found[7])
            work.measure("C = 1, lambda 16", found[15])
        axes.loglog(moments, found, label=f"C = {clip:g}")
    axes.set(xlabel="lambda", ylabel="epsilon", ylim=(0.03, 1e5))
    axes.legend(frameon=False)
    work.picture(figure)
    plt.close(figure)
