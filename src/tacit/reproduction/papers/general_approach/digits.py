"""Shared by the studies of paper G that train a model: scikit-learn's digits, a small network, one budget."""

from collections.abc import Callable

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import tacit
from tacit.mechanisms import Clipping
from tacit.reproduction import Work

SIZE, BATCH, STEPS, EPSILON, DELTA = 1_500, 300, 200, 2.0, 1e-5


def load(seed: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """1,500 records to train on, the rest to test; pixels are counts from 0 to 16."""
    inputs, labels = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    inputs = inputs.float() / 16
    train, test = order[:SIZE], order[SIZE:]
    return (inputs[train], labels[train]), (inputs[test], labels[test])


def build(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 10))


def losses(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return cross_entropy(model(batch[0]), batch[1], reduction="none")


def calibrated(steps: int = STEPS) -> float:
    return tacit.calibrate_noise(EPSILON, DELTA, probability=BATCH / SIZE, steps=steps).noise_multiplier


def accuracy(
    work: Work, clipping: Clipping, noise: tacit.GaussianNoise, rate: float, steps: int, seed: int,
    build: Callable[[int], nn.Module] = build,
) -> float:  # fmt: skip
    """Test accuracy in percent of a private run."""
    train, (inputs, labels) = load(seed)
    model = build(seed)
    plan = tacit.TrainingPlan(
        tacit.PoissonSampling(probability=BATCH / SIZE, expected_size=BATCH), clipping, noise, steps,
        work.folder("run") / "ledger.jsonl", dataset="digits", physical_batch=512,
    )  # fmt: skip
    run = tacit.train(tacit.SGD(model, losses, rate), train, plan)
    prediction = tacit.predict(model, run.posterior, inputs)
    return 100 * float((prediction.classes == labels).float().mean())
