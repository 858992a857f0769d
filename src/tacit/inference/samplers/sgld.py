"""Stochastic gradient Langevin dynamics, whose noise is the privacy noise.

Zhang et al. 2021, theorem 1; Li et al. 2019, algorithm 1.

    w <- w - eta (n/B sum of clipped gradients + r'(w)) + sqrt(2 temperature eta) N(0, I)

The Langevin term is nothing but noise of standard deviation s = B sqrt(2 temperature / eta) / n on the *sum* of
gradients. So the method asks the mechanism for s and adds none of its own; it is DP-SGD with noise multiplier s / C and
learning rate n eta. Every iterate is charged, burn-in too, so any number of draws may be kept at the same cost.

Where the noise is fixed by a budget, temperature 1 fixes the step size, eta = 2 temperature / V, with V the variance of
the noise on the gradient of the whole sum. If the chain is not stable at it, the stable step is used and the noise that
is missing, 2 temperature eta - eta^2 V, is added on top (noise="planned").

Zhang et al. 2021 (D.1) and Li et al. 2019 sample at temperature 1/2; the posterior itself is temperature 1.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import final

from torch import Tensor, nn

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


def sgld_noise_multiplier(
    step_size: float, *, batch_size: float, dataset_size: float, clip_norm: float, temperature: float = 1.0
) -> float:
    """z = B sqrt(2 temperature) / (n sqrt(eta) C): the noise multiplier that a Langevin step has.

    Example (Zhang et al. 2021's DP-SGLD):
        >>> round(sgld_noise_multiplier(5e-6, batch_size=256, dataset_size=60_000, clip_norm=1.5, temperature=0.5), 5)
        1.27207
    """
    return batch_size * math.sqrt(2 * temperature) / (dataset_size * math.sqrt(step_size) * clip_norm)


def sgd_from_sgld(
    step_size: float, *, batch_size: float, dataset_size: float, clip_norm: float, temperature: float = 1.0
) -> tuple[float, float]:
    """The DP-SGD (learning rate on the mean loss, noise multiplier) that equals this DP-SGLD.

    Zhang et al. 2021, theorem 1.
    """
    multiplier = sgld_noise_multiplier(
        step_size, batch_size=batch_size, dataset_size=dataset_size, clip_norm=clip_norm, temperature=temperature
    )
    return dataset_size * step_size, multiplier


def sgld_from_sgd(
    learning_rate: float, multiplier: float, *, batch_size: float, dataset_size: float, temperature: float = 1.0
) -> tuple[float, float]:
    """The DP-SGLD (step size, clip norm) that equals this DP-SGD (Zhang et al. 2021, theorem 1, second part)."""
    clip_norm = batch_size * math.sqrt(2 * temperature) / (math.sqrt(dataset_size * learning_rate) * multiplier)
    return learning_rate / dataset_size, clip_norm


@dataclass(frozen=True, slots=True)
class SGLDState:
    params: Vectors
    step: int = 0


@final
@dataclass(frozen=True)
class SGLD:
    """Draws from the posterior of the user's model, by private gradients.

    Args:
        model, user_losses: the user's; losses are negative log-likelihoods, one per record.
        prior: its gradient is added after the noise.
        step_size: eta, on the scale of the sum over all n records; a number or a schedule.
        dataset_size: n, the declared number of records.
        temperature: of the posterior that is sampled; it decides the noise, hence the privacy. None leaves the noise
            to the plan; :meth:`effective_temperature` then says what is sampled.
        noise: "asked" asks the mechanism for the Langevin noise. "planned" takes the plan's, with ``step_size`` the
            largest stable one: smaller steps are taken if the noise is large, noise is added on top if it is small.
        seed: of the noise on top, which is not privacy noise.
        mean_noise: with "planned": the plan's noise on each coordinate of the mean gradient; train fills it in.
    """

    model: nn.Module
    user_losses: UserLosses
    prior: Prior = field(default_factory=FlatPrior)
    step_size: float | StepSize = 1e-6
    dataset_size: int = 0
    temperature: float | None = 1.0
    noise: NoiseFrom = "asked"
    seed: int = 0
    mean_noise: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        check_sampler(self.step_size, self.dataset_size, self.temperature, self.noise, self.seed)

    @cached_property
    def losses(self) -> ModelLosses:
        return ModelLosses(self.model, self.user_losses)

    def init(self) -> SGLDState:
        return SGLDState(self.losses.start())

    def params(self, state: SGLDState) -> Vectors:
        return state.params

    def noise_stddev(self, step: int, denominator: float) -> float | None:
        if self.temperature is None or self.noise == "planned":
            return None
        eta = as_step_size(self.step_size).at(step)
        return denominator * math.sqrt(2 * self.temperature / eta) / self.dataset_size

    def with_mean_noise(self, mean_noise: Mapping[str, float]) -> "SGLD":
        return replace(self, mean_noise=mean_noise)

    def effective_temperature(self, noise_stddev: float, denominator: float, step: int = 0) -> float:
        """The temperature that noise of this size on the sum amounts to, by itself: eta (s n / B)^2 / 2.

        Above 1 the draws come from a flatter, tempered posterior: legitimate, but to be said. Drawing records adds to
        it; what it was in the end, :meth:`step_temperature` measures.
        """
        if self.temperature is not None and self.noise == "planned":
            return self.temperature  # the step shrinks, or noise is added, until it is
        eta = as_step_size(self.step_size).at(step)
        return eta * (noise_stddev * self.dataset_size / denominator) ** 2 / 2

    def step_temperature(self, before: SGLDState, after: SGLDState) -> float:
        """|move|^2 / (2 eta d), whose mean is the temperature of the chain (langevin.py)."""
        eta, _ = self._dynamics(before.step)
        return mean_square({name: w - before.params[name] for name, w in after.params.items()}) / (2 * eta)

    def step(self, state: SGLDState, mean_gradient: Mapping[str, Tensor]) -> SGLDState:
        eta, missing = self._dynamics(state.step)
        prior = self.prior.gradient(state.params)
        params = {
            name: w - eta * (self.dataset_size * mean_gradient[name] + prior[name]) for name, w in state.params.items()
        }
        if missing is not None:
            params = add_normals(params, missing, self.seed, state.step)
        return SGLDState(params, state.step + 1)

    def _dynamics(self, step: int) -> tuple[float, dict[str, float] | None]:
        """Step size, and the variance of the noise on top."""
        eta = as_step_size(self.step_size).at(step)
        if self.temperature is None or self.noise == "asked":
            return eta, None
        V = gradient_variances(self.mean_noise, self.dataset_size)
        eta = stable_step(eta, self.temperature, V)
        return eta, {name: 2 * self.temperature * eta - eta**2 * V[name] for name in V}
