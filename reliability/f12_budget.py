"""F12: whatever the schedule, the budget is never passed, and the last block refused would have passed it."""

import random
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch

import tacit
from reliability import small_run
from reliability.figures import Figure, tries
from tacit.accountants import BudgetGate, PLDAccountant
from tacit.errors import BudgetError

MOST_BLOCKS = 60


def prove(effort: float) -> Iterable[Figure]:
    chance = random.Random(12)
    times = tries(10_000, effort, least=5)
    over = early = stopped = 0
    closest = 0.0
    for _ in range(times):
        budget, blocks = random_schedule(chance)
        ledger, refused = _charged(budget, blocks)
        share = _epsilon(ledger, budget.delta) / budget.epsilon
        over, closest = over + (share > 1), max(closest, share)
        if refused is not None:
            stopped += 1
            early += _epsilon(replace(ledger, charges=(*ledger.charges, refused)), budget.delta) <= budget.epsilon
    reached = f"{100 * closest:.2f} % of a budget at most"
    yield Figure("F12", "random schedules, charged until the budget said no", times, over, reached, "never over")
    yield Figure("F12", "of these stopped by the budget, within one block of the optimum", stopped, early)
    yield _on_disk(chance, tries(50, effort, least=2))


def random_schedule(chance: random.Random) -> tuple[tacit.Budget, list[tacit.ledger.Charge]]:
    """Up to three kinds of step in random order, and a budget that a few dozen blocks may use up."""
    budget = tacit.Budget(chance.uniform(0.3, 6), 10 ** chance.uniform(-7, -4))
    kinds = chance.choices((1, 2, 3), (90, 5, 5))[0]
    full = chance.random() < 0.15  # every record at every step
    events = [_event(chance, full) for _ in range(kinds)]
    size = chance.randint(1, 40)
    return budget, [tacit.ledger.Charge(chance.choice(events), size) for _ in range(chance.randint(1, MOST_BLOCKS))]


def _event(chance: random.Random, full: bool) -> tacit.ledger.PoissonSample:
    if full:
        return tacit.ledger.PoissonSample(1.0, (tacit.ledger.GaussianSumQuery(1.0, chance.uniform(3, 20)),))
    query = tacit.ledger.GaussianSumQuery(1.0, chance.uniform(0.7, 3))
    return tacit.ledger.PoissonSample(10 ** chance.uniform(-2.5, -0.3), (query,))


def _charged(
    budget: tacit.Budget, blocks: list[tacit.ledger.Charge]
) -> tuple[tacit.ledger.Ledger, tacit.ledger.Charge | None]:
    gate, ledger = BudgetGate(budget), tacit.ledger.Ledger()
    for block in blocks:
        try:
            gate(ledger, [block])
        except BudgetError:
            return ledger, block
        ledger = replace(ledger, charges=(*ledger.charges, block))
    return ledger, None


def _epsilon(ledger: tacit.ledger.Ledger, delta: float) -> float:
    return PLDAccountant().guarantee(ledger, delta=delta).epsilon if ledger.steps else 0.0


def _on_disk(chance: random.Random, times: int) -> Figure:
    """The engine, with a budget that ends in the middle of its run."""
    lost = 0
    for _ in range(times):
        with tempfile.TemporaryDirectory() as place:
            plan = replace(
                small_run.plan(Path(place), steps=300, multiplier=4.0),
                budget=tacit.Budget(chance.uniform(2, 8), 1e-5),
                block=chance.randint(1, 9),
            )
            lost += not _ended_by_its_budget(plan)
    return Figure("F12", "runs of the engine that their budget ended", times, lost, "as many releases as charges")


def _ended_by_its_budget(plan: tacit.TrainingPlan) -> bool:
    released: list[int] = []
    method = tacit.SGD(torch.nn.Linear(16, 1, dtype=torch.float64), small_run.losses, 0.1)
    with suppress(BudgetError):
        tacit.train(method, small_run.data(), plan, on_step=released.append)
        return False
    ledger, budget = tacit.read_ledger(plan.ledger), plan.budget
    more = replace(ledger, charges=(*ledger.charges, tacit.ledger.Charge(ledger.charges[0].event, plan.block)))
    within = _epsilon(ledger, budget.delta) <= budget.epsilon < _epsilon(more, budget.delta)
    return within and len(released) == ledger.steps
