"""Variational inference: the Gaussian closest to the posterior, found by private gradients (DPVI).

At every step one w = mean + scale e is drawn for all records, with a public e. The mechanism releases the clipped
noisy mean gradient G of the losses at w; by the chain rule, G and e give the gradients of mean and spread, and the
prior and the entropy need no data at all. So everything after G is post-processing:

    d/dmean = G + dKL/dmean / n          d/dspread = (dw/dspread)^T G + dKL/dspread / n

Jalko et al. 2016 (DPVI) and Zhang et al. (the DP-BNN paper) clip the gradient of mean and spread *together* and add
noise to both halves. The second half is a function of the first and of e, so their noisy pair says no more about a
record than G does, and here only half of the coordinates get noise (aligned gradients; Jalko, Prediger, Honkela and
Kaski). A record's joint norm is |G| weighed by 1 + (e s'(rho))^2 in every coordinate: for standard deviations below 0.1
within about one percent of |G|, so the same clip norms fit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import final

from torch import Tensor, nn

from tacit.errors import check_count, check_fraction, check_positive
from tacit.inference.descent import AdamDescent, Descent, Moments, PlainDescent, averaged
from tacit.inference.gaussian_families import GaussianFamily, MeanField
from tacit.inference.priors import GaussianPrior, Prior
from tacit.inference.step_sizes import StepSize
from tacit.losses import ModelLosses, UserLosses
from tacit.posteriors import GaussianPosterior
from tacit.posteriors.normals import standard_normals
from tacit.types import Vectors

_MEAN, _SPREAD = "mean.", "spread."
_DP_BNN_PRIOR = GaussianPrior(0.1)


@dataclass(frozen=True, slots=True)
class VariationalState:
    """``noise`` is e, at which the next gradient is taken; ``average`` is empty unless iterates are averaged."""

    mean: Vectors
    spread: Vectors
    noise: Vectors
    moments: Moments
    average: Vectors
    step: int = 0


@final
@dataclass(frozen=True)
class VariationalInference:
    """The Gaussian that maximises the evidence lower bound of the user's model (Jalko et al. 2016).

    Args:
        model, user_losses: the user's; losses are negative log-likelihoods, one per record. The model's own weights
            are the first mean.
        dataset_size: n, the declared number of records: prior and entropy are weighed against it.
        prior: its expectation is taken in closed form where it has one, else at the draw.
        family: MeanField(), or FullRank() for models of few parameters.
        descent: what becomes of the gradients, AdamDescent or PlainDescent, on the scale of the mean loss.
        initial_stddev: of every weight.
        temperature: weight of KL(q | prior); below 1 the posterior is colder than Bayes' rule says.
        average: how much of the running average of iterates is kept at each step; 0 takes the last one. Averaging
            removes noise and costs nothing.
        seed: of the public draws e, numbered by step, so that a restarted run goes on where it stopped.

    Example:
        >>> import torch
        >>> model = nn.Linear(1, 1)
        >>> method = VariationalInference(model, lambda model, x: model(x)[:, 0].square(), dataset_size=100)
        >>> state = method.step(method.init(), {name: torch.ones_like(p) for name, p in model.named_parameters()})
        >>> method.posterior(state).stddev["weight"].shape
        torch.Size([1, 1])
    """

    model: nn.Module
    user_losses: UserLosses
    dataset_size: int
    prior: Prior = field(default_factory=lambda: GaussianPrior(1.0))
    family: GaussianFamily = field(default_factory=MeanField)
    descent: Descent = field(default_factory=AdamDescent)
    initial_stddev: float = 0.05
    temperature: float = 1.0
    average: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("dataset_size", self.dataset_size)
        check_positive("initial_stddev", self.initial_stddev)
        check_positive("temperature", self.temperature)
        check_fraction("average", self.average)

    @cached_property
    def losses(self) -> ModelLosses:
        return ModelLosses(self.model, self.user_losses)

    def init(self) -> VariationalState:
        mean = self.losses.start()
        spread = self.family.init(mean, self.initial_stddev)
        both = _join(mean, spread)
        noise = standard_normals(self.seed, 0, mean)
        return VariationalState(mean, spread, noise, self.descent.init(both), both if self.average else {})

    def params(self, state: VariationalState) -> Vectors:
        return self.family.draw(state.mean, state.spread, state.noise)

    def noise_stddev(self, step: int, denominator: float) -> float | None:
        return None

    def step(self, state: VariationalState, mean_gradient: Mapping[str, Tensor]) -> VariationalState:
        gradient = self._gradient(state, mean_gradient)
        both, moments = self.descent.move(_join(state.mean, state.spread), gradient, state.moments, state.step)
        step = state.step + 1
        mean, spread = _part(both, _MEAN), _part(both, _SPREAD)
        noise = standard_normals(self.seed, step, mean)
        average = averaged(state.average, both, self.average, state.step)
        return VariationalState(mean, spread, noise, moments, average, step)

    def posterior(self, state: VariationalState) -> GaussianPosterior:
        """The Gaussian found so far."""
        both = state.average or _join(state.mean, state.spread)
        return self.family.posterior(_part(both, _MEAN), _part(both, _SPREAD))

    def _gradient(self, state: VariationalState, at_draw: Mapping[str, Tensor]) -> Vectors:
        """Of the mean loss plus temperature KL(q | prior) / n, from the released gradient at the draw."""
        d_mean, d_spread = self.family.divergence_gradient(state.mean, state.spread, state.noise, self.prior)
        pulled = self.family.pull(state.spread, state.noise, at_draw)
        weight = self.temperature / self.dataset_size
        return _join(
            {name: at_draw[name] + weight * value for name, value in d_mean.items()},
            {name: pulled[name] + weight * value for name, value in d_spread.items()},
        )


def _join(mean: Mapping[str, Tensor], spread: Mapping[str, Tensor]) -> Vectors:
    """Both halves as one set of vectors, for a descent that knows no halves."""
    return {_MEAN + name: value for name, value in mean.items()} | {
        _SPREAD + name: value for name, value in spread.items()
    }


def _part(both: Mapping[str, Tensor], half: str) -> Vectors:
    return {name.removeprefix(half): value for name, value in both.items() if name.startswith(half)}


def bayes_by_backprop(
    model: nn.Module,
    losses: UserLosses,
    *,
    dataset_size: int,
    learning_rate: float | StepSize = 0.25,
    prior: Prior = _DP_BNN_PRIOR,
    initial_stddev: float = 0.02,
    momentum: float = 0.0,
    temperature: float = 1.0,
    average: float = 0.0,
    seed: int = 0,
) -> VariationalInference:
    """Bayes by Backprop (Blundell et al. 2015): a standard deviation for every weight, by stochastic gradient descent.

    It is mean-field variational inference, as the DP-BNN paper (B.1) writes it: w = mu + log(1 + exp(rho)) e, and the
    descent of its equation 7 on (mu, rho). One draw of w per step, shared by all records: every further draw would be
    one more release. The arguments are those of :class:`VariationalInference`, the default rate and prior the paper's
    (C.1). It clips the gradient at the drawn weights, where the paper clips those of mu and rho together; this file's
    first lines say why that is the same privacy for less noise.
    """
    descent: Descent = PlainDescent(learning_rate, momentum)
    return VariationalInference(
        model, losses, dataset_size, prior, MeanField(), descent, initial_stddev, temperature, average, seed
    )
