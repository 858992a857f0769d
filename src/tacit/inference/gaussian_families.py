"""The Gaussians that variational inference chooses from: independent weights, or all covariances.

A draw is w = mean + (scale) e with e ~ N(0, I). Given the gradient G of the losses at w, the chain rule gives the
gradient of the spread from G and e alone. What falls on the standard deviations themselves is softplus(raw), so that
any raw number will do (Blundell et al. 2015, section 3.2).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import softplus

from tacit.errors import RefusedError
from tacit.inference.priors import ClosedFormPrior, Prior
from tacit.posteriors import GaussianPosterior
from tacit.posteriors.gaussian import flatten, unflatten
from tacit.types import Vectors

_SCALE = "scale"
_MOST = 5_000  # a full-rank scale has the square of this many numbers


class GaussianFamily(Protocol):
    def init(self, mean: Mapping[str, Tensor], stddev: float) -> Vectors:
        """The raw spread with this standard deviation everywhere and no correlation."""

    def draw(self, mean: Mapping[str, Tensor], spread: Vectors, noise: Vectors) -> Vectors:
        """w = mean + scale e."""

    def pull(self, spread: Vectors, noise: Vectors, gradient: Mapping[str, Tensor]) -> Vectors:
        """From the gradient at the drawn w to that of the raw spread."""

    def divergence_gradient(
        self, mean: Vectors, spread: Vectors, noise: Vectors, prior: Prior
    ) -> tuple[Vectors, Vectors]:
        """The gradient of KL(q | prior) with respect to mean and raw spread; at the draw if it has no closed form."""

    def posterior(self, mean: Vectors, spread: Vectors) -> GaussianPosterior: ...


@dataclass(frozen=True, slots=True)
class MeanField:
    """Independent weights: w = mean + softplus(rho) e."""

    def init(self, mean: Mapping[str, Tensor], stddev: float) -> Vectors:
        return {name: torch.full_like(value, _inverse_softplus(stddev)) for name, value in mean.items()}

    def draw(self, mean: Mapping[str, Tensor], spread: Vectors, noise: Vectors) -> Vectors:
        return {name: m + softplus(spread[name]) * noise[name] for name, m in mean.items()}

    def pull(self, spread: Vectors, noise: Vectors, gradient: Mapping[str, Tensor]) -> Vectors:
        # Zhang et al. 2021, equation 6: dL/drho = dL/dw e / (1 + exp(-rho))
        return {name: gradient[name] * noise[name] * torch.sigmoid(rho) for name, rho in spread.items()}

    def divergence_gradient(
        self, mean: Vectors, spread: Vectors, noise: Vectors, prior: Prior
    ) -> tuple[Vectors, Vectors]:
        stddev = {name: softplus(rho) for name, rho in spread.items()}
        d_mean, d_stddev = _expected_prior(mean, stddev, noise, prior, self.draw(mean, spread, noise))
        d_spread = {  # minus the entropy, whose derivative in stddev is 1/stddev
            name: (d_stddev[name] - 1 / stddev[name]) * torch.sigmoid(rho) for name, rho in spread.items()
        }
        return d_mean, d_spread

    def posterior(self, mean: Vectors, spread: Vectors) -> GaussianPosterior:
        return GaussianPosterior(mean, stddev={name: softplus(rho) for name, rho in spread.items()})


@dataclass(frozen=True, slots=True)
class FullRank:
    """All covariances, for small models: w = mean + L e, L lower triangular with softplus(raw) on its diagonal."""

    def init(self, mean: Mapping[str, Tensor], stddev: float) -> Vectors:
        flat = flatten(mean)
        if len(flat) > _MOST:
            raise RefusedError(f"a full-rank Gaussian over {len(flat)} parameters is too large; use MeanField()")
        return {_SCALE: torch.diag(torch.full_like(flat, _inverse_softplus(stddev)))}

    def draw(self, mean: Mapping[str, Tensor], spread: Vectors, noise: Vectors) -> Vectors:
        moved = unflatten(_lower(spread) @ flatten(noise), mean)
        return {name: m + moved[name] for name, m in mean.items()}

    def pull(self, spread: Vectors, noise: Vectors, gradient: Mapping[str, Tensor]) -> Vectors:
        g = flatten({name: gradient[name] for name in noise})
        return {_SCALE: _to_raw(torch.outer(g, flatten(noise)), spread)}

    def divergence_gradient(
        self, mean: Vectors, spread: Vectors, noise: Vectors, prior: Prior
    ) -> tuple[Vectors, Vectors]:
        lower = _lower(spread)
        if isinstance(prior, ClosedFormPrior):  # it needs each weight's own standard deviation only
            stddev = lower.square().sum(1).sqrt()
            d_mean, d_stddev = prior.expected_gradient(flatten(mean), stddev)
            d_lower = d_stddev[:, None] * lower / stddev[:, None]
        else:
            d_mean = flatten(prior.gradient(self.draw(mean, spread, noise)))
            d_lower = torch.outer(d_mean, flatten(noise))
        d_lower = d_lower - torch.diag(1 / lower.diagonal())  # minus the entropy, sum of log L_ii
        return unflatten(d_mean, mean), {_SCALE: _to_raw(d_lower, spread)}

    def posterior(self, mean: Vectors, spread: Vectors) -> GaussianPosterior:
        return GaussianPosterior(mean, scale_tril=_lower(spread))


def _expected_prior(
    mean: Vectors, stddev: Vectors, noise: Vectors, prior: Prior, drawn: Vectors
) -> tuple[Vectors, Vectors]:
    if isinstance(prior, ClosedFormPrior):
        pairs = {name: prior.expected_gradient(m, stddev[name]) for name, m in mean.items()}
        return {name: pair[0] for name, pair in pairs.items()}, {name: pair[1] for name, pair in pairs.items()}
    gradient = prior.gradient(drawn)
    return gradient, {name: g * noise[name] for name, g in gradient.items()}


def _lower(spread: Vectors) -> Tensor:
    raw = spread[_SCALE]
    return raw.tril(-1) + torch.diag(softplus(raw.diagonal()))


def _to_raw(d_lower: Tensor, spread: Vectors) -> Tensor:
    diagonal = d_lower.diagonal() * torch.sigmoid(spread[_SCALE].diagonal())
    return d_lower.tril(-1) + torch.diag(diagonal)


def _inverse_softplus(value: float) -> float:
    return float(torch.tensor(value, dtype=torch.float64).expm1().log())
