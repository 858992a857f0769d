"""What is to be learned from a table, as public facts: the model, its likelihood, the method and their settings."""

import importlib
import math
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tacit.errors import InputError
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
from tacit.likelihoods import Bernoulli, Categorical, Gaussian
from tacit.tables import Facts, Method, Recipe, Schema, Task, feature_names, recipe

HIDDEN = 16
DROPOUT = 0.05
FRICTION = 0.3
WORKING_STDDEV = 1.0  # of the squared error that finds the mean; the real spread is found afterwards (runs/spread)


@dataclass(frozen=True)
class Problem:
    """A table's schema, what to predict, by which method, within which budget.

    Args:
        model: "linear", "mlp", or MODULE:FACTORY, called with the numbers of features and of outputs.
        shared: the budget is shared with other runs, some of them still to be designed, so that RDP must calibrate.
    """

    schema: Schema
    target: str
    epsilon: float
    delta: float
    method: Method = "sgld"
    model: str = "linear"
    shared: bool = False

    def __post_init__(self) -> None:
        self.schema.check(self.target)

    @property
    def task(self) -> Task:
        return self.schema.task(self.target)

    @property
    def classes(self) -> tuple[str, ...] | None:
        return self.schema.classes(self.target)

    @property
    def outputs(self) -> int:
        """One for a number or two classes, else one for each class."""
        return 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)

    @property
    def likelihood(self) -> Bernoulli | Categorical | Gaussian:
        if self.classes is None:
            return Gaussian(WORKING_STDDEV)
        return Bernoulli() if self.outputs == 1 else Categorical()

    @cached_property
    def features(self) -> int:
        return len(feature_names(self.schema, self.target))

    @cached_property
    def recipe(self) -> Recipe:
        return recipe(
            Facts(
                units=self.schema.units,
                features=self.features,
                parameters=sum(p.numel() for p in self.build().parameters() if p.requires_grad),
                outputs=self.outputs,
                task=self.task,
                method=self.method,
                model=self.model,
                epsilon=self.epsilon,
                delta=self.delta,
                accountant="rdp" if self.shared else "pld",
            )
        )

    def build(self) -> nn.Module:
        """The model before training; its start is public, the same every time."""
        dropout = DROPOUT if self.method == "dropout" else None
        match self.model:
            case "linear":
                return _linear(self.features, self.outputs, dropout)
            case "mlp":
                return _mlp(self.features, self.outputs, dropout)
            case _:
                return _from_factory(self.model, self.features, self.outputs)

    def inference(self, model: nn.Module) -> InferenceMethod[Any]:
        """The method with the recipe's settings."""
        settings, n = self.recipe, self.schema.units
        rate, prior = settings.learning_rate, GaussianPrior(settings.prior_stddev)
        average = 1 - 10 / settings.steps
        match self.method:
            case "sgld":
                return SGLD(model, self.likelihood, prior, rate / n, n, temperature=None)
            case "sghmc":  # a step of SGLD with eta / friction goes as far
                return SGHMC(model, self.likelihood, prior, FRICTION * rate / n, n, temperature=None, friction=FRICTION)
            case "bbp":
                start = min(0.05, settings.prior_stddev)
                return bayes_by_backprop(
                    model, self.likelihood, dataset_size=n, learning_rate=rate, prior=prior,
                    initial_stddev=start, average=average,
                )  # fmt: skip
            case "vi":
                return VariationalInference(
                    model, self.likelihood, n, prior, descent=AdamDescent(rate), initial_stddev=0.1, average=average
                )
            case "dropout":
                return MCDropout(
                    model, self.likelihood, PlainDescent(rate), prior, n, draws=settings.draws, average=average
                )
            case "sgd":
                return SGD(model, self.likelihood, rate, prior, n)


def _linear(features: int, outputs: int, dropout: float | None) -> nn.Module:
    layer = nn.Linear(features, outputs, bias=False)  # records bring their own bias
    nn.init.zeros_(layer.weight)
    return layer if dropout is None else nn.Sequential(nn.Dropout(dropout), layer)


def _mlp(features: int, outputs: int, dropout: float | None) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        first, last = nn.Linear(features, HIDDEN, bias=False), nn.Linear(HIDDEN, outputs)
        nn.init.normal_(first.weight, std=math.sqrt(2.0))  # records have norm 1, not one number each
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    between = [nn.Tanh()] if dropout is None else [nn.Tanh(), nn.Dropout(dropout)]
    return nn.Sequential(first, *between, last)


def _from_factory(name: str, features: int, outputs: int) -> nn.Module:
    module, _, factory = name.partition(":")
    if not module or not factory:
        raise InputError(f"model must be linear, mlp or MODULE:FACTORY, found {name!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        build = getattr(importlib.import_module(module), factory)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            model = build(features, outputs)
    except Exception as error:
        raise InputError(f"model {name}: {type(error).__name__}: {error}") from error
    if not isinstance(model, nn.Module):
        raise InputError(f"model {name} gave {type(model).__name__}; it must return a torch.nn.Module")
    return model
