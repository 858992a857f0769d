"""Priors over parameters. They need no data, so their gradient is added after the noise."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tacit.errors import check_positive


class Prior(Protocol):
    def gradient(self, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The gradient of r(w) = -log p(w)."""


@dataclass(frozen=True, slots=True)
class GaussianPrior:
    """N(0, stddev^2) on each weight: r'(w) = w / stddev^2.

    Example:
        >>> GaussianPrior(0.5).gradient({"w": torch.tensor([1.0])})["w"]
        tensor([4.])
    """

    stddev: float

    def __post_init__(self) -> None:
        check_positive("stddev", self.stddev)

    def gradient(self, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: value / self.stddev**2 for name, value in params.items()}


@dataclass(frozen=True, slots=True)
class LaplacePrior:
    """Laplace(0, scale) on each weight: r'(w) = sign(w) / scale, and 0 at 0."""

    scale: float

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)

    def gradient(self, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: torch.sign(value) / self.scale for name, value in params.items()}


@dataclass(frozen=True, slots=True)
class FlatPrior:
    """No prior: r'(w) = 0."""

    def gradient(self, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: torch.zeros_like(value) for name, value in params.items()}
