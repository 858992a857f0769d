"""Paper N's setting: a small CNN on MNIST by DP-SGD, about 95 % at epsilon 0.8645 (PLD, delta 1e-5).

Run with ``TACIT_DATA`` naming the data folder: ``python examples/mnist_cnn.py [--steps N] [--out FOLDER]``.
A user's own loop, model and optimizer; three lines are Tacit's.
"""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import tacit
from tacit.data import load_mnist

BATCH, SIZE, EPOCHS, CLIP_NORM, NOISE, RATE, DELTA = 256, 60_000, 15, 1.5, 1.3, 0.25, 1e-5


def build_cnn() -> nn.Module:
    """The tutorial network of the DP libraries, which paper N uses: 26,010 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def losses(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return cross_entropy(model(scale(batch[0])), batch[1].long(), reduction="none")


def scale(images: torch.Tensor) -> torch.Tensor:
    """Public constants of MNIST; to learn them from private data would cost privacy."""
    return (images.float() / 255 - 0.1307) / 0.3081


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=-(-EPOCHS * SIZE // BATCH))
    arguments.add_argument("--out", type=Path, default=Path("runs/mnist-cnn"))
    options = arguments.parse_args()
    data = load_mnist()
    model = build_cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    private = tacit.PrivateGradient(
        model, losses, tacit.PoissonSampling.of(batch_size=BATCH, dataset_size=SIZE),
        tacit.ClipRecords(CLIP_NORM), tacit.GaussianNoise(multiplier=NOISE),
        ledger=options.out / "ledger.jsonl", dataset="mnist",
    )  # fmt: skip
    for batch in private.samples((data.train_images, data.train_labels), steps=options.steps):
        optimizer.zero_grad()
        private.backward(batch)
        optimizer.step()
        if batch.step % 500 == 499:
            print(f"step {batch.step + 1}: epsilon so far {private.epsilon(DELTA):.4f}", flush=True)
    private.close()
    with torch.no_grad():
        accuracy = (model(scale(data.test_images)).argmax(1) == data.test_labels).float().mean()
    replayed = tacit.guarantees(tacit.read_ledger(options.out), DELTA)
    print(f"test accuracy {accuracy:.2%}")
    for guarantee in replayed:
        print(f"replayed from the ledger: {guarantee.accountant} epsilon {guarantee.epsilon:.4f} at delta {DELTA:g}")


if __name__ == "__main__":
    main()
