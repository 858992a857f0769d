"""Are the accountants right? Their numbers against closed forms and a simulation that share no code with them.

One release, and any number of full batches, have closed forms. Many subsampled releases are simulated: delta at epsilon
is the mean of (1 - exp(epsilon - L))^+ over runs, L being the privacy loss of a run that the record took part in.
"""

import math
from dataclasses import replace

import numpy as np
from scipy.stats import norm

from tacit.accountants import ACCOUNTANTS, Budget, BudgetGate, Guarantee
from tacit.audit.finding import Finding, turns_errors_into_findings
from tacit.errors import BudgetError
from tacit.ledger import Charge, GaussianSumQuery, Ledger, PoissonSample

_ROOM = 1e-9
_SIMULATED = (0.05, 1.0, 200, 1e-2)  # q, z, steps, delta: an epsilon that a few thousand runs can see
_SEVERAL = (GaussianSumQuery(1.0, 2.0, group="a"), GaussianSumQuery(2.0, 4.0, group="b"))


@turns_errors_into_findings("accountants")
def check_formulas(runs: int = 20_000) -> Finding:
    """No bound may lie below the truth, and the certified lower bound may not lie above it."""
    broke: list[str] = []
    cases = 0
    for q, z, steps, delta in [(1.0, 1.0, 1, 1e-5), (1.0, 5.0, 50, 1e-6), (0.05, 1.0, 1, 1e-5), (0.3, 0.7, 1, 1e-3)]:
        for name, said in _bounds(_ledger(q, (GaussianSumQuery(1.0, z),), steps), delta).items():
            cases += 1
            broke += _below(name, said, _exact_delta(q, z, steps, said.epsilon), delta)
    merged = _ledger(1.0, _SEVERAL, 3)
    for name, said in _bounds(merged, 1e-5).items():  # two groups with z 2 each are one of 2/sqrt(2)
        cases += 1
        broke += _below(f"{name}, two groups", said, _exact_delta(1.0, math.sqrt(2.0), 3, said.epsilon), 1e-5)
    broke += _against_simulation(runs)
    broke += _gate_stops()
    return Finding("accountants", "closed forms, a simulation, and a budget that must stop", cases + runs, tuple(broke),
                   f"{cases} closed forms, {runs:,} simulated runs: no number too small")  # fmt: skip


def _ledger(q: float, queries: tuple[GaussianSumQuery, ...], steps: int) -> Ledger:
    return Ledger.planned([Charge(PoissonSample(q, queries), steps)])


def _bounds(ledger: Ledger, delta: float) -> dict[str, Guarantee]:
    found = {name: one.guarantee(ledger, delta=delta) for name, one in ACCOUNTANTS.items()}
    return {name: one for name, one in found.items() if one.is_bound}


def _below(name: str, said: Guarantee, right: float, delta: float) -> list[str]:
    """An epsilon is enough if the exact delta at it is at most the one that was asked for."""
    if right > delta * (1 + _ROOM):
        return [f"{name}: epsilon {said.epsilon:.6g} holds at delta {right:.3g} only, asked was {delta:g}"]
    return []


def _exact_delta(q: float, z: float, steps: int, epsilon: float) -> float:
    """Closed forms: full batches are one Gaussian of mu = sqrt(T)/z; one subsampled release is a mixture."""
    if q == 1:
        mu = math.sqrt(steps) / z
        return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))
    assert steps == 1
    removed = (math.exp(epsilon) - 1 + q) / q  # the likelihood ratio exp((2x-1)/2z^2) at which the loss is epsilon
    x = z * z * math.log(removed) + 0.5
    remove = (1 - q) * norm.sf(x / z) + q * norm.sf((x - 1) / z) - math.exp(epsilon) * norm.sf(x / z)
    added = (math.exp(-epsilon) - 1 + q) / q
    if added <= 0:
        return float(remove)
    y = z * z * math.log(added) + 0.5
    add = norm.cdf(y / z) - math.exp(epsilon) * ((1 - q) * norm.cdf(y / z) + q * norm.cdf((y - 1) / z))
    return float(max(remove, add))


def simulated_delta(q: float, z: float, steps: int, epsilon: float, runs: int) -> tuple[float, float]:
    """delta of the direction "remove" by plain Monte Carlo, and its standard error."""
    generator = np.random.default_rng(7)
    losses = np.zeros(runs)
    for _ in range(steps):
        x = generator.standard_normal(runs) * z + (generator.random(runs) < q)
        losses += np.log1p(q * np.expm1((2 * x - 1) / (2 * z * z)))
    paid = np.maximum(0.0, -np.expm1(epsilon - losses))
    return float(paid.mean()), float(paid.std() / math.sqrt(runs))


def _against_simulation(runs: int) -> list[str]:
    q, z, steps, delta = _SIMULATED
    broke = []
    for name, said in _bounds(_ledger(q, (GaussianSumQuery(1.0, z),), steps), delta).items():
        found, error = simulated_delta(q, z, steps, said.epsilon, runs)
        if found - 6 * error > delta:
            broke.append(
                f"{name}: epsilon {said.epsilon:.4g} has delta {found:.3g} in {runs} runs, asked was {delta:g}"
            )
        if said.lower is not None:
            found, error = simulated_delta(q, z, steps, said.lower, runs)
            if found + 6 * error < delta:
                broke.append(f"{name}: the certified lower bound {said.lower:.4g} is above the truth")
    return broke


def _gate_stops() -> list[str]:
    """A budget must refuse the first block that passes it, and none before."""
    budget, block = Budget(1.0, 1e-5), Charge(PoissonSample(1.0, (GaussianSumQuery(1.0, 30.0),)), 5)
    ledger, gate = Ledger(), BudgetGate(budget)
    for _ in range(200):
        after = replace(ledger, charges=(*ledger.charges, block))
        cost = _exact_delta(1.0, 30.0, after.steps, budget.epsilon)
        try:
            gate(ledger, [block])
        except BudgetError:
            too_early = cost <= budget.delta * (1 - 1e-3)
            return ["a budget stopped a block that fits"] if too_early else []
        if cost > budget.delta * (1 + _ROOM):
            return [f"a budget of epsilon {budget.epsilon:g} let {after.steps} steps pass, which cost more"]
        ledger = after
    return ["a budget never stopped"]
