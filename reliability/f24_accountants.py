"""F24: bounds are monotone, never negative, and Renyi is never below the certified bracket; closed forms agree."""

from collections.abc import Iterator

import numpy as np

from reliability.figures import Figure, tries
from tacit.accountants import PLDAccountant, RDPAccountant
from tacit.accountants.guarantee import Accountant
from tacit.audit.formulas import check_formulas
from tacit.ledger import Charge, GaussianSumQuery, Ledger, PoissonSample

Row = tuple[float, float, int, float]


def prove(effort: float) -> Iterator[Figure]:
    rows = list(draws(tries(1000, effort, least=3), seed=2))
    lost = sum(not monotone(RDPAccountant(), *row) for row in rows)
    yield Figure("F24", "RDP monotone in sigma, q, T and delta", len(rows), lost, goal="0 in 1,000")
    few = list(draws(tries(100, effort, least=2), seed=4, smallest=1e-3))
    lost = sum(not monotone(PLDAccountant(), *row) for row in few)
    yield Figure("F24", "PLD monotone in sigma, q, T and delta", len(few), lost)
    below = 0
    some = list(draws(tries(300, effort, least=3), seed=3, smallest=1e-3))
    for q, z, steps, delta in some:
        said = PLDAccountant().guarantee(ledger(q, z, steps), delta=delta)
        assert said.lower is not None
        below += not said.lower <= min(said.epsilon, epsilon(RDPAccountant(), q, z, steps, delta))
    yield Figure("F24", "RDP and PLD not below the certified lower bound", len(some), below)
    finding = check_formulas(tries(50_000, effort, least=2_000))
    yield Figure("F24", "closed forms, a simulation, a budget that must stop", finding.times, len(finding.broke))


def draws(count: int, seed: int, smallest: float = 1e-5) -> Iterator[Row]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        q, z = 10 ** rng.uniform(np.log10(smallest), 0), 10 ** rng.uniform(np.log10(0.3), 2)
        yield float(q), float(z), int(10 ** rng.uniform(1, 5)), float(10 ** rng.uniform(-12, -2))


def ledger(q: float, z: float, steps: int) -> Ledger:
    return Ledger.planned([Charge(PoissonSample(q, (GaussianSumQuery(1.0, z),)), steps)])


def epsilon(accountant: Accountant, q: float, z: float, steps: int, delta: float) -> float:
    return accountant.guarantee(ledger(q, z, steps), delta=delta).epsilon


def monotone(accountant: Accountant, q: float, z: float, steps: int, delta: float) -> bool:
    cost = epsilon(accountant, q, z, steps, delta)
    return (
        0 <= cost < np.inf
        and epsilon(accountant, q, 1.1 * z, steps, delta) <= cost
        and epsilon(accountant, min(1.0, 1.1 * q), z, steps, delta) >= cost
        and epsilon(accountant, q, z, 2 * steps, delta) >= cost
        and epsilon(accountant, q, z, steps, delta / 2) >= cost
    )
