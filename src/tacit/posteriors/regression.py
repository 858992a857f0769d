"""Predictions of numbers and counts: a mixture over draws, its quantiles, and whose fault the uncertainty is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.likelihoods import NumberLikelihood

_HALVINGS = 60


@dataclass(frozen=True, slots=True)
class RegressionPrediction:
    """The posterior predictive distribution of a number or a count, for each input.

    Args:
        mean: [inputs], of the mixture over draws.
        data_uncertainty: [inputs], the mean over draws of the predicted variances: noise that no knowledge removes.
        posterior_uncertainty: [inputs], the variance over draws of the predicted means (Zhang et al. 2021, C.2, with
            draws - 1 below); 0 for a point.
        quantiles: [inputs, levels], exact quantiles of the mixture.
        levels: which ones.
    """

    mean: Tensor
    data_uncertainty: Tensor
    posterior_uncertainty: Tensor
    quantiles: Tensor
    levels: tuple[float, ...]

    @property
    def stddev(self) -> Tensor:
        return (self.data_uncertainty + self.posterior_uncertainty).sqrt()

    @property
    def interval(self) -> tuple[Tensor, Tensor]:
        """The lowest and the highest of the quantiles: by default, 95 % of the probability lies between."""
        return self.quantiles[:, 0], self.quantiles[:, -1]


def check_levels(levels: Sequence[float]) -> tuple[float, ...]:
    if not levels or not all(0 < level < 1 for level in levels) or list(levels) != sorted(levels):
        raise InputError(f"levels must be rising numbers strictly between 0 and 1, found {list(levels)}")
    return tuple(levels)


def summarise(
    means: Tensor, variances: Tensor, likelihood: NumberLikelihood, levels: Sequence[float]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean, both uncertainties and quantiles of the mixture of components [draws, inputs]."""
    means, variances = means.double(), variances.double()
    spread = means.var(0) if len(means) > 1 else torch.zeros_like(means[0])

    def cdf(x: Tensor) -> Tensor:
        return likelihood.cdf(x, means, variances).mean(0)

    low, high = _bracket(means, variances)
    quantiles = [_quantile(cdf, low, high, level, whole=likelihood.whole) for level in levels]
    return means.mean(0), variances.mean(0), spread, torch.stack(quantiles, dim=1)


def _bracket(means: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
    """Where all components have practically all their mass; the search widens it should a level lie beyond."""
    reach = 10 * variances.sqrt() + 1
    return (means - reach).min(0).values, (means + reach).max(0).values


def _quantile(cdf: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, level: float, *, whole: bool) -> Tensor:
    """The smallest x whose probability is at least the level, by bisection; whole numbers if ``whole``."""
    if whole:
        low = torch.full_like(low, -1.0)
    for _ in range(64):
        short = cdf(high) < level
        if not bool(short.any()):
            break
        high = torch.where(short, 2 * high - low, high)
    for _ in range(_HALVINGS):
        if whole and bool((high - low <= 1).all()):
            break
        middle = (low + high) / 2
        middle = middle.floor() if whole else middle
        enough = cdf(middle) >= level
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return high.floor() if whole else high
