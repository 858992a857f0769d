"""Predictions averaged over a posterior, with what they do not know taken apart.

With p_s the class probabilities of draw s and p their mean, the total uncertainty is the entropy H(p); the data's share
is the mean of H(p_s); the difference, the mutual information, is what more knowledge of the weights would remove. For
numbers and counts the variance is taken apart in the same way (``posteriors/regression``).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, get_args, overload

import torch
from torch import Tensor, nn

from tacit.errors import InputError, check_choice, check_count
from tacit.likelihoods import (
    Bernoulli,
    Categorical,
    Counts,
    Gaussian,
    GaussianMixture,
    HeteroscedasticGaussian,
    LearnedGaussian,
    Likelihood,
    Poisson,
)
from tacit.posteriors.dropout import DropoutPosterior
from tacit.posteriors.posterior import Posterior
from tacit.posteriors.regression import RegressionPrediction, check_levels, summarise
from tacit.types import Vectors

Link = Literal["softmax", "sigmoid"]
Numbers = Gaussian | GaussianMixture | LearnedGaussian | HeteroscedasticGaussian | Poisson | Counts
DEFAULT_LEVELS = (0.025, 0.5, 0.975)


@dataclass(frozen=True, slots=True)
class Prediction:
    """Class probabilities and their uncertainty, in nats.

    Args:
        mean: [inputs, classes], the posterior predictive probabilities.
        entropy: [inputs], total uncertainty.
        mutual_information: [inputs], the part of it that comes from not knowing the weights; 0 for a point.
    """

    mean: Tensor
    entropy: Tensor
    mutual_information: Tensor

    @property
    def classes(self) -> Tensor:
        """The most probable class of each input."""
        return self.mean.argmax(1)

    @property
    def confidence(self) -> Tensor:
        return self.mean.max(1).values


@overload
def predict(
    model: nn.Module,
    posterior: Posterior,
    inputs: Any,
    *,
    link: Link = "softmax",
    likelihood: Categorical | Bernoulli | None = None,
    levels: Sequence[float] = DEFAULT_LEVELS,
    batch_size: int = 1024,
) -> Prediction: ...


@overload
def predict(
    model: nn.Module,
    posterior: Posterior,
    inputs: Any,
    *,
    link: Link = "softmax",
    likelihood: Numbers,
    levels: Sequence[float] = DEFAULT_LEVELS,
    batch_size: int = 1024,
) -> RegressionPrediction: ...


def predict(
    model: nn.Module,
    posterior: Posterior,
    inputs: Any,
    *,
    link: Link = "softmax",
    likelihood: Likelihood | None = None,
    levels: Sequence[float] = DEFAULT_LEVELS,
    batch_size: int = 1024,
) -> Prediction | RegressionPrediction:
    """Predict with every draw and average, streaming over draws and inputs in bounded memory.

    Args:
        model: maps a batch of inputs to logits: [inputs, classes], or [inputs] or [inputs, 1] with link="sigmoid"; or
            to what the likelihood reads.
        inputs: a tensor whose first dimension counts inputs.
        likelihood: what outputs mean; it takes the place of the link. Numbers and counts give a
            :class:`RegressionPrediction`.
        levels: of the quantiles of numbers and counts.

    Example:
        >>> from tacit.posteriors import Point
        >>> model = nn.Linear(2, 3)
        >>> point = Point({name: torch.zeros_like(p) for name, p in model.named_parameters()})
        >>> predict(model, point, torch.ones(1, 2)).mean
        tensor([[0.3333, 0.3333, 0.3333]])
    """
    if not isinstance(inputs, Tensor) or inputs.dim() == 0:
        raise InputError(f"inputs must be a tensor of records, found {type(inputs).__name__}")
    if not len(inputs):
        raise InputError("inputs must hold at least one record, found none")
    check_count("batch_size", batch_size)
    check_choice("link", link, get_args(Link))
    reader = likelihood or (Categorical() if link == "softmax" else Bernoulli())
    starts = range(0, len(inputs), batch_size)
    batches = [(start, inputs[start : start + batch_size]) for start in starts]
    with torch.no_grad(), _evaluating(model):
        if isinstance(reader, Categorical | Bernoulli):
            parts = [_classes(_outputs(model, posterior, batch, start), reader) for start, batch in batches]
            return Prediction(*(torch.cat(column) for column in zip(*parts, strict=True)))
        chosen = check_levels(levels)
        numbers = [_numbers(_outputs(model, posterior, batch, start), reader, chosen) for start, batch in batches]
        mean, data, spread, quantiles = (torch.cat(column) for column in zip(*numbers, strict=True))
        return RegressionPrediction(mean, data, spread, quantiles, chosen)


def _check_fits(model: nn.Module, params: Vectors) -> None:
    """Refuse the draws of another model, which PyTorch would refuse in words of its own, or broadcast."""
    for name, known in model.named_parameters():
        found = params.get(name, known)
        if found.shape != known.shape or not found.is_floating_point():
            raise InputError(
                f"the posterior is of another model: its {name} has shape {list(found.shape)} and {found.dtype}, "
                f"the model's {list(known.shape)}"
            )


def _outputs(model: nn.Module, posterior: Posterior, inputs: Tensor, start: int) -> Iterator[tuple[Tensor, Vectors]]:
    """The outputs of each draw and its parameters, one draw at a time."""
    for draw, params in enumerate(posterior):
        _check_fits(model, params)
        with posterior.running(model, draw, start) if isinstance(posterior, DropoutPosterior) else nullcontext():
            outputs: Tensor = torch.func.functional_call(model, params, (inputs,))
        yield outputs, params


def _classes(
    outputs: Iterator[tuple[Tensor, Vectors]], likelihood: Categorical | Bernoulli
) -> tuple[Tensor, Tensor, Tensor]:
    mean: Tensor | None = None
    data_entropy: Tensor | None = None
    draws = 0
    for output, _ in outputs:
        probabilities = likelihood.probabilities(output)
        entropy = _entropy(probabilities)
        mean = probabilities if mean is None else mean + probabilities
        data_entropy = entropy if data_entropy is None else data_entropy + entropy
        draws += 1
    if mean is None or data_entropy is None:
        raise InputError("the posterior holds no draw")
    mean, data_entropy = mean / draws, data_entropy / draws
    total = _entropy(mean)
    return mean, total, (total - data_entropy).clamp(min=0)


def _numbers(
    outputs: Iterator[tuple[Tensor, Vectors]], likelihood: Numbers, levels: tuple[float, ...]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    pairs = [likelihood.moments(output, params) for output, params in outputs]
    if not pairs:
        raise InputError("the posterior holds no draw")
    return summarise(torch.stack([m for m, _ in pairs]), torch.stack([v for _, v in pairs]), likelihood, levels)


def _entropy(probabilities: Tensor) -> Tensor:
    terms: Tensor = torch.special.entr(probabilities)
    return terms.sum(1)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for the time of the call; every module gets its own mode back."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
