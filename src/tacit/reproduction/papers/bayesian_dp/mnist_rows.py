"""Rows of table 1 for MNIST: DP-SGD at the paper's epsilon of 2.2, calibrated by PLD, with the CNN of paper N.

The paper trains the larger tutorial network of TensorFlow; this one takes 15 epochs instead of 50.
"""

from pathlib import Path

import torch
from bayesian_dp.accounting import DELTA, measure_privacy
from dp_bnn.mnist import BATCH, SIZE, STEPS, Setting, build_network, fit, losses, scale, train_privately

import tacit
from tacit.data import ImageData, load_mnist
from tacit.reproduction import Work

EPSILON, RATE = 2.2, 0.25


def mnist_rows(work: Work) -> None:
    baseline, name = "MNIST: baseline accuracy", f"MNIST, SGD, epsilon {EPSILON:g}"
    if work.lacks(baseline):
        work.measure(baseline, 100 * fit(work, Setting("cnn", "SGD", prior=True, private=False)).reliability.accuracy)
    if not work.lacks(f"{name}: accuracy"):
        return
    data, folder = load_mnist(), work.folder("mnist")
    evidence = tacit.EvidencePlan(probes=(data.test_images, data.test_labels))
    model, run = train_digits(data, folder, STEPS, work.seed, evidence)
    found = tacit.predict(model, run.posterior, scale(data.test_images))
    work.measure(f"{name}: accuracy", 100 * float((found.classes == data.test_labels).float().mean()))
    measure_privacy(work, name, run.ledger, folder)


def train_digits(
    data: ImageData, folder: Path, steps: int, seed: int, evidence: tacit.EvidencePlan | None = None
) -> tuple[torch.nn.Module, tacit.training.Run]:
    torch.manual_seed(seed)
    method = tacit.SGD(build_network("cnn"), losses, RATE, tacit.GaussianPrior(0.1), SIZE)
    noise = tacit.calibrate_noise(EPSILON, DELTA, probability=BATCH / SIZE, steps=STEPS).noise_multiplier
    run = train_privately(
        method, tacit.GaussianNoise(multiplier=noise), data, folder / "ledger.jsonl", steps, evidence=evidence
    )
    return method.model, run
