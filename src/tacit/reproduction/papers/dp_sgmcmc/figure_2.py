"""Paper M, figure 2: how the largest step size follows the number of records N and the Lipschitz constant L.

delta = 1/N and T = N, as in the paper; first step of a t^(-1/3) schedule, exactly by RDP at a sampling rate of 256/N
(the paper gives no batch size) beside theorem 3 with c2 = 1. The paper reads its bound as stable in N and in proportion
to 1/L; its own formula says 1/L^2, and so does the exact answer.
"""

import matplotlib.pyplot as plt
import numpy as np

from tacit.accountants import SGLDTask, max_decreasing_step, theorem_3_bound
from tacit.reproduction import Work

SIZES = (1_000, 10_000, 100_000, 1_000_000)
LIPSCHITZ = (0.1, 0.5, 1.0, 10.0)
BATCH = 256


def task(epsilon: float, size: int = 10_000, lipschitz: float = 1.0) -> SGLDTask:
    return SGLDTask(epsilon, 1 / size, dataset_size=size, steps=size, lipschitz=lipschitz)


def exact(one: SGLDTask) -> float:
    return max_decreasing_step(one, BATCH, "rdp")


def reproduce(work: Work) -> None:
    by_size = {size: exact(task(0.1, size)) for size in SIZES}
    for size, step in by_size.items():
        work.measure(f"N = {size:,}, L = 1, epsilon 0.1", step)
    for lipschitz in LIPSCHITZ:
        work.measure(f"N = 10,000, L = {lipschitz:g}, epsilon 0.1", exact(task(0.1, lipschitz=lipschitz)))
    halved = exact(task(0.1, lipschitz=0.5)) / exact(task(0.1, lipschitz=1.0))
    work.measure("power of 1/L", float(np.log2(halved)))
    largest, smallest = max(by_size.values()), min(by_size.values())
    work.measure("largest over smallest step as N grows a thousandfold", largest / smallest)
    draw(work, np.geomspace(0.02, 1.7, 3 if work.quick else 8))


def draw(work: Work, epsilons: np.ndarray) -> None:
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(6, 7), sharex=True)
    for size in SIZES:
        _curve(top, epsilons, f"N = {size:,}", size=size)
    for lipschitz in LIPSCHITZ:
        _curve(bottom, epsilons, f"L = {lipschitz:g}", lipschitz=lipschitz)
    bottom.set(xlabel="epsilon (delta = 1/N)")
    for axes in (top, bottom):
        axes.set(ylabel="largest first step")
        axes.legend(frameon=False, title="exact (line), theorem 3 (dots)")
    work.picture(figure)
    plt.close(figure)


def _curve(axes: plt.Axes, epsilons: np.ndarray, label: str, **facts: float) -> None:
    [line] = axes.loglog(epsilons, [exact(task(float(epsilon), **facts)) for epsilon in epsilons], label=label)
    bounds = [theorem_3_bound(task(float(epsilon), **facts)) for epsilon in epsilons]
    axes.loglog(epsilons, bounds, ":", color=line.get_color())
