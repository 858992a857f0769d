"""Paper B, figure 3: noise against epsilon when both DP and Bayesian DP clip, at three quantiles of the norms.

q = 64/60000 and 10,000 steps, as in its figure 5. The claim: at the same epsilon Bayesian DP never needs more noise,
and the two curves meet when nearly every record is clipped.
"""

import matplotlib.pyplot as plt
import numpy as np
from weibull import dp_epsilon, draw_norms, paper_epsilon, quantile

from tacit.reproduction import Work

Q, DELTA, STEPS = 64 / 60_000, 1e-5, 10_000
QUANTILES = (0.01, 0.5, 0.99)


def reproduce(work: Work) -> None:
    norms, sigmas = draw_norms(work.seed), np.geomspace(0.7, 4, 4 if work.quick else 12)
    figure, axes = plt.subplots(1, len(QUANTILES), figsize=(12, 3.6), sharey=True)
    for panel, level in zip(axes, QUANTILES, strict=True):
        shares = np.minimum(norms / quantile(level), 1.0)
        dp = np.array([dp_epsilon(sigma, Q, STEPS, DELTA) for sigma in sigmas])
        bayesian = np.array([paper_epsilon(shares / sigma, Q, STEPS, DELTA) for sigma in sigmas])
        work.measure(f"quantile {level:g}: largest Bayesian epsilon over DP's", float((bayesian / dp).max()))
        work.measure(f"quantile {level:g}: Bayesian over DP at sigma 1", _at(sigmas, bayesian / dp, 1.0))
        panel.plot(sigmas, dp, label="DP")
        panel.plot(sigmas, bayesian, label="Bayesian DP, paper's estimator")
        panel.set(xlabel="sigma", title=f"clipped at the {level:g} quantile", yscale="log")
    axes[0].set(ylabel="epsilon (delta = 1e-5)")
    axes[0].legend(frameon=False)
    work.picture(figure)
    plt.close(figure)


def _at(xs: np.ndarray, ys: np.ndarray, x: float) -> float:
    return float(np.interp(x, xs, ys))
