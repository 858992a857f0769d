"""Paper M, figure 1: the largest step size of private SGLD as epsilon grows, by the theorems, by Wang, and exactly.

N = 50,000, T = 10,000, L = 1, delta = 1e-5. The theorems' constants are not printed; c = c2 = 1 here. The exact curves
need a batch size, which the paper does not give either; 256 here.
"""

import matplotlib.pyplot as plt
import numpy as np

from tacit.accountants import (
    RDPAccountant,
    SGLDTask,
    max_decreasing_step,
    max_fixed_step,
    theorem_3_bound,
    theorem_4_bound,
    wang_bound,
)
from tacit.reproduction import Work

BATCH = 256


def task(epsilon: float) -> SGLDTask:
    return SGLDTask(epsilon, 1e-5, dataset_size=50_000, steps=10_000)


def reproduce(work: Work) -> None:
    quoted = task(0.1)
    work.measure("Wang et al. at epsilon 0.1", wang_bound(quoted))
    work.measure("Wang et al. with log(T/delta)", wang_bound(quoted, "T/delta"))
    work.measure("theorem 3, first step, c2 = 1", theorem_3_bound(quoted))
    work.measure("exact first step by PLD", max_decreasing_step(quoted, BATCH, "pld"))
    work.measure("exact first step by RDP", max_decreasing_step(quoted, BATCH, "rdp"))
    classic = RDPAccountant(conversion="classic")
    work.measure("exact first step by classic moments", max_decreasing_step(quoted, BATCH, classic))
    work.measure("exact fixed step by PLD", max_fixed_step(quoted, BATCH, "pld"))
    draw(work, np.geomspace(0.02, 1.7, 4 if work.quick else 12))


def draw(work: Work, epsilons: np.ndarray) -> None:
    curves = {
        "theorem 3, first step (c2 = 1)": theorem_3_bound,
        "theorem 4, fixed (c = 1)": theorem_4_bound,
        "exact, first step": lambda one: max_decreasing_step(one, BATCH, "pld"),
        "exact, fixed": lambda one: max_fixed_step(one, BATCH, "pld"),
        "Wang et al. 2015": wang_bound,
    }
    figure, axes = plt.subplots(figsize=(6, 4))
    for name, bound in curves.items():
        axes.loglog(epsilons, [bound(task(float(epsilon))) for epsilon in epsilons], label=name)
    axes.set(xlabel="epsilon (delta = 1e-5)", ylabel="largest step size")
    axes.legend(frameon=False)
    work.picture(figure)
    plt.close(figure)
