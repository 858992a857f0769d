"""Paper M, section 4.3, "Application to GAN training": 100 labels of MNIST, SGHMC against DP-SGD at epsilon .2.

The paper gives two accuracies, 98.3 % and 90.8 %, and (.2, 1e-5); neither networks, batch and steps, nor what is
private. Here the 100 labelled pictures are public; the other 59,900 are private and have no labels, and neighbours
differ by one of them. (In the rows "labels private too" all 60,000 are private, labels included.)

A discriminator with ten outputs (Salimans et al. 2016: D(x) = Z / (1 + Z), Z the sum of their exponentials) gets one
release a step by ``tacit.PrivateGradient``: a clipped noisy mean of the gradients of -log D on private pictures, and
beside it a mean of their features, a group of its own. Labelled and generated pictures need no noise. The generator
matches the released mean of features: it sees releases only, so that it and its pictures are post-processing.

SGHMC and DP-SGD get releases at the same epsilon and differ in what they make of them: SGHMC keeps a velocity, has the
step at which the privacy noise is that of the posterior, and averages the predictions of its last iterates.

Reduced so that all runs take minutes on one core: 14 x 14 pixels, small networks, few steps. Clip norms, rates and
steps were chosen, for each method apart, in runs where 5,000 training pictures stood in for the test set; that choice
is not charged.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib.pyplot as plt
import torch
from pate_rows import PENALTY, linear, percent
from scattered import scattered
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, cross_entropy, softplus

import tacit
from tacit.data import ImageData, load_mnist
from tacit.inference import InferenceMethod
from tacit.mechanisms import VectorGroup
from tacit.reproduction import Work

EPSILON, DELTA = 0.2, 1e-5
PER_CLASS, BATCH, RUNS = 10, 512, 3
FEATURE_NORM = 5.0
PIXELS, FEATURES, CODE, GENERATED, MATCHES = 196, 64, 30, 128, 2
UNKNOWN = -1
FRICTION, SGD_RATE = 0.1, 0.6
OPEN_RATE, OPEN_BATCH, OPEN_STEPS, KEPT = 3e-3, 128, 3_000, 50


class Discriminator(nn.Module):
    """Scores of ten classes. ``probe`` stays 0: the gradient of its loss is a picture's features, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Dropout(0.2), nn.Linear(PIXELS, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, FEATURES), nn.ReLU()
        )
        self.scores = nn.Sequential(nn.Dropout(0.3), nn.Linear(FEATURES, 10))
        self.probe = nn.Linear(FEATURES, 1, bias=False)
        nn.init.zeros_(self.probe.weight)

    def forward(self, pictures: Tensor) -> Tensor:
        found: Tensor = self.scores(self.features(pictures))
        return found

    @torch.no_grad()
    def chances(self, pictures: Tensor) -> Tensor:
        """Of each class, for pictures that are not learned from."""
        self.eval()
        found = self(pictures).softmax(1)
        self.train()
        return found


