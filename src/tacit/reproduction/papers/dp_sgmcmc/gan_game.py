"""A discriminator that also tells digits apart and a generator (Salimans et al. 2016), and the loop they learn in.

Whatever releases gradients, private or not, and whatever takes steps, the rest is here and sees no private picture.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from pate_rows import percent
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, cross_entropy, softplus

from tacit.data import ImageData
from tacit.inference import InferenceMethod

PIXELS, FEATURES, CODE, GENERATED, MATCHES = 196, 64, 30, 128, 2
PER_CLASS, UNKNOWN = 10, -1


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
