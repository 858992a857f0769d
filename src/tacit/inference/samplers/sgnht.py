"""The stochastic gradient Nose-Hoover thermostat, which finds out by itself how much noise there is (Ding et al. 2014).

SGHMC with a friction alpha that follows the velocity v of d coordinates: too much kinetic energy raises it.

    v     <- (1 - alpha) v - eta gradient of U(w)
    w     <- w + v
    alpha <- alpha + |v|^2 / d - eta temperature / (1 - alpha / 2)

In equilibrium alpha = eta V / (2 temperature), V being the variance of *all* noise on the gradient: the mechanism's,
which the method asks for (s = B sqrt(2 temperature a / eta) / n, so that alpha settles at the diffusion a), and what
sampling adds, which is private and which no formula can know. Thermostat and velocity are made of releases.

The paper's thermostat holds |v|^2 / d at eta temperature. Measured after the kick, as here, that energy is larger by
1 / (1 - alpha / 2), and holding it down makes the draws too narrow by that factor: on a Gaussian the variance would be
(1 - alpha / 2) times the posterior's, with this correction it is the posterior's.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import final

import torch
from torch import Tensor, nn

from tacit.errors import InputError, check_share
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
class SGNHTState:
    params: Vectors
    velocity: Vectors
    friction: float
    step: int = 0


@final
@dataclass(frozen=True)
class SGNHT:
    """Draws from the posterior by private gradients, with a friction that adapts to the noise.

    Args:
        model, user_losses, prior, dataset_size, seed, mean_noise: as for :class:`SGLD`.
        step_size: eta, the square of the leapfrog step, as for :class:`SGHMC`.
        temperature: of the posterior, which the thermostat holds.
        diffusion: a in (0, 1], the friction that the asked noise needs, and where friction starts.
        noise: "asked"; or "planned", which takes the plan's and adds what it lacks of diffusion ``a``.
    """

    model: nn.Module
    user_losses: UserLosses
    prior: Prior = field(default_factory=FlatPrior)
    step_size: float | StepSize = 1e-6
    dataset_size: int = 0
    temperature: float = 1.0
    diffusion: float = 0.1
    noise: NoiseFrom = "asked"
    seed: int = 0
    mean_noise: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        check_sampler(self.step_size, self.dataset_size, self.temperature, self.noise, self.seed)
        if self.temperature is None:
            raise InputError("a thermostat needs a temperature, found None; noise='planned' takes the plan's noise")
        check_share("diffusion", self.diffusion)

    @cached_property
    def losses(self) -> ModelLosses:
        return ModelLosses(self.model, self.user_losses)

    def init(self) -> SGNHTState:
        params = self.losses.start()
        return SGNHTState(params, {name: torch.zeros_like(value) for name, value in params.items()}, self.diffusion)

    def params(self, state: SGNHTState) -> Vectors:
        return state.params

    def noise_stddev(self, step: int, denominator: float) -> float | None:
        if self.noise == "planned":
            return None
        eta = as_step_size(self.step_size).at(step)
        return denominator * math.sqrt(2 * self.temperature * self.diffusion / eta) / self.dataset_size

    def with_mean_noise(self, mean_noise: Mapping[str, float]) -> "SGNHT":
        return replace(self, mean_noise=mean_noise)

    def effective_temperature(self, noise_stddev: float, denominator: float, step: int = 0) -> float:
        """The thermostat's, whatever the noise, as long as friction stays below 1."""
        return self.temperature

    def step_temperature(self, before: SGNHTState, after: SGNHTState) -> float:
        """(1 - alpha / 2) |v|^2 / (eta d), whose mean is above the thermostat's if friction would have to pass 1."""
        eta, _ = self._dynamics(before.step)
        return (1 - before.friction / 2) * mean_square(after.velocity) / eta

    def step(self, state: SGNHTState, mean_gradient: Mapping[str, Tensor]) -> SGNHTState:
        eta, missing = self._dynamics(state.step)
        prior = self.prior.gradient(state.params)
        velocity = {
            name: (1 - state.friction) * v - eta * (self.dataset_size * mean_gradient[name] + prior[name])
            for name, v in state.velocity.items()
        }
        if missing is not None:
            velocity = add_normals(velocity, missing, self.seed, state.step)
        params = {name: w + velocity[name] for name, w in state.params.items()}
        energy = mean_square(velocity)
        friction = state.friction + energy - eta * self.temperature / (1 - state.friction / 2)
        return SGNHTState(params, velocity, min(1.0, friction), state.step + 1)  # above 1 a velocity would turn back

    def _dynamics(self, step: int) -> tuple[float, dict[str, float] | None]:
        """The step size and the variance of the noise on top, which fills the plan's up to the diffusion ``a``."""
        eta = as_step_size(self.step_size).at(step)
        if self.noise == "asked":
            return eta, None
        V = gradient_variances(self.mean_noise, self.dataset_size)
        eta = stable_step(eta, self.temperature, V)
        return eta, {name: 2 * self.temperature * self.diffusion * eta - eta**2 * V[name] for name in V}
