"""Train on an encoded table: plan, method, draws and, for numbers, the spread of residuals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tacit.accountants import Budget, BudgetGate
from tacit.errors import BudgetError, LedgerError
from tacit.ledger import Charge, GaussianSumQuery, Ledger, ledger_so_far, read_ledger
from tacit.mechanisms import ClipRecords, GaussianNoise
from tacit.posteriors import Posterior, RegressionPrediction, predict
from tacit.randomness import Randomness
from tacit.runs.facts import Spread
from tacit.runs.models import batch_of, build_model, inference_method, likelihood_of, residuals_of
from tacit.runs.problem import Problem
from tacit.runs.spread import Histogram, charge_spread, release_spread
from tacit.sampling import PoissonSampling, Records, Users
from tacit.storage.files import is_there
from tacit.tables import Encoded
from tacit.training import DataSource, EvidencePlan, TrainingPlan, train
from tacit.training.chains import Chains, Keeping
from tacit.training.checkpoints import read_checkpoint


@dataclass(frozen=True, slots=True)
class Fitted:
    """What a run on a table releases, and the ledger that says what it cost.

    ``steps`` are those that the posterior comes from; a budget that crashes had used up ends before the plan does.
    """

    posterior: Posterior
    ledger: Ledger
    steps: int
    effective_temperature: float | None = None
    path: str | None = None
    spread: Spread | None = None


def training_plan(problem: Problem, ledger: str | PathLike[str], budget: Budget | None = None) -> TrainingPlan:
    """All public facts of the run. ``budget`` is that of a ledger which other runs share: it is adaptive, because later
    runs may follow the outputs of earlier ones."""
    units, settings = problem.units, problem.recipe
    return TrainingPlan(
        sampling=PoissonSampling(settings.probability, settings.probability * units),
        clipping=ClipRecords(settings.clip_norm),
        noise=GaussianNoise(multiplier=settings.noise_multiplier),
        steps=settings.steps,
        ledger=ledger,
        budget=budget or Budget(problem.epsilon, problem.delta),
        unit=Records() if problem.schema.unit == "record" else Users(),
        dataset=problem.schema.dataset,
        dataset_size=units,
        ledger_size=problem.declared_units or 0,
        schedule="fixed" if budget is None else "adaptive",
        assumptions=problem.schema.assumptions,
    )


def check_shared_budget(problem: Problem, plan: TrainingPlan, *before: Charge) -> None:
    """Refuse a run that a shared budget cannot pay to its end, before it spends a part of it.

    ``before`` is what it is charged for before its steps.
    """
    if plan.budget is None or not problem.shared:  # its own budget is what its noise was found for
        return
    settings = problem.recipe
    step = plan.sampling.event((GaussianSumQuery(1.0, settings.noise_multiplier),))
    learned = Charge(step, settings.steps) if settings.search is None else Charge(settings.search, 1)
    charges = [*before, learned, *settings.beside]
    BudgetGate(plan.budget)(ledger_so_far(plan.ledger, plan.header(Randomness())), charges)


def fit(
    problem: Problem,
    data: Encoded,
    plan: TrainingPlan,
    *,
    randomness: Randomness | None = None,
    probes: Encoded | None = None,
    members: bool = False,
    on_step: Callable[[int], None] | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    histogram: Histogram | None = None,
) -> Fitted:
    """Run the problem's method on the records; the ledger is charged before each block of steps.

    What a regression releases after its steps is charged before them: whatever crashes cost, the steps pay.

    Args:
        probes: held-out records for Bayesian accounting; ``members`` gathers evidence about the trained ones too.
        histogram: how far an earlier try came with the residuals.
    """
    randomness = randomness or Randomness()
    beside = _beside(problem, plan, resume)
    found = learn(
        problem, data, plan, randomness, probes=probes, members=members, on_step=on_step, checkpoint=checkpoint,
        resume=resume, beside=beside,
    )  # fmt: skip
    return with_spread(problem, data, plan, found, randomness, histogram or Histogram())


def with_spread(
    problem: Problem, data: Encoded, plan: TrainingPlan, found: Fitted, randomness: Randomness, histogram: Histogram
) -> Fitted:
    """What was learned, with the spread of residuals where numbers are predicted; it has been charged."""
    inputs, targets = torch.from_numpy(data.inputs), torch.from_numpy(data.targets)
    noise = problem.recipe.spread_noise
    if noise is None or histogram.spread is not None:
        return replace(found, spread=histogram.spread)
    said = predict(build_model(problem), found.posterior, inputs, likelihood=likelihood_of(problem), levels=(0.5,))
    assert isinstance(said, RegressionPrediction)
    users = None if data.users is None else np.unique(data.users.astype(str), return_inverse=True)[1]
    residuals = residuals_of(problem, targets, said.mean).numpy()
    if histogram.begun:  # it may have been seen before it was lost, so that another one is another release
        try:
            charge_spread(plan, noise, randomness)
        except BudgetError:
            return found
    histogram.begin()
    spread = release_spread(residuals, users, plan, noise, randomness)
    histogram.keep(spread)
    return replace(found, ledger=read_ledger(plan.ledger), spread=spread)


def learn(
    problem: Problem, data: Encoded, plan: TrainingPlan, randomness: Randomness, *, probes: Encoded | None = None,
    members: bool = False, on_step: Callable[[int], None] | None = None, checkpoint: Path | None = None,
    resume: bool = False, beside: Sequence[Charge] = (),
) -> Fitted:  # fmt: skip
    """All steps of the plan, or as many of them as the budget still pays for."""
    settings, held_out = problem.recipe, None if probes is None else batch_of(probes)
    evidence = EvidencePlan(probes=held_out, members=members) if held_out is not None or members else None
    method = inference_method(problem, build_model(problem))
    keeping = Keeping(settings.draws if problem.method in ("sgld", "sghmc") else 1, settings.keep_every)
    try:
        run = train(
            method,
            DataSource(batch_of(data), user_ids=None if data.users is None else data.users.tolist()),
            plan,
            keep_last=keeping.last,
            keep_every=keeping.every,
            randomness=randomness,
            evidence=evidence,
            on_step=on_step,
            checkpoint=checkpoint,
            checkpoint_every=plan.steps_at_once(plan.steps),
            resume=resume,
            beside=beside,
        )
    except BudgetError:
        if checkpoint is None or not is_there(checkpoint):  # nothing was learned
            raise
        return _cut_short(Chains(method, plan.steps, keeping), plan, checkpoint)
    return Fitted(run.posterior, run.ledger, plan.steps, run.effective_temperature, run.path)


def _beside(problem: Problem, plan: TrainingPlan, resume: bool) -> list[Charge]:
    """What is released apart from the steps, if the run has not paid for it; in a shared ledger another may have."""
    charges = problem.recipe.beside
    if not charges or not resume or problem.shared:
        return charges
    try:
        paid = read_ledger(plan.ledger).merged()
    except LedgerError:  # stopped in its first line; any other damage is found when it is opened
        return charges
    return [charge for charge in charges if charge.event not in paid]


def _cut_short(chains: Chains[Any], plan: TrainingPlan, checkpoint: Path) -> Fitted:
    """Crashes made the run pay for some steps twice, so the budget ends before the plan: keep what there is.

    That the run stops there follows from the crashes and the ledger, not from what was learned.
    """
    found = read_checkpoint(checkpoint, like=chains.content)
    chains.restore(found.step, found.content)
    return Fitted(chains.posterior, read_ledger(plan.ledger), found.step, chains.temperature)
