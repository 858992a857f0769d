"""A problem's model, its likelihood and the method that learns it, in PyTorch."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from tacit.inference import (
    SGD,
    SGHMC,
    SGLD,
    AdamDescent,
    GaussianPrior,
    InferenceMethod,
    MCDropout,
    PlainDescent,
    VariationalInference,
    bayes_by_backprop,
)
from tacit.likelihoods import Bernoulli, Categorical, Counts, Gaussian, GaussianMixture, RecordWeighed, Weighed
from tacit.runs.factory import model_from_factory
from tacit.runs.facts import Spread
from tacit.runs.problem import HIDDEN, Problem
from tacit.tables import Encoded, target_scale
from tacit.tables.weights import weighs

DROPOUT = 0.05
FRICTION = 0.3
WORKING_STDDEV = 1.0  # of the squared error that finds the mean; the real spread is found afterwards (runs/spread)


PEARSON = 10.0  # standard deviations of a count that one on the scale of residuals stands for


def likelihood_of(problem: Problem) -> Bernoulli | Categorical | Gaussian | Counts:
    """What the targets are taken to be like while the model is learned."""
    if problem.counts:
        return Counts(target_scale(problem.schema, problem.target)[1])
    if problem.classes is None:
        return Gaussian(WORKING_STDDEV)
    return Bernoulli() if problem.outputs == 1 else Categorical()


def spread_likelihood(problem: Problem, spread: Spread) -> GaussianMixture | Counts:
    """What numbers are like about their predicted means, once the spread of residuals is known."""
    if not problem.counts:
        return GaussianMixture(spread.stddevs, spread.weights)
    variance = math.fsum(w * s**2 for w, s in zip(spread.weights, spread.stddevs, strict=True))
    return Counts(target_scale(problem.schema, problem.target)[1], PEARSON**2 * variance)


def residuals_of(problem: Problem, targets: Tensor, mean: Tensor) -> Tensor:
    """Private: how far targets are from their predicted means; of counts in their standard deviations by Poisson."""
    away = targets.double() - mean
    if not problem.counts:
        return away
    half = target_scale(problem.schema, problem.target)[1]
    return away * (half / (1 + mean).clamp(min=1e-6)).sqrt() / PEARSON


def losses_of(problem: Problem) -> Weighed | RecordWeighed | Bernoulli | Categorical | Gaussian | Counts:
    """What is learned from: the likelihood, weighed so that one record cannot count more than another."""
    likelihood = likelihood_of(problem)
    classes = None if problem.classes is None else len(problem.classes)
    found = RecordWeighed(likelihood, classes) if weighs(problem.schema) else likelihood
    return Weighed(found) if problem.schema.scaling == "linear" else found


def batch_of(data: Encoded) -> tuple[Tensor, Tensor]:
    """Records as the losses take them: inputs, and targets, with weights beside them if records have any."""
    inputs, targets = torch.from_numpy(data.inputs), torch.from_numpy(data.targets)
    if data.weights is None:
        return inputs, targets
    return inputs, torch.stack([targets.float(), torch.from_numpy(data.weights)], 1)


def build_model(problem: Problem) -> nn.Module:
    """The model before training; its start is public, the same every time."""
    dropout = DROPOUT if problem.method == "dropout" else None
    match problem.model:
        case "linear":
            return _linear(problem.features, problem.outputs, dropout)
        case "mlp":
            return _mlp(problem.features, problem.outputs, dropout)
        case _:
            return model_from_factory(problem.model, problem.features, problem.outputs)


def reading_model(problem: Problem) -> nn.Module:
    """The model as it predicts: where clipping changed what its logits mean, they are put right.

    The size of a record's gradient is known of a linear model with two classes: |p - y| |x|, |x| at most 1. It is not
    where records have weights or people several of them, nor of networks. With more classes it is known too, but a
    model that stops early, on classes that are clear, became too timid by it (docs/tables.md).
    """
    known = problem.model == "linear" and problem.method in ("sgld", "sghmc", "sgd") and problem.outputs == 1
    if not known or problem.classes is None or weighs(problem.schema) or problem.schema.unit != "record":
        return build_model(problem)
    return _Unclipped(problem.features, problem.recipe.clip_norm)


class _Unclipped(nn.Linear):
    """Log odds of the records from logits that were learned by gradients clipped at C.

    Clipping multiplies a record's gradient by a_y = min(1, C / (|p - y| |x|)), so that where a share t of records like
    x says yes, t a_1 (1 - p) = (1 - t) a_0 p at rest, and

        log odds of t = logit of p + log a_0 - log a_1.

    A model that is wrong and sure is cut most, so that p alone is too sure.
    """

    def __init__(self, features: int, clip: float) -> None:
        super().__init__(features, 1, bias=False)
        self.clip = clip

    def forward(self, x: Tensor) -> Tensor:
        logit: Tensor = super().forward(x)
        reach = x.norm(dim=1, keepdim=True).clamp(max=1)  # a longer record's loss weighs 1 / |x|
        kept = [(self.clip / (reach * torch.sigmoid(side)).clamp(min=1e-12)).clamp(max=1) for side in (logit, -logit)]
        odds: Tensor = logit + kept[0].log() - kept[1].log()
        return odds


def inference_method(problem: Problem, model: nn.Module) -> InferenceMethod[Any]:
    """The method with the recipe's settings."""
    settings, n, losses = problem.recipe, problem.units, losses_of(problem)
    rate, prior = settings.learning_rate, GaussianPrior(settings.prior_stddev)
    average = 1 - 10 / settings.steps
    match problem.method:
        case "sgld":
            return SGLD(model, losses, prior, rate / n, n, temperature=None)
        case "sghmc":  # a step of SGLD with eta / friction goes as far
            return SGHMC(model, losses, prior, FRICTION * rate / n, n, temperature=None, friction=FRICTION)
        case "bbp":
            start = min(0.05, settings.prior_stddev)
            return bayes_by_backprop(
                model, losses, dataset_size=n, learning_rate=rate, prior=prior,
                initial_stddev=start, average=average,
            )  # fmt: skip
        case "vi":
            return VariationalInference(
                model, losses, n, prior, descent=AdamDescent(rate), initial_stddev=0.1, average=average
            )
        case "dropout":
            return MCDropout(model, losses, PlainDescent(rate), prior, n, draws=settings.draws, average=average)
        case "sgd":
            return SGD(model, losses, rate, prior, n)


def _linear(features: int, outputs: int, dropout: float | None) -> nn.Module:
    layer = nn.Linear(features, outputs, bias=False)  # records bring their own bias
    nn.init.zeros_(layer.weight)
    return layer if dropout is None else nn.Sequential(nn.Dropout(dropout), layer)


def _mlp(features: int, outputs: int, dropout: float | None) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        first, last = nn.Linear(features, HIDDEN, bias=False), nn.Linear(HIDDEN, outputs)
        nn.init.normal_(first.weight, std=math.sqrt(2.0))  # records have norm about 1, not one number each
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    between = [nn.Tanh()] if dropout is None else [nn.Tanh(), nn.Dropout(dropout)]
    return nn.Sequential(first, *between, last)
