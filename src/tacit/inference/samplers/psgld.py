"""Preconditioned SGLD: Langevin dynamics with a step of its own for every coordinate (Li et al. 2016).

    g2 <- rho g2 + (1 - rho) g^2                 g: the released mean gradient
    G   = 1 / (lambda + sqrt(g2))
    w  <- w - eta G (gradient of U) + N(0, 2 temperature eta G)

G is built from released gradients only, hence post-processing; and from those *before* this step, so that it does not
depend on the noise of the gradient that it multiplies. The mechanism's noise is the same on every coordinate, with
variance V: after the preconditioner it has variance eta^2 G^2 V. Since G is at most 1 / lambda, the method asks for
V = 2 temperature lambda / eta and adds what is missing, 2 temperature eta G - eta^2 G^2 V >= 0, on top. Where the plan
fixes V, G is kept at or below 2 temperature / (eta V).

The paper's drift term for a preconditioner that depends on w (its Gamma) is left out, as in the paper's experiments:
the error is of order 1 - rho while G moves. ``adapt_steps`` freezes G after so many steps, and the error is gone.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import final

import torch
from torch import Tensor, nn

from tacit.errors import InputError, check_count, check_fraction, check_positive
from tacit.inference.priors import FlatPrior, Prior
from tacit.inference.samplers.langevin import NoiseFrom, add_normals, check_sampler, gradient_variances, mean_square
from tacit.inference.step_sizes import StepSize, as_step_size
from tacit.losses import ModelLosses, UserLosses
from tacit.types import Vectors


@dataclass(frozen=True, slots=True)
class PSGLDState:
    params: Vectors
    squares: Vectors
    step: int = 0


@final
@dataclass(frozen=True)
class PSGLD:
    """Draws from the posterior by preconditioned private gradients.

    Args:
        model, user_losses, prior, dataset_size, noise, seed, mean_noise: as for :class:`SGLD`.
        step_size: eta; the step of a coordinate is eta G.
        temperature: of the posterior.
        damping: lambda, on the scale of a mean gradient. It bounds G, and through it the noise that is asked for.
        decay: rho in [0, 1), how long squared gradients are remembered.
        adapt_steps: freeze G after so many steps; None never does.
    """

    model: nn.Module
    user_losses: UserLosses
    prior: Prior = field(default_factory=FlatPrior)
    step_size: float | StepSize = 1e-6
    dataset_size: int = 0
    temperature: float = 1.0
    damping: float = 0.01
    decay: float = 0.99
    adapt_steps: int | None = None
    noise: NoiseFrom = "asked"
    seed: int = 0
    mean_noise: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        check_sampler(self.step_size, self.dataset_size, self.temperature, self.noise, self.seed)
        if self.temperature is None:
            raise InputError("preconditioned noise needs a temperature, found None; noise='planned' takes the plan's")
        check_positive("damping", self.damping)
        check_fraction("decay", self.decay)
        if self.adapt_steps is not None:
            check_count("adapt_steps", self.adapt_steps)

    @cached_property
    def losses(self) -> ModelLosses:
        return ModelLosses(self.model, self.user_losses)

    def init(self) -> PSGLDState:
        params = self.losses.start()
        return PSGLDState(params, {name: torch.zeros_like(value) for name, value in params.items()})

    def params(self, state: PSGLDState) -> Vectors:
        return state.params

    def noise_stddev(self, step: int, denominator: float) -> float | None:
        if self.noise == "planned":
            return None
        return denominator * math.sqrt(self._asked_variance(step)) / self.dataset_size

    def with_mean_noise(self, mean_noise: Mapping[str, float]) -> "PSGLD":
        return replace(self, mean_noise=mean_noise)

    def effective_temperature(self, noise_stddev: float, denominator: float, step: int = 0) -> float:
        """The declared one: what the mechanism's noise lacks of it is added."""
        return self.temperature

    def step_temperature(self, before: PSGLDState, after: PSGLDState) -> float:
        """move . move / G / (2 eta d), whose mean is the temperature of a chain whose G has come to rest."""
        eta = as_step_size(self.step_size).at(before.step)
        G = self._preconditioner(before, before.squares if before.step > 0 else after.squares)
        moves = {name: (w - before.params[name]) / G[name].sqrt() for name, w in after.params.items()}
        return mean_square(moves) / (2 * eta)

    def step(self, state: PSGLDState, mean_gradient: Mapping[str, Tensor]) -> PSGLDState:
        eta, tau = as_step_size(self.step_size).at(state.step), self.temperature
        V = self._variances(state)
        squares = state.squares if state.step > 0 else {name: g.square() for name, g in mean_gradient.items()}
        prior, preconditioner = self.prior.gradient(state.params), self._preconditioner(state, squares)
        params: Vectors = {}
        missing: dict[str, float | Tensor] = {}
        for name, w in state.params.items():
            G = preconditioner[name]
            params[name] = w - eta * G * (self.dataset_size * mean_gradient[name] + prior[name])
            missing[name] = 2 * tau * eta * G - eta**2 * G.square() * V[name]
        if self.adapt_steps is None or state.step < self.adapt_steps:
            squares = {
                name: self.decay * old + (1 - self.decay) * mean_gradient[name].square()
                for name, old in squares.items()
            }
        return PSGLDState(add_normals(params, missing, self.seed, state.step), squares, state.step + 1)

    def _preconditioner(self, state: PSGLDState, squares: Vectors) -> Vectors:
        """G of this step; no larger than the noise allows."""
        eta, V = as_step_size(self.step_size).at(state.step), self._variances(state)
        most = {name: 2 * self.temperature / (eta * V[name]) if V[name] > 0 else math.inf for name in V}
        return {name: (1 / (self.damping + g2.sqrt())).clamp(max=most[name]) for name, g2 in squares.items()}

    def _asked_variance(self, step: int) -> float:
        return 2 * self.temperature * self.damping / as_step_size(self.step_size).at(step)

    def _variances(self, state: PSGLDState) -> dict[str, float]:
        if self.noise == "planned":
            return gradient_variances(self.mean_noise, self.dataset_size)
        return dict.fromkeys(state.params, self._asked_variance(state.step))
