"""Paper B, table 1, the rows of CIFAR-10: a linear layer on frozen features of a network trained on public pictures.

The paper retrains the last layer of a VGG-16 that was trained on ImageNet; here it is a MobileNetV2, whose weights come
in a package. The features are public knowledge applied to each record alone; only the linear layer sees private data as
a whole. Bayesian numbers rest on half of the test pictures as probes; accuracy is measured on the other half.
"""

import statistics
from dataclasses import dataclass
from pathlib import Path

import torch
from bayesian_dp.accounting import DELTA, measure_privacy
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import tacit
from tacit.data import load_cifar10
from tacit.features import cached_features, mobilenet_v2, pretrained_features, unit_rows
from tacit.reproduction import Work

EPSILON, REPEATS = 1.0, 5
SIZE, BATCH, STEPS, CLIP_NORM, RATE, PRIOR = 50_000, 4096, 110, 1.0, 30.0, 10.0
KEPT = 50  # of the last iterates, whose predictions are averaged, for nothing
SIDE = 96  # pixels, to which the pictures are enlarged
CONSTANT = 0.3  # the bias feature


@dataclass(frozen=True)
class Rows:
    """Unit rows [n, 1281] and labels: features and a constant."""

    inputs: Tensor
    labels: Tensor

    def part(self, chosen: slice) -> "Rows":
        return Rows(self.inputs[chosen], self.labels[chosen])


def cifar10_rows(work: Work) -> None:
    """Accuracy is the mean over fresh runs; the privacy columns belong to the first of them."""
    baseline, name = "CIFAR-10: baseline accuracy", f"CIFAR-10, SGD, epsilon {EPSILON:g}"
    if not work.lacks(baseline, f"{name}: accuracy"):
        return
    train, test = rows(work)
    half = len(test.labels) // 2
    probes, held_out = test.part(slice(half)), test.part(slice(half, None))
    if work.lacks(baseline):
        work.measure(baseline, open_accuracy(train, held_out, 2 if work.quick else 20))
    if work.lacks(f"{name}: accuracy"):
        measure_runs(work, name, train, probes, held_out)
    work.note("CIFAR-10: the features come from a network trained on ImageNet, which is public")


def measure_runs(work: Work, name: str, train: Rows, probes: Rows, held_out: Rows) -> None:
    found: list[tacit.evaluation.Reliability] = []
    for _ in range(1 if work.quick else REPEATS):
        folder = work.folder("cifar10")
        model, run = train_privately(train, None if found else probes, 5 if work.quick else STEPS, folder)
        if not found:
            measure_privacy(work, name, run.ledger, folder)
        prediction = tacit.predict(model, run.posterior, held_out.inputs)
        found.append(tacit.reliability(prediction.mean, held_out.labels))
    accuracies = [100 * one.accuracy for one in found]
    work.note(f"{name}: {len(found)} runs, accuracy from {min(accuracies):.2f} to {max(accuracies):.2f}")
    work.measure(f"{name}: ECE", statistics.fmean(one.ece for one in found))
    work.measure(f"{name}: accuracy", statistics.fmean(accuracies))


def rows(work: Work) -> tuple[Rows, Rows]:
    data = load_cifar10()
    few = (200, 400) if work.quick else (None, None)
    return (
        Rows(features(data.train_images[: few[0]]), data.train_labels[: few[0]].long()),
        Rows(features(data.test_images[: few[1]]), data.test_labels[: few[1]].long()),
    )


def features(images: Tensor) -> Tensor:
    def compute(pictures: Tensor) -> Tensor:
        return pretrained_features(mobilenet_v2(), pictures, side=SIDE)

    found = cached_features(images, f"MobileNetV2 of ImageNet, {SIDE} pixels, 1", compute)
    return prepared(found)


def prepared(found: Tensor) -> Tensor:
    """Each record on its own: even out large features, take off what all of them share, scale to norm 1."""
    even = found.sqrt()
    even = unit_rows(even - even.mean(1, keepdim=True))
    return unit_rows(torch.cat([even, torch.full((len(found), 1), CONSTANT)], 1))


def losses(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return cross_entropy(model(batch[0]), batch[1], reduction="none")


def train_privately(train: Rows, probes: Rows | None, steps: int, folder: Path) -> tuple[nn.Module, tacit.training.Run]:
    sampling = tacit.PoissonSampling.of(batch_size=BATCH, dataset_size=SIZE)
    found = tacit.calibrate_noise(EPSILON, DELTA, probability=sampling.probability, steps=steps)
    plan = tacit.TrainingPlan(
        sampling, tacit.ClipRecords(CLIP_NORM), tacit.GaussianNoise(found.noise_multiplier), steps,
        folder / "ledger.jsonl", budget=tacit.Budget(EPSILON, DELTA), dataset="cifar10", dataset_size=SIZE,
        physical_batch=1024,
    )  # fmt: skip
    model = linear(train)
    method = tacit.SGD(model, losses, RATE, tacit.GaussianPrior(PRIOR), dataset_size=SIZE)
    evidence = None if probes is None else tacit.EvidencePlan(probes=(probes.inputs, probes.labels), probe_every=5)
    return model, tacit.train(method, (train.inputs, train.labels), plan, keep_last=min(KEPT, steps), evidence=evidence)


def open_accuracy(train: Rows, held_out: Rows, epochs: int) -> float:
    """The same layer without privacy."""
    model = linear(train)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=epochs)
    for _ in range(epochs):
        for part in torch.split(torch.randperm(len(train.labels)), 500):
            optimizer.zero_grad()
            cross_entropy(model(train.inputs[part]), train.labels[part]).backward()
            optimizer.step()
        schedule.step()
    with torch.no_grad():
        right = model(held_out.inputs).argmax(1) == held_out.labels
    return 100 * float(right.float().mean())


def linear(train: Rows) -> nn.Linear:
    """Ten classes, starting at 0; the constant feature is the bias."""
    model = nn.Linear(train.inputs.shape[1], 10, bias=False)
    nn.init.zeros_(model.weight)
    return model
