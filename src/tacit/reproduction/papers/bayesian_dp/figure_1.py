"""Paper B, figure 1: epsilon and the Bayesian epsilon over composed steps, noise at four quantiles of the norms.

As printed: sigma = C, q = 0.001 (the rate at which the printed DP curve comes out), lambda = 16 throughout; DP clips at
C, the Bayesian side does not clip, so that the expectation it estimates is infinite (E[exp(c d^2)] does not exist for a
Weibull of shape below 2): what is plotted is one sample's value. As it should be: both clip, both take the best lambda.
"""

import matplotlib.pyplot as plt
import numpy as np
from weibull import RECORDS, dp_epsilon, draw_norms, paper_epsilon, quantile

from tacit.accountants import guarantees
from tacit.accountants.bayesian import constant_exposure, mixture_epsilon
from tacit.ledger import Charge, GaussianSumQuery, Ledger, PoissonSample
from tacit.reproduction import Work

Q, DELTA, STEPS, PRINTED = 0.001, 1e-5, 100, (16,)
QUANTILES = (0.05, 0.25, 0.75, 0.95)


LEDGER = Ledger.planned([Charge(PoissonSample(Q, (GaussianSumQuery(1.0, 1.0),)), STEPS)])


def sound_epsilon(distances: np.ndarray) -> float:
    """A mixture of privacy losses with a betting bound on its mean (maths.md 8c): nothing is presumed of the norms."""
    return mixture_epsilon(constant_exposure(Q, np.append(distances, 1.0), STEPS), LEDGER, DELTA, gamma=1e-6)


def reproduce(work: Work) -> None:
    work.measure("DP at 100 steps, lambda 16 as printed", dp_epsilon(1.0, Q, STEPS, DELTA, PRINTED))
    work.measure("DP at 100 steps, best lambda", dp_epsilon(1.0, Q, STEPS, DELTA))
    [worst] = guarantees(LEDGER, DELTA, only=["pld"])
    work.measure("DP at 100 steps by PLD", worst.epsilon)
    norms = draw_norms(work.seed)
    figure, axes = plt.subplots(1, len(QUANTILES), figsize=(14, 3.4), sharey=True)
    for panel, level in zip(axes, QUANTILES, strict=True):
        raw = norms / quantile(level)
        clipped = np.minimum(raw, 1.0)
        found = {
            "share of records clipped": float((raw >= 1).mean()),
            "unclipped, lambda 16, as printed": paper_epsilon(raw, Q, STEPS, DELTA, PRINTED),
            "clipped, best lambda, paper's estimator": paper_epsilon(clipped, Q, STEPS, DELTA),
        }
        if not work.quick or level == QUANTILES[-1]:
            found["clipped, sound"] = sound_epsilon(clipped)
        for name, value in found.items():
            work.measure(f"quantile {level:g}: {name}", value)
        draw(panel, raw, clipped, level, 3 if work.quick else 8)
    axes[0].set(ylabel="epsilon (delta = 1e-5)")
    axes[0].legend(frameon=False, fontsize=7)
    work.picture(figure)
    plt.close(figure)
    work.note(f"{RECORDS:,} records; without clipping the Bayesian value depends on the largest norm that was drawn")


def draw(panel: plt.Axes, raw: np.ndarray, clipped: np.ndarray, level: float, points: int) -> None:
    steps = np.unique(np.geomspace(1, STEPS, points).astype(int))
    curves = {
        "DP, lambda 16 (printed)": lambda t: dp_epsilon(1.0, Q, t, DELTA, PRINTED),
        "Bayesian, unclipped, lambda 16 (printed)": lambda t: paper_epsilon(raw, Q, t, DELTA, PRINTED),
        "DP, best lambda": lambda t: dp_epsilon(1.0, Q, t, DELTA),
        "Bayesian, clipped, best lambda": lambda t: paper_epsilon(clipped, Q, t, DELTA),
    }
    for name, curve in curves.items():
        panel.semilogy(steps, [curve(int(t)) for t in steps], label=name)
    panel.set(xlabel="steps", title=f"noise at the {level:g} quantile", ylim=(0.05, 1e4))
