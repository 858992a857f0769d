"""Likelihoods: what a model's outputs say about the targets. Each is both the losses to train with and the way to read.

Called as ``likelihood(model, batch)`` with a batch of (inputs, targets), it gives the negative log-likelihood of every
record, so it can stand wherever ``losses`` does. ``predict(..., likelihood=...)`` reads outputs by the same object, so
that training and prediction cannot disagree about what an output means.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, softplus

from tacit.errors import InputError, check_positive, former_names
from tacit.types import Batch

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class NumberLikelihood(Protocol):
    """Targets are numbers; a draw predicts a mean and a variance for each input."""

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor: ...

    def moments(self, outputs: Tensor, params: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Mean and variance of the target, [inputs] each."""

    def cdf(self, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """The probability of at most x, given those moments."""

    @property
    def whole(self) -> bool:
        """Whether targets are whole numbers."""


@dataclass(frozen=True)
class Categorical:
    """One of several classes, from logits [inputs, classes]."""

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        inputs, targets = _pair(batch)
        return cross_entropy(model(inputs), targets.long(), reduction="none")

    def probabilities(self, outputs: Tensor) -> Tensor:
        if outputs.dim() != 2 or outputs.shape[1] < 2:
            raise InputError(f"softmax needs logits of shape [inputs, classes], found {list(outputs.shape)}")
        return outputs.softmax(1)


@dataclass(frozen=True)
class Bernoulli:
    """Yes or no, from one logit per input."""

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        inputs, targets = _pair(batch)
        logits = _one_column(model(inputs), "sigmoid needs one logit")
        return binary_cross_entropy_with_logits(logits, targets.to(logits.dtype), reduction="none")

    def probabilities(self, outputs: Tensor) -> Tensor:
        logits = _one_column(outputs, "sigmoid needs one logit")
        return torch.stack([torch.sigmoid(-logits), torch.sigmoid(logits)], dim=1)


class _NormalTargets:
    whole = False

    def cdf(self, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        below: Tensor = torch.special.ndtr((x - mean) / variance.sqrt())
        return below


@dataclass(frozen=True)
class Gaussian(_NormalTargets):
    """A number with normal noise of one known standard deviation, from one output per input.

    Example:
        >>> model = nn.Linear(1, 1)
        >>> Gaussian(2.0)(model, (torch.zeros(3, 1), model.bias.detach().expand(3))).round(decimals=4)
        tensor([1.6121, 1.6121, 1.6121], grad_fn=<RoundBackward1>)
    """

    stddev: float

    def __post_init__(self) -> None:
        check_positive("stddev", self.stddev)

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        inputs, targets = _pair(batch)
        residual = targets - _one_column(model(inputs), "a Gaussian needs one output")
        return 0.5 * (residual / self.stddev).square() + math.log(self.stddev) + _HALF_LOG_TWO_PI

    def moments(self, outputs: Tensor, params: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        mean = _one_column(outputs, "a Gaussian needs one output")
        return mean, torch.full_like(mean, self.stddev**2)


@dataclass(frozen=True)
class GaussianMixture:
    """A number with noise of a known distribution about one output: normals of several standard deviations, weighed.

    Two of them describe residuals with heavier tails than a normal distribution has.
    """

    stddevs: tuple[float, ...]
    weights: tuple[float, ...]
    whole = False

    def __post_init__(self) -> None:
        for stddev in self.stddevs:
            check_positive("stddev", stddev)
        rounded = abs(math.fsum(self.weights) - 1) < 1e-6
        if not self.stddevs or len(self.stddevs) != len(self.weights) or min(self.weights) < 0 or not rounded:
            raise InputError(f"each stddev needs a weight, and weights add up to 1, found {list(self.weights)}")

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        inputs, targets = _pair(batch)
        residual = targets - _one_column(model(inputs), "a mixture needs one output")
        parts = [
            math.log(max(weight, 1e-300)) - 0.5 * (residual / stddev).square() - math.log(stddev) - _HALF_LOG_TWO_PI
            for stddev, weight in zip(self.stddevs, self.weights, strict=True)
        ]
        return -torch.logsumexp(torch.stack(parts), 0)

    def moments(self, outputs: Tensor, params: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        mean = _one_column(outputs, "a mixture needs one output")
        variance = math.fsum(w * s**2 for w, s in zip(self.weights, self.stddevs, strict=True))
        return mean, torch.full_like(mean, variance)

    def cdf(self, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        below = torch.zeros_like(mean + x)
        for stddev, weight in zip(self.stddevs, self.weights, strict=True):
            below = below + weight * torch.special.ndtr((x - mean) / stddev)
        return below


@dataclass(frozen=True)
class LearnedGaussian(_NormalTargets):
    """Normal noise of one unknown standard deviation, learned as a parameter of the model by this name, as log stddev.

    The model must hold it: ``model.register_parameter("log_stddev", nn.Parameter(torch.zeros(())))``.
    """

    parameter: str = "log_stddev"

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        inputs, targets = _pair(batch)
        mean = _one_column(model(inputs), "a Gaussian needs one output")
        log_stddev = getattr(model, self.parameter, None)
        if not isinstance(log_stddev, Tensor):
            raise InputError(f"the model has no parameter {self.parameter!r}; register it, as log standard deviation")
        residual = (targets - mean) * torch.exp(-log_stddev)
        return 0.5 * residual.square() + log_stddev + _HALF_LOG_TWO_PI

    def moments(self, outputs: Tensor, params: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        mean = _one_column(outputs, "a Gaussian needs one output")
        if self.parameter not in params:
            raise InputError(f"the posterior holds no parameter {self.parameter!r}")
        return mean, torch.exp(2 * params[self.parameter]).expand_as(mean)


@dataclass(frozen=True)
class HeteroscedasticGaussian(_NormalTargets):
    """Normal noise that differs from input to input, from two outputs: mean and softplus^-1(stddev).

    Zhang et al. 2021, C.2.
    """

    least_stddev: float = 1e-3  # keeps a record from having an unbounded likelihood

    def __post_init__(self) -> None:
        check_positive("least_stddev", self.least_stddev)

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        inputs, targets = _pair(batch)
        mean, stddev = self._read(model(inputs))
        return 0.5 * ((targets - mean) / stddev).square() + stddev.log() + _HALF_LOG_TWO_PI

    def moments(self, outputs: Tensor, params: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        mean, stddev = self._read(outputs)
        return mean, stddev.square()

    def _read(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        if outputs.dim() != 2 or outputs.shape[1] != 2:
            raise InputError(f"mean and spread need outputs of shape [inputs, 2], found {list(outputs.shape)}")
        return outputs[:, 0], softplus(outputs[:, 1]) + self.least_stddev


@dataclass(frozen=True)
class Poisson:
    """Counts, from one output per input: the logarithm of the rate."""

    whole = True

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        inputs, targets = _pair(batch)
        log_rate = _one_column(model(inputs), "a count needs one output")
        return log_rate.exp() - targets * log_rate + torch.lgamma(targets.to(log_rate.dtype) + 1)

    def moments(self, outputs: Tensor, params: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        rate = _one_column(outputs, "a count needs one output").exp()
        return rate, rate

    def cdf(self, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        below: Tensor = torch.special.gammaincc(x.floor() + 1, mean)
        return below


@dataclass(frozen=True)
class Counts:
    """Counts on the scale that tables have, count / half - 1, from one output per input: the logarithm of the rate.

    The loss is Poisson's over ``half``. Predictions have the variance dispersion x rate: a count over the dispersion is
    taken as Poisson's.

    Args:
        half: of the largest count that was declared; rates beyond that count as it.

    Example:
        >>> mean, variance = Counts(half=10.0, dispersion=2.0).moments(torch.tensor([[0.0]]), {})
        >>> (10 * (1 + mean)).round(decimals=4).tolist(), (100 * variance).round(decimals=4).tolist()
        ([1.0], [2.0])
    """

    half: float
    dispersion: float = 1.0
    whole = False

    def __post_init__(self) -> None:
        check_positive("half", self.half)
        check_positive("dispersion", self.dispersion)

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        inputs, targets = _pair(batch)
        log_rate = _one_column(model(inputs), "a count needs one output")
        beyond = log_rate - self._most_log
        rate = self.rate(log_rate) + 2 * self.half * beyond.clamp(min=0)  # goes on straight
        return rate / self.half - (1 + targets) * log_rate

    def moments(self, outputs: Tensor, params: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        rate = self.rate(_one_column(outputs, "a count needs one output"))
        return rate / self.half - 1, self.dispersion * rate / self.half**2

    def cdf(self, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """By Wilson and Hilferty's root of a gamma variable: within .013 of Poisson's, and quick."""
        count, rate = (self.half * (1 + x) + 1e-6).floor(), self.half * (1 + mean)
        shape = count.clamp(min=0) / self.dispersion + 1
        root = (rate / self.dispersion / shape).clamp(min=0) ** (1 / 3)
        below: Tensor = torch.special.ndtr(3 * shape.sqrt() * (1 - 1 / (9 * shape) - root))
        return torch.where(count < 0, 0.0, below)

    @property
    def _most_log(self) -> float:
        return math.log(2 * self.half)

    def rate(self, log_rate: Tensor) -> Tensor:
        return log_rate.clamp(max=self._most_log).exp()


@dataclass(frozen=True)
class Weighed:
    """A likelihood whose records count min(1, 1 / |x|), x being their inputs, which bounds a linear model's gradients.

    The weight is a function of the covariates alone, so that the weighed gradient still has expectation zero at the
    true coefficients (Mallows): no bias in a linear model that is right. Scaling x would make it another model.

    Example:
        >>> Weighed(Bernoulli()).weights(torch.tensor([[0.6, 0.0], [3.0, 4.0]]))
        tensor([1.0000, 0.2000])
    """

    likelihood: "Bernoulli | Categorical | Gaussian | Counts | RecordWeighed"

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        return self.weights(_pair(batch)[0]) * self.likelihood(model, batch)

    def weights(self, inputs: Tensor) -> Tensor:
        """One for each row."""
        return inputs.flatten(1).square().sum(1).sqrt().clamp(min=1).reciprocal()


@dataclass(frozen=True)
class RecordWeighed:
    """A likelihood whose records bring weights of their own, shares in [0, 1]: targets [records, 2] hold both.

    ``classes`` is how many there are, where targets are classes; a made-up number that is none counts as the nearest.

    Example:
        >>> batch = torch.zeros(2, 1), torch.tensor([[2.0, 1.0], [2.0, 0.5]])
        >>> first, second = RecordWeighed(Gaussian(1.0))(nn.Identity(), batch).tolist()
        >>> first == 2 * second
        True
    """

    likelihood: Bernoulli | Categorical | Gaussian | Counts
    classes: int | None = None

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        inputs, both = _pair(batch)
        targets = both[:, 0] if self.classes is None else both[:, 0].nan_to_num().clamp(0, self.classes - 1)
        return both[:, 1] * self.likelihood(model, (inputs, targets))


Likelihood = (
    Categorical | Bernoulli | Gaussian | GaussianMixture | LearnedGaussian | HeteroscedasticGaussian | Poisson | Counts
)


def _pair(batch: Batch) -> tuple[Any, Tensor]:
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise InputError("a likelihood needs batches of (inputs, targets)")
    return batch[0], batch[1]


def _one_column(outputs: Tensor, message: str) -> Tensor:
    columns = outputs.reshape(len(outputs), -1)
    if columns.shape[1] != 1:
        raise InputError(f"{message} per input, found {columns.shape[1]}")
    return columns[:, 0]


__getattr__ = former_names(__name__, {"ScaleMixture": "GaussianMixture"})