def private_losses(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """-log D(x), and the features by way of the probe; and the loss of the label, where a record has one."""
    features = model.features(batch[0])
    scores = model.scores(features)
    whole = scores.logsumexp(1)
    labelled = cross_entropy(scores, batch[1].clamp(min=0), reduction="none") * (batch[1] != UNKNOWN)
    return (softplus(whole) - whole) / 2 + model.probe(features.detach())[:, 0] + labelled


@dataclass(frozen=True)
class Pictures:
    private: Tensor
    private_labels: Tensor  # UNKNOWN but for labels that are private too
    labelled: Tensor
    labels: Tensor
    test: Tensor
    test_labels: Tensor
    chosen: Tensor  # which training pictures have labels


class Game:
    """Discriminator and generator, the parts that see no private record."""

    def __init__(self, pictures: Pictures) -> None:
        self.pictures, self.model = pictures, Discriminator()
        self.generator = nn.Sequential(
            nn.Linear(CODE, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 128), nn.BatchNorm1d(128), nn.ReLU(),
            nn.Linear(128, PIXELS), nn.Sigmoid(),
        )  # fmt: skip
        self.optimizer = torch.optim.Adam(self.generator.parameters(), lr=2e-3, betas=(0.5, 0.999))

    def generate(self, count: int = GENERATED) -> Tensor:
        found: Tensor = self.generator(torch.randn(count, CODE))
        return found

    def public_loss(self) -> Tensor:
        """Of the labelled pictures, if they are public, and -log(1 - D) of generated ones."""
        generated = softplus(self.model(self.generate().detach()).logsumexp(1)).mean() / 2
        if not len(self.pictures.labels):
            return generated
        return generated + cross_entropy(self.model(self.pictures.labelled), self.pictures.labels)

    def match(self, features: Tensor) -> None:
        """Feature matching: generated pictures get the mean features of the private ones, as far as these are known."""
        for _ in range(MATCHES):
            self.optimizer.zero_grad()
            (self.model.features(self.generate()).mean(0) - features).square().sum().backward()
            self.optimizer.step()

    def play(self, released: Iterator[None], step: Callable[[], None], steps: int, keep: int) -> float:
        """The loop: a released gradient in ``.grad``, the public one added, the method's step, the generator's.

        Returns accuracy in percent; predictions are averaged over the last ``keep`` iterates.
        """
        chances = torch.zeros(len(self.pictures.test), 10)
        for number, _ in enumerate(released):
            features = gradient(self.model.probe.weight)[0].clone()
            gradient(self.model.probe.weight).zero_()
            self.public_loss().backward()
            step()
            self.match(features)
            if number >= steps - keep:
                chances += self.model.chances(self.pictures.test)
        return percent(chances.argmax(1) == self.pictures.test_labels)


def gradient(weight: Tensor) -> Tensor:
    assert weight.grad is not None
    return weight.grad


def step_of(method: InferenceMethod[Any], model: nn.Module) -> Callable[[], None]:
    """One step of the method with what is in ``.grad``, as an optimizer would take it."""
    state, weights = method.init(), dict(model.named_parameters())

    def step() -> None:
        nonlocal state
        state = method.step(state, {name: gradient(weight) for name, weight in weights.items()})
        with torch.no_grad():
            for name, weight in weights.items():
                weight.copy_(method.params(state)[name])

    return step


def sghmc(model: nn.Module, size: int, on_sum: float) -> tacit.SGHMC:
    """At the posterior's own temperature, 1: its noise is the privacy noise, so that the budget decides the step."""
    step = 2 * FRICTION * (BATCH / (size * on_sum)) ** 2
    prior = tacit.GaussianPrior(1.0)
    return tacit.SGHMC(model, private_losses, prior, step, dataset_size=size, temperature=None, friction=FRICTION)


def dp_sgd(model: nn.Module, size: int, on_sum: float) -> tacit.SGD:
    return tacit.SGD(model, private_losses, SGD_RATE, tacit.GaussianPrior(1.0), dataset_size=size)


@dataclass(frozen=True)
class Way:
    """A method and its settings."""

    method: Callable[[nn.Module, int, float], tacit.SGHMC | tacit.SGD]
    clip_norm: float
    steps: int
    keep: int  # iterates whose predictions are averaged


WAYS = {"SGHMC": Way(sghmc, 0.9, 200, KEPT), "DP-SGD": Way(dp_sgd, 0.1, 400, 1)}


@dataclass(frozen=True)
class Outcome:
    accuracy: float
    epsilon: float
    temperature: float


def private_gan(way: Way, game: Game, folder: Path) -> Outcome:
    data, steps = (game.pictures.private, game.pictures.private_labels), way.steps
    size = len(data[0])
    sampling = tacit.PoissonSampling.of(batch_size=BATCH, dataset_size=size)
    noise = tacit.calibrate_noise(EPSILON, DELTA, probability=sampling.probability, steps=steps).noise_multiplier
    names = tuple(name for name, _ in game.model.named_parameters() if name != "probe.weight")
    clipping = tacit.ClipGroups([VectorGroup(names, way.clip_norm), VectorGroup(("probe.weight",), FEATURE_NORM)])
    private = tacit.PrivateGradient(
        game.model, private_losses, sampling, clipping, tacit.GaussianNoise(noise), ledger=folder / "ledger.jsonl",
        budget=tacit.Budget(EPSILON, DELTA), dataset="mnist", dataset_size=size,
    )  # fmt: skip

    def released() -> Iterator[None]:
        for sample in private.samples(data, steps):
            game.model.zero_grad()
            private.backward(sample)
            yield

    on_sum = noise * math.sqrt(2) * way.clip_norm  # of two groups, each has sqrt(2) z S
    method = way.method(game.model, size, on_sum)
    with private:
        accuracy = game.play(released(), step_of(method, game.model), steps, min(way.keep, steps))
        warmth = method.effective_temperature(on_sum, BATCH) if isinstance(method, tacit.SGHMC) else math.nan
        return Outcome(accuracy, private.epsilon(DELTA), warmth)


def open_gan(game: Game, steps: int) -> float:
    """The twin without privacy: the same game with plain gradients and Adam."""
    data = (game.pictures.private, game.pictures.private_labels)
    optimizer = torch.optim.Adam(game.model.parameters(), lr=OPEN_RATE, betas=(0.5, 0.999))

    def released() -> Iterator[None]:
        for _ in range(steps):
            rows = torch.randint(len(data[0]), (OPEN_BATCH,))
            game.model.zero_grad()
            private_losses(game.model, (data[0][rows], data[1][rows])).mean().backward()
            yield

    return game.play(released(), lambda: optimizer.step() and None, steps, min(KEPT, steps))


def supervised(pictures: Pictures, steps: int) -> float:
    """The same network on the 100 labels alone."""
    model = Discriminator()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        cross_entropy(model(pictures.labelled), pictures.labels).backward()
        optimizer.step()
    return percent(model.chances(pictures.test).argmax(1) == pictures.test_labels)


def linear_on_scattering(pictures: Pictures, data: ImageData) -> float:
    """What fixed features of the public pictures do without any private one."""
    rows, test = (
        scattered(part, upright=True).flatten(1) for part in (data.train_images[pictures.chosen], data.test_images)
    )
    model = linear(rows - rows.mean(0), pictures.labels, PENALTY)
    return percent(model(test - rows.mean(0)).argmax(1) == pictures.test_labels)


def pictures(data: ImageData, private_labels: bool) -> Pictures:
    """Ten labels of each digit at random; every other training picture is private and has none."""
    train, test = (avg_pool2d(part.float() / 255, 2).flatten(1) for part in (data.train_images, data.test_images))
    labels, order = data.train_labels.long(), torch.randperm(len(train))
    chosen = torch.cat([order[labels[order] == digit][:PER_CLASS] for digit in range(10)])
    private = torch.tensor(sorted(set(order.tolist()) - set(chosen.tolist())))
    hidden, none = torch.full((len(private),), UNKNOWN), torch.zeros(0, dtype=torch.long)
    if private_labels:
        private, hidden, chosen = torch.cat([private, chosen]), torch.cat([hidden, labels[chosen]]), none
    return Pictures(train[private], hidden, train[chosen], labels[chosen], test, data.test_labels.long(), chosen)


def reproduce(work: Work) -> None:
    data = load_mnist()
    if work.quick:
        data = ImageData(
            data.train_images[:6000], data.train_labels[:6000], data.test_images[:500], data.test_labels[:500]
        )
    found: dict[str, list[float]] = {}
    shown: dict[str, Tensor] = {}
    for run in range(1 if work.quick else RUNS):
        torch.manual_seed(work.seed + run)
        one_run(work, data, found, shown)
        for row, values in found.items():
            work.measure(row, max(values) if row.endswith("epsilon") else mean(values))
    gap = mean(found["SGHMC: accuracy"]) - mean(found["DP-SGD: accuracy"])
    work.measure("SGHMC above DP-SGD", gap)
    for row in ("SGHMC: accuracy", "DP-SGD: accuracy"):
        work.note(f"{row} of each run {', '.join(f'{value:.2f}' for value in found[row])}")
    work.note("reduced: pictures of 14 x 14 pixels, 34,000 weights, a few hundred private steps; means of three runs")
    show(work, shown)


def one_run(work: Work, data: ImageData, found: dict[str, list[float]], shown: dict[str, Tensor]) -> None:
    """Every row once, on one choice of the labelled pictures."""

    def keep(row: str, value: float) -> None:
        found.setdefault(row, []).append(value)

    public, secret = pictures(data, private_labels=False), pictures(data, private_labels=True)
    steps = 20 if work.quick else OPEN_STEPS
    keep("the 100 labels alone", supervised(public, min(300, steps)))
    keep("the 100 labels alone, linear on scattering features", linear_on_scattering(public, data))
    twin = Game(public)
    keep("non-private", open_gan(twin, steps))
    shown["non-private"] = twin.generate(20)
    for name, way in WAYS.items():
        way = replace(way, steps=steps) if work.quick else way
        game, hidden = Game(public), Game(secret)
        outcome = private_gan(way, game, work.folder(name))
        keep(f"{name}: accuracy", outcome.accuracy)
        keep(f"{name}: epsilon", outcome.epsilon)
        if name == "SGHMC":
            keep("SGHMC: effective temperature", outcome.temperature)
        shown[name] = game.generate(20)
        keep(f"{name}, labels private too: accuracy", private_gan(way, hidden, work.folder(f"{name}-labels")).accuracy)


def show(work: Work, shown: dict[str, Tensor]) -> None:
    figure, axes = plt.subplots(len(shown), 1, figsize=(10, 1.3 * len(shown)))
    for axis, (name, generated) in zip(axes, shown.items(), strict=True):
        axis.imshow(torch.cat(list(generated.detach().reshape(-1, 14, 14)), dim=1), cmap="gray_r")
        axis.set(title=name, xticks=[], yticks=[])
    work.picture(figure)
    plt.close(figure)
