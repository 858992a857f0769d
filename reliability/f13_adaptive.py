"""F13: a run whose noise, rate or stop may follow its outputs is never stated by a sum of privacy losses."""

import random
from collections.abc import Iterable
from dataclasses import replace

import tacit
from reliability.f12_budget import random_schedule
from reliability.figures import Figure, tries
from tacit.accountants import BudgetGate, RenyiFilter, epsilon_curve, trade_off
from tacit.errors import BudgetError, RefusedError


def prove(effort: float) -> Iterable[Figure]:
    chance = random.Random(13)
    times = tries(1000, effort, least=5)
    stated = past = unsaid = 0
    for _ in range(times):
        budget, blocks = random_schedule(chance)
        header = tacit.ledger.LedgerHeader(schedule="adaptive", epsilon=budget.epsilon, delta=budget.delta)
        ledger = _charged(budget, blocks, tacit.ledger.Ledger(header))
        stated += _stated(ledger, budget.delta)
        past += _past_filter(ledger, budget)
        unsaid += not _says_its_assumption(ledger, budget.delta)
    yield Figure("F13", "adaptive ledgers that pld, gdp or a curve stated", times, stated, "all refused by name")
    yield Figure("F13", "adaptive schedules past the Renyi filter of their budget", times, past)
    yield Figure("F13", "early stops and later runs whose condition was not said", times, unsaid)


def _charged(
    budget: tacit.Budget, blocks: list[tacit.ledger.Charge], ledger: tacit.ledger.Ledger
) -> tacit.ledger.Ledger:
    gate = BudgetGate(budget)
    for block in blocks:
        try:
            gate(ledger, [block])
        except BudgetError:
            break
        ledger = replace(ledger, charges=(*ledger.charges, block))
    return ledger if ledger.charges else replace(ledger, charges=(replace(blocks[0], steps=1),))


def _stated(ledger: tacit.ledger.Ledger, delta: float) -> bool:
    results = tacit.guarantees(ledger, delta, only=["pld", "gdp"])
    if not all(isinstance(one, tacit.accountants.Refusal) and "adaptive" in one.reason for one in results):
        return True
    for curve in (lambda: epsilon_curve(ledger, [delta]), lambda: trade_off(ledger)):
        try:
            curve()
            return True
        except RefusedError:
            pass
    return False


def _past_filter(ledger: tacit.ledger.Ledger, budget: tacit.Budget) -> bool:
    opened = RenyiFilter.opened(budget.epsilon, budget.delta, ledger.charges[0], ledger)
    return ledger.steps > 1 and opened.spent(ledger) > opened.allowed


def _says_its_assumption(ledger: tacit.ledger.Ledger, delta: float) -> bool:
    fixed = replace(ledger, header=tacit.ledger.LedgerHeader(), planned_steps=ledger.steps + 1, runs=2)
    said = " ".join(tacit.guarantees(fixed, delta, only=["rdp"])[0].assumptions)
    return "early stop ignored the outputs" in said and "later runs" in said
