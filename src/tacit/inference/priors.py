"""Priors over parameters. They need no data, so their gradient is added after the noise."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from tacit.errors import InputError, check_positive


class Prior(Protocol):
    def gradient(self, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The gradient of r(w) = -log p(w)."""


@runtime_checkable
class ClosedFormPrior(Prior, Protocol):
    """A prior whose expectation under a Gaussian is known, so that variational inference needs no draw for it."""

    def expected_gradient(self, mean: Tensor, stddev: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient of E[r(w)], w ~ N(mean, stddev^2), with respect to mean and stddev."""


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

    def expected_gradient(self, mean: Tensor, stddev: Tensor) -> tuple[Tensor, Tensor]:
        """E[r(w)] = (mean^2 + stddev^2) / (2 s^2) + const."""
        return mean / self.stddev**2, stddev / self.stddev**2


@dataclass(frozen=True, slots=True)
class LaplacePrior:
    """Laplace(0, scale) on each weight: r'(w) = sign(w) / scale, and 0 at 0."""

    scale: float

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)

    def gradient(self, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: torch.sign(value) / self.scale for name, value in params.items()}

    def expected_gradient(self, mean: Tensor, stddev: Tensor) -> tuple[Tensor, Tensor]:
        """E|w| is the mean of a folded normal: stddev sqrt(2/pi) exp(-z^2/2) + mean erf(z/sqrt 2), z = mean/stddev."""
        z = mean / stddev
        peak = torch.exp(-z.square() / 2) * math.sqrt(2 / math.pi)
        return torch.erf(z / math.sqrt(2)) / self.scale, peak / self.scale


@dataclass(frozen=True, slots=True)
class ScaleMixturePrior:
    """share N(0, wide^2) + (1 - share) N(0, narrow^2) on each weight (Blundell et al. 2015, equation 7).

    Most weights are held near 0, the few that matter may be large. Its expectation has no closed form.
    """

    share: float
    wide: float
    narrow: float

    def __post_init__(self) -> None:
        check_positive("wide", self.wide)
        check_positive("narrow", self.narrow)
        if not (isinstance(self.share, int | float) and 0 < self.share < 1):
            raise InputError(f"share must lie strictly between 0 and 1, found {self.share!r}")

    def gradient(self, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: value * self._precision(value) for name, value in params.items()}

    def _precision(self, w: Tensor) -> Tensor:
        """The precision of each component, weighed by how likely the weight comes from it."""
        ratio = (1 / self.narrow**2 - 1 / self.wide**2) / 2 * w.square()
        odds = math.log(self.share / (1 - self.share)) + math.log(self.narrow / self.wide) + ratio
        wide = torch.sigmoid(odds)
        return wide / self.wide**2 + (1 - wide) / self.narrow**2


@dataclass(frozen=True, slots=True)
class FlatPrior:
    """No prior: r'(w) = 0."""

    def gradient(self, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: torch.zeros_like(value) for name, value in params.items()}

    def expected_gradient(self, mean: Tensor, stddev: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(mean), torch.zeros_like(stddev)
