"""Train on an encoded table: plan, method, draws and, for numbers, the spread of residuals."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tacit.accountants import Budget, BudgetGate
from tacit.errors import BudgetError
from tacit.ledger import Charge, GaussianSumQuery, Ledger, read_ledger
from tacit.mechanisms import ClipRecords, GaussianNoise
from tacit.posteriors import Posterior, RegressionPrediction, predict
from tacit.randomness import Randomness
from tacit.runs.problem import Problem
from tacit.runs.spread import Spread, release_spread
from tacit.sampling import PoissonSampling, Records, Users
from tacit.tables import Encoded
from tacit.tables.recipes import spread_event
from tacit.training import DataSource, EvidencePlan, TrainingPlan, train
from tacit.training.chains import Chains, Keeping
from tacit.training.checkpoints import read_checkpoint

_LATE = 0.7  # of the steps: a run that a crash cut short after these is as good as finished


@dataclass(frozen=True, slots=True)
class Fitted:
    """What a run on a table releases, and the ledger that says what it cost."""

    posterior: Posterior
    ledger: Ledger
    effective_temperature: float | None
    spread: Spread | None


def training_plan(problem: Problem, ledger: str | Path, budget: Budget | None = None) -> TrainingPlan:
    """All public facts of the run. ``budget`` is that of a ledger shared with other runs, which is adaptive (F13)."""
    units, settings = problem.schema.units, problem.recipe
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
        schedule="fixed" if budget is None else "adaptive",
        assumptions=problem.schema.assumptions,
    )


def check_budget(problem: Problem, plan: TrainingPlan) -> None:
    """Refuse a run that a shared budget cannot pay to its end, before it spends a part of it."""
    if plan.budget is None or not Path(plan.ledger).exists():
        return
    settings = problem.recipe
    step = plan.sampling.event((GaussianSumQuery(1.0, settings.noise_multiplier),))
    charges = [Charge(step, settings.steps)]
    if settings.spread_noise is not None:
        charges.append(Charge(spread_event(settings.spread_noise), 1))
    BudgetGate(plan.budget)(read_ledger(plan.ledger), charges)


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
) -> Fitted:
    """Run the problem's method on the records; the ledger is charged before each block of steps.

    Args:
        probes: held-out records for Bayesian accounting; ``members`` gathers evidence about the trained ones too.
    """
    randomness = randomness or Randomness()
    model, settings = problem.build(), problem.recipe
    inputs, targets = torch.from_numpy(data.inputs), torch.from_numpy(data.targets)
    held_out = None if probes is None else (torch.from_numpy(probes.inputs), torch.from_numpy(probes.targets))
    evidence = EvidencePlan(probes=held_out, members=members) if held_out is not None or members else None
    method = problem.inference(model)
    keeping = Keeping(settings.draws if problem.method in ("sgld", "sghmc") else 1, settings.keep_every)
    try:
        run = train(
            method,
            DataSource((inputs, targets), user_ids=None if data.users is None else data.users.tolist()),
            plan,
            keep_last=keeping.last,
            keep_every=keeping.every,
            randomness=randomness,
            evidence=evidence,
            on_step=on_step,
            checkpoint=checkpoint,
            checkpoint_every=plan.block,
            resume=resume,
        )
    except BudgetError:
        if not resume or checkpoint is None or settings.spread_noise is not None:
            raise
        return _cut_short(Chains(method, plan.steps, keeping), plan, checkpoint)
    if settings.spread_noise is None:
        return Fitted(run.posterior, run.ledger, run.effective_temperature, None)
    found = predict(model, run.posterior, inputs, likelihood=problem.likelihood, levels=(0.5,))
    assert isinstance(found, RegressionPrediction)
    users = None if data.users is None else np.unique(data.users.astype(str), return_inverse=True)[1]
    residuals = (targets.double() - found.mean).numpy()
    spread = release_spread(residuals, users, plan, settings.spread_noise, randomness)
    return Fitted(run.posterior, read_ledger(plan.ledger), None, spread)


def _cut_short(chains: Chains[Any], plan: TrainingPlan, checkpoint: Path) -> Fitted:
    """After a crash some steps were paid for twice, so the budget ends a little before the plan: keep what there is.

    That the run stops there follows from the crash and the ledger, not from what was learned.
    """
    found = read_checkpoint(checkpoint, like=chains.content)
    if found.step < _LATE * plan.steps:
        raise BudgetError(
            f"a crash lost steps that were paid for: the budget ends at step {found.step} of {plan.steps}; start anew"
        )
    chains.restore(found.step, found.content)
    return Fitted(chains.posterior, read_ledger(plan.ledger), None, None)
