"""Two convolutional layers and a fully connected one, with ReLUs: the network of paper M's MNIST rows.

Their sizes are not printed; these are those of the DP libraries' tutorials.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from dp_bnn.mnist import CLIP_NORM, DELTA, SIZE, build_network, losses, scale

import tacit
from tacit.data import ImageData
from tacit.ledger import Ledger

RATE = 0.25  # of DP-SGD: paper N's, as the clip norm


@dataclass(frozen=True)
class Outcome:
    accuracy: float
    epsilon: float


def non_private(data: ImageData, epochs: int) -> float:
    """Momentum and a rate that falls to 0."""
    model = build_network("cnn")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)  # at .1 some runs diverge
    batches = -(-len(data.train_images) // 128)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, total_iters=epochs * batches)
    for _ in range(epochs):
        for part in torch.split(torch.randperm(len(data.train_images)), 128):
            optimizer.zero_grad()
            losses(model, (data.train_images[part], data.train_labels[part])).mean().backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        right = model(scale(data.test_images)).argmax(1) == data.test_labels
    return 100 * float(right.float().mean())


def dp_sgd(data: ImageData, epsilon: float, batch: int, steps: int, folder: Path) -> Outcome:
    sampling = tacit.PoissonSampling.of(batch_size=batch, dataset_size=SIZE)
    found = tacit.calibrate_noise(epsilon, DELTA, probability=sampling.probability, steps=steps)
    noise = tacit.GaussianNoise(found.noise_multiplier)
    plan = _plan(sampling, CLIP_NORM, noise, steps, folder)
    rate = RATE * (batch / 256) ** 0.5  # larger samples have less noise
    return _run(tacit.SGD(build_network("cnn"), losses, rate), data, plan, 1)


def dp_sgld(data: ImageData, steps: int, folder: Path) -> Outcome:
    """The paper's own setting: step .3 on the mean loss, batch 128, Lipschitz bound .3, standard normal prior.

    Its sampler adds noise of variance eta, not 2 eta: temperature 1/2. Predictions average the last iterates.
    """
    plan = _plan(tacit.PoissonSampling.of(batch_size=128, dataset_size=SIZE), 0.3, None, steps, folder)
    method = tacit.SGLD(
        build_network("cnn"),
        losses,
        prior=tacit.GaussianPrior(1.0),
        step_size=0.3 / SIZE,
        dataset_size=SIZE,
        temperature=0.5,
    )
    return _run(method, data, plan, min(50, steps))


def _plan(
    sampling: tacit.PoissonSampling, clip: float, noise: tacit.GaussianNoise | None, steps: int, folder: Path
) -> tacit.TrainingPlan:
    return tacit.TrainingPlan(
        sampling, tacit.ClipRecords(clip), noise, steps, folder / "ledger.jsonl", dataset="mnist", dataset_size=SIZE
    )


def _run(method: tacit.SGD | tacit.SGLD, data: ImageData, plan: tacit.TrainingPlan, keep: int) -> Outcome:
    run = tacit.train(method, (data.train_images, data.train_labels), plan, keep_last=keep)
    prediction = tacit.predict(method.model, run.posterior, scale(data.test_images))
    found = tacit.reliability(prediction.mean, data.test_labels.long())
    return Outcome(100 * found.accuracy, pld(run.ledger, DELTA))


def pld(ledger: Ledger, delta: float) -> float:
    [guarantee] = tacit.guarantees(ledger, delta, only=["pld"])
    return guarantee.epsilon
