"""Paper N, figure 2: what batch size and learning rate do to accuracy and epsilon, for DP-SGD and DP-SGLD with the CNN.

15 epochs and clip 1.5; DP-SGD's noise multiplier is 1.3, DP-SGLD's follows from its step size (theorem 1). The formula
that section C.3 prints for it, B / sqrt(n eta C), has C under the root; theorem 1 has B / (sqrt(n eta) C).
"""

import math

import matplotlib.pyplot as plt
import torch
from dp_bnn.mnist import BATCH, CLIP_NORM, DELTA, NOISE, SIZE, build_network, losses, scale, train_privately

import tacit
from tacit.data import load_mnist
from tacit.inference import sgld_noise_multiplier
from tacit.reproduction import Work

RATE, EPOCHS = 0.25, 15
BATCHES, RATES = (128, 256, 512, 1024), (0.1, 0.25, 0.5)


def noise_multiplier(method: str, batch: int, rate: float) -> float:
    if method == "DP-SGD":
        return NOISE
    return sgld_noise_multiplier(rate / SIZE, batch_size=batch, dataset_size=SIZE, clip_norm=CLIP_NORM, temperature=0.5)


def epsilon(method: str, batch: int, rate: float) -> float:
    query = tacit.ledger.GaussianSumQuery(1.0, noise_multiplier(method, batch, rate))
    sample = tacit.ledger.PoissonSample(batch / SIZE, (query,))
    [found] = tacit.guarantees(
        tacit.ledger.Ledger.planned([tacit.ledger.Charge(sample, _steps(batch))]), DELTA, only=["pld"]
    )
    return found.epsilon


def _steps(batch: int) -> int:
    return -(-EPOCHS * SIZE // batch)


def accuracy(work: Work, method: str, batch: int, rate: float) -> float:
    """Of the last iterate; DP-SGLD is trained as the DP-SGD that theorem 1 says it is."""
    data, ledger = load_mnist(), work.folder(f"{method}-{batch}-{rate:g}".lower()) / "ledger.jsonl"
    torch.manual_seed(work.seed)
    noise = tacit.GaussianNoise(multiplier=noise_multiplier(method, batch, rate))
    descent = tacit.SGD(build_network("cnn"), losses, rate)
    run = train_privately(descent, noise, data, ledger, 2 if work.quick else _steps(batch), batch)
    found = tacit.predict(descent.model, run.posterior, scale(data.test_images))
    return 100 * float((found.classes == data.test_labels).float().mean())


def reproduce(work: Work) -> None:
    printed = BATCH / math.sqrt(SIZE * RATE * CLIP_NORM)
    work.measure("DP-SGLD's noise multiplier at batch 256, as C.3 prints it", printed)
    work.measure("DP-SGLD's noise multiplier at batch 256, by theorem 1", noise_multiplier("DP-SGLD", BATCH, RATE))
    figure, axes = plt.subplots(2, 2, figsize=(10, 7))
    for method in ("DP-SGD", "DP-SGLD"):
        points = [[(batch, RATE) for batch in BATCHES], [(BATCH, rate) for rate in RATES]]
        for column, (axis, line) in enumerate(zip(("batch size", "learning rate"), points, strict=True)):
            costs = [epsilon(method, *point) for point in line]
            work.measure(f"{method}: epsilon at the largest {axis} over that at the smallest", costs[-1] / costs[0])
            found = [_measure(work, method, point, cost) for point, cost in zip(line, costs, strict=True)]
            values = [point[column] for point in line]
            for row, (name, ys) in enumerate((("test accuracy, %", found), ("epsilon (PLD, delta 1e-5)", costs))):
                axes[row, column].plot(values, ys, "o-", label=method)
                axes[row, column].set(xlabel=axis, ylabel=name, xscale="log")
                axes[row, column].set_xticks(values, [f"{value:g}" for value in values])
                axes[row, column].minorticks_off()
    axes[0, 0].legend(frameon=False)
    figure.tight_layout()
    work.picture(figure)
    plt.close(figure)


def _measure(work: Work, method: str, point: tuple[int, float], cost: float) -> float:
    name = f"{method}, batch {point[0]}, rate {point[1]:g}"
    work.measure(f"{name}: epsilon", cost)
    row = f"{name}: accuracy"
    if work.lacks(row) and (not work.quick or point == (BATCH, RATE)):
        work.measure(row, accuracy(work, method, *point))
    return next((result.value for result in work.results if result.row == row), math.nan)
