"""Stochastic gradient descent: a point, for comparison with the Bayesian methods. Momentum is post-processing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import final

import torch
from torch import Tensor, nn

from tacit.errors import InputError, check_count, check_fraction
from tacit.inference.priors import FlatPrior, Prior
from tacit.inference.step_sizes import StepSize, as_step_size
from tacit.losses import ModelLosses, UserLosses
from tacit.types import Vectors


@dataclass(frozen=True, slots=True)
class SGDState:
    params: Vectors
    momentum: Vectors
    step: int = 0


@final
@dataclass(frozen=True)
class SGD:
    """w <- w - eta (mean gradient + r'(w) / n), optionally with momentum.

    ``dataset_size`` is needed only with a prior, which is weighed against n records (Zhang et al. 2021, D.1).
    """

    model: nn.Module
    user_losses: UserLosses
    learning_rate: float | StepSize
    prior: Prior = field(default_factory=FlatPrior)
    dataset_size: int | None = None
    momentum: float = 0.0

    def __post_init__(self) -> None:
        check_fraction("momentum", self.momentum)
        if self.dataset_size is not None:
            check_count("dataset_size", self.dataset_size)
        if self.dataset_size is None and not isinstance(self.prior, FlatPrior):
            raise InputError("a prior is weighed against the data: dataset_size must be declared")
        as_step_size(self.learning_rate, "learning_rate")

    @cached_property
    def losses(self) -> ModelLosses:
        return ModelLosses(self.model, self.user_losses)

    def init(self) -> SGDState:
        params = self.losses.start()
        return SGDState(params, {name: torch.zeros_like(value) for name, value in params.items()})

    def params(self, state: SGDState) -> Vectors:
        return state.params

    def noise_stddev(self, step: int, denominator: float) -> float | None:
        return None

    def step(self, state: SGDState, mean_gradient: Mapping[str, Tensor]) -> SGDState:
        eta = as_step_size(self.learning_rate).at(state.step)
        momentum = self._gradient(state.params, mean_gradient)
        if self.momentum:
            momentum = {name: (self.momentum * state.momentum[name]).add_(g) for name, g in momentum.items()}
        params = {name: w - eta * momentum[name] for name, w in state.params.items()}
        return SGDState(params, momentum, state.step + 1)

    def _gradient(self, params: Vectors, mean_gradient: Mapping[str, Tensor]) -> Vectors:
        """With the prior's, unless there is none: sums with zeros would cost as much as the rest of the step."""
        if isinstance(self.prior, FlatPrior):
            return {name: mean_gradient[name] for name in params}
        prior, size = self.prior.gradient(params), self.dataset_size or 1
        return {name: mean_gradient[name] + prior[name] / size for name in params}
