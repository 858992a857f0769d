"""Paper B, figure 4: noise against epsilon when DP clips at the noise's quantile and Bayesian DP does not clip at all.

The paper finds the unclipped curves "less consistent". They have to be: the expectation they estimate is infinite, so a
curve is a property of the sample drawn. Two samples are drawn here, and how far they lie apart is the row.
"""

import matplotlib.pyplot as plt
import numpy as np
from weibull import dp_epsilon, draw_norms, paper_epsilon, quantile

from tacit.reproduction import Work

Q, DELTA, STEPS = 64 / 60_000, 1e-5, 10_000
QUANTILES = (0.05, 0.5, 0.95)


def reproduce(work: Work) -> None:
    samples, sigmas = [draw_norms(work.seed), draw_norms(work.seed + 1)], np.geomspace(0.7, 4, 4 if work.quick else 12)
    figure, axes = plt.subplots(1, len(QUANTILES), figsize=(12, 3.6), sharey=True)
    for panel, level in zip(axes, QUANTILES, strict=True):
        scale = quantile(level)
        curves = [np.array([paper_epsilon(norms / (scale * s), Q, STEPS, DELTA) for s in sigmas]) for norms in samples]
        dp = np.array([dp_epsilon(sigma, Q, STEPS, DELTA) for sigma in sigmas])
        work.measure(f"quantile {level:g}: Bayesian over DP at the most noise", float(curves[0][-1] / dp[-1]))
        apart = float(np.max(np.maximum(curves[0] / curves[1], curves[1] / curves[0])))
        work.measure(f"quantile {level:g}: two samples apart by a factor of up to", apart)
        panel.plot(sigmas, dp, label="DP, clipped")
        for number, curve in enumerate(curves, start=1):
            panel.plot(sigmas, curve, label=f"Bayesian DP, unclipped, sample {number}")
        panel.set(xlabel="sigma", title=f"noise at the {level:g} quantile", yscale="log")
    axes[0].set(ylabel="epsilon (delta = 1e-5)")
    axes[0].legend(frameon=False, fontsize=8)
    work.picture(figure)
    plt.close(figure)
