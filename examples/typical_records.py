"""What does a run cost everybody, a typical record, and nine people out of ten? Side by side, on Adult or MNIST.

Run with ``TACIT_DATA`` naming the data folder: ``python examples/typical_records.py [adult|mnist] [--steps N]``.
Held-out records serve as probes; their numbers are private diagnostics for the data holder
(docs/explanation/bayesian-privacy.md).
"""

import argparse
from pathlib import Path

import torch
from mnist_cnn import build_cnn
from mnist_cnn import losses as digit_losses
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

import tacit
from tacit.data import load_adult, load_mnist

DELTA = 1e-5


def income_losses(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return binary_cross_entropy_with_logits(model(batch[0])[:, 0], batch[1].float(), reduction="none")


def adult(steps: int | None, out: Path) -> None:
    """Bayesian logistic regression at epsilon 0.5: the clip is the largest norm a record can have."""
    data = load_adult()
    size, probability, steps = len(data.train_labels), 0.05, steps or 300
    model = nn.Linear(data.train_inputs.shape[1], 1, bias=False)
    nn.init.zeros_(model.weight)
    noise = tacit.calibrate_noise(0.5, DELTA, probability=probability, steps=steps).noise_multiplier
    method = tacit.SGLD(
        model, income_losses, tacit.GaussianPrior(3.0), step_size=25 / size, dataset_size=size, temperature=None
    )
    plan = tacit.TrainingPlan(
        tacit.PoissonSampling(probability=probability, expected_size=probability * size), tacit.ClipRecords(1.0),
        tacit.GaussianNoise(multiplier=noise), steps, out / "ledger.jsonl", dataset="adult", physical_batch=4096,
    )  # fmt: skip
    probes = tacit.EvidencePlan(probes=(data.test_inputs, data.test_labels), probe_every=1, members=True)
    run = tacit.train(method, (data.train_inputs, data.train_labels), plan, keep_last=min(50, steps), evidence=probes)
    prediction = tacit.predict(model, run.posterior, data.test_inputs, link="sigmoid")
    print(f"test accuracy {(prediction.classes == data.test_labels).float().mean():.2%}")


def mnist(steps: int | None, out: Path) -> None:
    """The CNN of paper N at its budget; probes cost a tenth of the training time."""
    data = load_mnist()
    model = build_cnn()
    method = tacit.SGD(model, digit_losses, learning_rate=0.25)
    plan = tacit.TrainingPlan(
        tacit.PoissonSampling.of(batch_size=256, dataset_size=60_000), tacit.ClipRecords(1.5),
        tacit.GaussianNoise(multiplier=1.3), steps or 3516, out / "ledger.jsonl", dataset="mnist",
    )  # fmt: skip
    held_out = (data.test_images, data.test_labels)
    gather = tacit.EvidencePlan(probes=held_out, members=True)
    tacit.train(method, (data.train_images, data.train_labels), plan, evidence=gather, progress=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("data", choices=("adult", "mnist"), nargs="?", default="adult")
    arguments.add_argument("--steps", type=int)
    arguments.add_argument("--out", type=Path)
    options = arguments.parse_args()
    out = options.out or Path(f"runs/typical-{options.data}")
    {"adult": adult, "mnist": mnist}[options.data](options.steps, out)
    print(f"now: tacit account {out} --bayesian --plot {out}/privacy.png")


if __name__ == "__main__":
    main()
