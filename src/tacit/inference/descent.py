"""How a gradient becomes a move: plain descent or Adam, as values. All of it is post-processing of released numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from tacit.errors import check_fraction, check_positive
from tacit.inference.step_sizes import StepSize, as_step_size
from tacit.types import Vectors


@dataclass(frozen=True, slots=True)
class Moments:
    """What a descent remembers: running means of the gradient and of its square."""

    first: Vectors = field(default_factory=dict)
    second: Vectors = field(default_factory=dict)


class Descent(Protocol):
    def init(self, params: Mapping[str, Tensor]) -> Moments: ...

    def move(
        self, params: Mapping[str, Tensor], gradient: Mapping[str, Tensor], moments: Moments, step: int
    ) -> tuple[Vectors, Moments]:
        """The parameters after this step, counted from 0, and what is remembered of it."""


@dataclass(frozen=True, slots=True)
class PlainDescent:
    """w <- w - eta m, with m <- momentum m + gradient."""

    learning_rate: float | StepSize
    momentum: float = 0.0

    def __post_init__(self) -> None:
        as_step_size(self.learning_rate, "learning_rate")
        check_fraction("momentum", self.momentum)

    def init(self, params: Mapping[str, Tensor]) -> Moments:
        return Moments({name: torch.zeros_like(value) for name, value in params.items()} if self.momentum else {})

    def move(
        self, params: Mapping[str, Tensor], gradient: Mapping[str, Tensor], moments: Moments, step: int
    ) -> tuple[Vectors, Moments]:
        eta = as_step_size(self.learning_rate).at(step)
        if not self.momentum:
            return {name: w - eta * gradient[name] for name, w in params.items()}, moments
        first = {name: self.momentum * moments.first[name] + g for name, g in gradient.items()}
        return {name: w - eta * first[name] for name, w in params.items()}, Moments(first)


@dataclass(frozen=True, slots=True)
class AdamDescent:
    """Kingma and Ba 2015. Under noise the second moment is mostly the noise's, so that steps are nearly even."""

    learning_rate: float | StepSize = 0.01
    decay: float = 0.9
    square_decay: float = 0.999
    floor: float = 1e-8

    def __post_init__(self) -> None:
        as_step_size(self.learning_rate, "learning_rate")
        check_fraction("decay", self.decay)
        check_fraction("square_decay", self.square_decay)
        check_positive("floor", self.floor)

    def init(self, params: Mapping[str, Tensor]) -> Moments:
        zeros = {name: torch.zeros_like(value) for name, value in params.items()}
        return Moments(zeros, zeros)

    def move(
        self, params: Mapping[str, Tensor], gradient: Mapping[str, Tensor], moments: Moments, step: int
    ) -> tuple[Vectors, Moments]:
        eta = as_step_size(self.learning_rate).at(step)
        a, b = self.decay, self.square_decay
        first = {name: (a * moments.first[name]).add_((1 - a) * g) for name, g in gradient.items()}
        second = {name: (b * moments.second[name]).add_(g.square().mul_(1 - b)) for name, g in gradient.items()}
        unbias, unbias_square = 1 - a ** (step + 1), 1 - b ** (step + 1)

        def move(name: str) -> Tensor:  # in place where nobody else looks: fresh memory costs more than the sums
            scale = (second[name] / unbias_square).sqrt_().add_(self.floor)
            return (first[name] / unbias).mul_(eta).div_(scale)

        return {name: w - move(name) for name, w in params.items()}, Moments(first, second)


def averaged(average: Mapping[str, Tensor], new: Mapping[str, Tensor], keep: float, step: int) -> Vectors:
    """The running average of iterates after this step; at first little is kept, so that the start is soon forgotten."""
    keep = min(keep, (step + 1) / (step + 10))
    return {name: keep * old + (1 - keep) * new[name] for name, old in average.items()}
