"""MC dropout (Gal and Ghahramani 2016): train with units dropped at random, and go on dropping them to predict.

Training is descent on losses in which every record has its own masks; the clip bounds a record's gradient whatever its
masks are. The engine draws them from the secure source (``training/private_sum``), because a mask that can be foreseen
would tell where in the batch a record lies. Weight decay is the prior of Zhang et al. 2021's equation 10: with keep
probability p, length scale l and precision tau, GaussianPrior(sqrt(tau / p) / l).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import final

from torch import Tensor, nn

from tacit.errors import InputError, check_count, check_fraction
from tacit.inference.descent import Descent, Moments, PlainDescent, averaged
from tacit.inference.priors import FlatPrior, Prior
from tacit.losses import ModelLosses, UserLosses
from tacit.posteriors import DropoutPosterior
from tacit.posteriors.dropout import dropout_layers, dropping
from tacit.types import Batch, Vectors


@dataclass(frozen=True, slots=True)
class DropoutState:
    params: Vectors
    moments: Moments
    average: Vectors
    step: int = 0


@final
@dataclass(frozen=True)
class MCDropout:
    """Weights for a model with dropout layers, and predictions averaged over masks.

    Args:
        model: with nn.Dropout layers. They are switched on while losses are computed and get their mode back.
        user_losses: one loss per record.
        descent: on the mean loss.
        prior, dataset_size: as in SGD.
        draws: how many masks a prediction averages over.
        average: how much of the running average of iterates is kept at each step; 0 takes the last one.
    """

    model: nn.Module
    user_losses: UserLosses
    descent: Descent = field(default_factory=lambda: PlainDescent(0.25))
    prior: Prior = field(default_factory=FlatPrior)
    dataset_size: int | None = None
    draws: int = 100
    average: float = 0.0

    def __post_init__(self) -> None:
        check_count("draws", self.draws)
        if not dropout_layers(self.model):
            raise InputError("MC dropout needs a model with nn.Dropout layers, found none")
        if self.dataset_size is not None:
            check_count("dataset_size", self.dataset_size)
        elif not isinstance(self.prior, FlatPrior):
            raise InputError("a prior is weighed against the data: dataset_size must be declared")
        check_fraction("average", self.average)

    @cached_property
    def losses(self) -> ModelLosses:
        return ModelLosses(self.model, _Dropping(self.user_losses))

    def init(self) -> DropoutState:
        params = self.losses.start()
        return DropoutState(params, self.descent.init(params), params if self.average else {})

    def params(self, state: DropoutState) -> Vectors:
        return state.params

    def noise_stddev(self, step: int, denominator: float) -> float | None:
        return None

    def step(self, state: DropoutState, mean_gradient: Mapping[str, Tensor]) -> DropoutState:
        prior, size = self.prior.gradient(state.params), self.dataset_size or 1
        gradient = {name: mean_gradient[name] + value / size for name, value in prior.items()}
        params, moments = self.descent.move(state.params, gradient, state.moments, state.step)
        average = averaged(state.average, params, self.average, state.step)
        return DropoutState(params, moments, average, state.step + 1)

    def posterior(self, state: DropoutState) -> DropoutPosterior:
        return DropoutPosterior(state.average or state.params, self.draws)


class _Dropping:
    """The user's losses with dropout on; an object of its own, so that plans of the fast path can refer to it."""

    def __init__(self, losses: UserLosses) -> None:
        self.losses = losses

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        with dropping(model):
            return self.losses(model, batch)
