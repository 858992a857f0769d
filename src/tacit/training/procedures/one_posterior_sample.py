"""One posterior sample, and the hybrid sampler that starts from one (Wang, Fienberg and Smola 2015)."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from tacit.accountants import BudgetGate
from tacit.errors import InputError, check_positive
from tacit.inference import InferenceMethod
from tacit.inference.bounded_posteriors import BoundedPosterior
from tacit.ledger import Charge, LedgerFile, LedgerHeader, PosteriorSample
from tacit.posteriors import Point
from tacit.randomness import Randomness
from tacit.training.plan import TrainingPlan
from tacit.training.train import Run, train
from tacit.types import Floats, Vectors


def one_posterior_sample(
    posterior: BoundedPosterior,
    data: Any,
    ledger: LedgerFile,
    *,
    epsilon: float | None = None,
    power: float | None = None,
    gate: BudgetGate | None = None,
    randomness: Randomness | None = None,
) -> Point:
    """Release one draw from a posterior over all of the data, charged before the data is read.

    Formal guarantee: power * log_likelihood_range in pure epsilon for add/remove neighbours, if the draw is exact
    (:class:`tacit.ledger.PosteriorSample`). Their theorem 1 says four times the bound of |log-likelihood| for
    replace-one.

    Args:
        posterior: what is drawn from; ``posterior.exact`` is recorded, and a guarantee is a bound only if it is true.
        epsilon: what it may cost; the log-likelihood's power is then min(1, epsilon / range).
        power: given instead; 1 is the posterior of Bayes' rule.
        gate: refuses the draw if it would exceed a budget.
    """
    if (epsilon is None) == (power is None):
        raise InputError("give either epsilon or power")
    if epsilon is not None:
        check_positive("epsilon", epsilon)
        power = min(1.0, epsilon / posterior.log_likelihood_range)
    source = randomness or Randomness()
    _check_header(ledger.ledger.header, source)
    event = PosteriorSample(posterior.log_likelihood_range, float(power or 0.0), posterior.exact)
    if gate is not None:
        gate(ledger.ledger, [Charge(event, 1)])
    ledger.plan(1)
    ledger.reserve([Charge(event, 1)])
    return Point(posterior.draw(data, event.power, lambda count: _uniforms(source, count)))


def hybrid(
    start: BoundedPosterior,
    start_data: Any,
    model: nn.Module,
    build: Callable[[nn.Module], InferenceMethod[Any]],
    dataset: Any,
    plan: TrainingPlan,
    *,
    epsilon: float,
    randomness: Randomness | None = None,
    **options: Any,
) -> Run:
    """A private chain that starts from one posterior sample, which replaces the burn-in.

    The sample and the chain are charged to the plan's ledger one after the other; a chain of SGLD costs what its
    Gaussian sums cost, as ever. (The step size bound of the paper is not needed: the accountant reads the noise.)

    Args:
        start, start_data: what is drawn from, at a price of ``epsilon``; its draw must fit the model's parameters.
        build: the method for a model with those weights, such as ``lambda model: tacit.SGLD(model, losses, ...)``.
        dataset, plan, options: as for :func:`train`.
    """
    source = randomness or Randomness()
    with LedgerFile(plan.ledger, plan.header(source), plan.versions()) as ledger:
        gate = None if plan.budget is None else BudgetGate(plan.budget)
        point = one_posterior_sample(start, start_data, ledger, epsilon=epsilon, gate=gate, randomness=source)
    return train(build(_started(model, point.vectors)), dataset, plan, randomness=source, **options)


def _check_header(header: LedgerHeader, randomness: Randomness) -> None:
    if header.unit != "record":
        raise InputError(f"a posterior sample protects records, this ledger the unit {header.unit}")
    if header.randomness != randomness.kind:
        raise InputError(f"the ledger was opened for {header.randomness} randomness, found {randomness.kind}")


def _started(model: nn.Module, weights: Vectors) -> nn.Module:
    """A copy of the model with the drawn weights in it."""
    model = copy.deepcopy(model)
    own = dict(model.named_parameters())
    for name, value in weights.items():
        if name not in own or own[name].shape != value.shape:
            raise InputError(f"the start draws {name} {list(value.shape)}, which the model does not have")
        with torch.no_grad():
            own[name].copy_(value)
    return model


def _uniforms(randomness: Randomness, count: int) -> Floats:
    """(k + 1/2) 2^-53 for a random 53-bit k: strictly between 0 and 1."""
    return np.asarray(((randomness.words("noise", count) >> np.uint64(11)).astype(float) + 0.5) * 2.0**-53)
