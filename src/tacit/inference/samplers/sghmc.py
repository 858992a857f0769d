"""Stochastic gradient Hamiltonian Monte Carlo, whose noise is the privacy noise.

Chen, Fox and Guestrin 2014; Li et al. 2019.

In the form of SGD with momentum (Chen et al., equation 15), with velocity v, friction alpha and step size eta:

    v <- (1 - alpha) v - eta gradient of U(w) + N(0, 2 temperature (alpha - beta) eta)
    w <- w + v

The gradient's own noise, of variance V, already is a part beta = eta V / (2 temperature) of what friction takes away:
fluctuation and dissipation must match. Only the gradient is a release; v is made of releases. The method asks for a
noise with beta = alpha, s = B sqrt(2 temperature alpha / eta) / n, and adds none. Where the plan fixes the noise,
friction follows it: alpha is raised to beta, or the missing noise is added on top; where beta would pass 1, the step
shrinks, and what is left is SGLD.

On a Gaussian of precision k the chain's variance is temperature / k / (1 - eta k / (4 - 2 alpha)).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import final

import torch
from torch import Tensor, nn

from tacit.errors import check_share
from tacit.inference.priors import FlatPrior, Prior
from tacit.inference.samplers.langevin import (
    NoiseFrom,
    add_normals,
    check_sampler,
    gradient_variances,
    mean_square,
    stable_step,
)
from tacit.inference.step_sizes import StepSize, as_step_size
from tacit.losses import ModelLosses, UserLosses
from tacit.types import Vectors


@dataclass(frozen=True, slots=True)
class SGHMCState:
    params: Vectors
    velocity: Vectors
    step: int = 0


@final
@dataclass(frozen=True)
class SGHMC:
    """Draws from the posterior by private gradients and momentum.

    Args:
        model, user_losses, prior, dataset_size, seed, mean_noise: as for :class:`SGLD`.
        step_size: eta, the square of the leapfrog step; a step of SGLD with eta / alpha goes as far.
            A schedule should change it slowly: the velocity keeps the scale of the steps before.
        temperature: of the posterior; None takes the plan's noise and leaves friction as it is.
        friction: alpha in (0, 1]; 1 forgets the velocity at every step.
        noise: "asked" or "planned", as for :class:`SGLD`; ``friction`` is then the least friction.
    """

    model: nn.Module
    user_losses: UserLosses
    prior: Prior = field(default_factory=FlatPrior)
    step_size: float | StepSize = 1e-6
    dataset_size: int = 0
    temperature: float | None = 1.0
    friction: float = 0.1
    noise: NoiseFrom = "asked"
    seed: int = 0
    mean_noise: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        check_sampler(self.step_size, self.dataset_size, self.temperature, self.noise, self.seed)
        check_share("friction", self.friction)

    @cached_property
    def losses(self) -> ModelLosses:
        return ModelLosses(self.model, self.user_losses)

    def init(self) -> SGHMCState:
        params = self.losses.start()
        return SGHMCState(params, {name: torch.zeros_like(value) for name, value in params.items()})

    def params(self, state: SGHMCState) -> Vectors:
        return state.params

    def noise_stddev(self, step: int, denominator: float) -> float | None:
        if self.temperature is None or self.noise == "planned":
            return None
        eta = as_step_size(self.step_size).at(step)
        return denominator * math.sqrt(2 * self.temperature * self.friction / eta) / self.dataset_size

    def with_mean_noise(self, mean_noise: Mapping[str, float]) -> "SGHMC":
        return replace(self, mean_noise=mean_noise)

    def effective_temperature(self, noise_stddev: float, denominator: float, step: int = 0) -> float:
        """What noise of this size on the sum amounts to: eta V / (2 alpha), with V = (s n / B)^2."""
        if self.temperature is not None and self.noise == "planned":
            return self.temperature  # friction follows the noise
        eta = as_step_size(self.step_size).at(step)
        return eta * (noise_stddev * self.dataset_size / denominator) ** 2 / (2 * self.friction)

    def step_temperature(self, before: SGHMCState, after: SGHMCState) -> float:
        """(1 - alpha / 2) |v|^2 / (eta d), whose mean is the temperature of the chain (langevin.py)."""
        eta, alpha, _ = self._dynamics(before.step)
        return (1 - alpha / 2) * mean_square(after.velocity) / eta

    def step(self, state: SGHMCState, mean_gradient: Mapping[str, Tensor]) -> SGHMCState:
        eta, alpha, missing = self._dynamics(state.step)
        prior = self.prior.gradient(state.params)
        velocity = {
            name: (1 - alpha) * v - eta * (self.dataset_size * mean_gradient[name] + prior[name])
            for name, v in state.velocity.items()
        }
        if missing is not None:
            velocity = add_normals(velocity, missing, self.seed, state.step)
        params = {name: w + velocity[name] for name, w in state.params.items()}
        return SGHMCState(params, velocity, state.step + 1)

    def _dynamics(self, step: int) -> tuple[float, float, dict[str, float] | None]:
        """Step size, friction, and the variance of the noise on top: equation 15 with the gradient's noise known."""
        eta = as_step_size(self.step_size).at(step)
        if self.temperature is None or self.noise == "asked":
            return eta, self.friction, None
        V = gradient_variances(self.mean_noise, self.dataset_size)
        eta = stable_step(eta, self.temperature, V)
        beta = {name: eta * V[name] / (2 * self.temperature) for name in V}
        alpha = max(self.friction, *beta.values())
        return eta, alpha, {name: 2 * self.temperature * (alpha - beta[name]) * eta for name in V}
