"""Bayes by Backprop and MC dropout on MNIST, at the budget of paper N: epsilon 0.8645 (PLD, delta 1e-5).

Run with ``TACIT_DATA`` naming the data folder: ``python examples/mnist_bayes.py bbp`` or ``dropout``; options below.
The network is that of ``mnist_cnn.py``; prints accuracy and calibration of the posterior's averaged predictions, about
96 % with an ECE below .01 (docs/how-to/methods.md), in some four minutes on one core.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import tacit
from tacit.data import load_mnist

BATCH, SIZE, EPOCHS, CLIP_NORM, NOISE, DELTA = 256, 60_000, 15, 1.5, 1.3, 1e-5


def build_cnn(dropout: float = 0.0) -> nn.Module:
    """The tutorial network of the DP libraries, which paper N uses, with dropout before its linear layers."""
    layers = [
        nn.Conv2d(1, 16, 8, stride=2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Dropout(dropout), nn.Linear(512, 32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, 10),
    ]  # fmt: skip
    return nn.Sequential(*(layer for layer in layers if dropout or not isinstance(layer, nn.Dropout)))


def losses(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return cross_entropy(model(scale(batch[0])), batch[1].long(), reduction="none")


def scale(images: torch.Tensor) -> torch.Tensor:
    """Public constants of MNIST; to learn them from private data would cost privacy."""
    return (images.float() / 255 - 0.1307) / 0.3081


def build_method(options: argparse.Namespace) -> tacit.VariationalInference | tacit.MCDropout:
    prior = tacit.GaussianPrior(options.prior) if options.prior else tacit.inference.FlatPrior()
    if options.method == "bbp":
        return tacit.bayes_by_backprop(
            build_cnn(), losses, dataset_size=SIZE, learning_rate=options.rate, prior=prior,
            initial_stddev=options.stddev, average=options.average,
        )  # fmt: skip
    descent = tacit.inference.PlainDescent(options.rate)
    return tacit.MCDropout(build_cnn(options.dropout), losses, descent, prior, SIZE, average=options.average)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("method", choices=["bbp", "dropout"])
    arguments.add_argument("--steps", type=int, default=-(-EPOCHS * SIZE // BATCH))
    arguments.add_argument("--rate", type=float, default=0.25)
    arguments.add_argument("--prior", type=float, default=0.1, help="standard deviation; 0 for none")
    arguments.add_argument("--stddev", type=float, default=0.02, help="initial standard deviation of weights (bbp)")
    arguments.add_argument("--dropout", type=float, default=0.05)
    arguments.add_argument("--average", type=float, default=0.99, help="how much of the running average is kept")
    arguments.add_argument("--draws", type=int, default=100, help="how many draws a prediction averages over")
    arguments.add_argument("--out", type=Path, default=Path("runs/mnist-bayes"))
    options = arguments.parse_args()
    data = load_mnist()
    method = build_method(options)
    plan = tacit.TrainingPlan(
        tacit.PoissonSampling.of(batch_size=BATCH, dataset_size=SIZE), tacit.ClipRecords(CLIP_NORM),
        tacit.GaussianNoise(multiplier=NOISE), options.steps, options.out / "ledger.jsonl", dataset="mnist",
    )  # fmt: skip
    run = tacit.train(method, (data.train_images, data.train_labels), plan)
    posterior = replace(run.posterior, draws=options.draws)
    prediction = tacit.predict(method.model, posterior, scale(data.test_images))
    found = tacit.reliability(prediction.mean, data.test_labels)
    print(f"{options.method}: accuracy {found.accuracy:.2%}, ECE {found.ece:.4f}, MCE {found.mce_of_filled_bins:.4f}")
    [guarantee] = tacit.guarantees(tacit.read_ledger(options.out), DELTA, only=["pld"])
    print(f"replayed from the ledger: pld epsilon {guarantee.epsilon:.4f} at delta {DELTA:g}")


if __name__ == "__main__":
    main()
