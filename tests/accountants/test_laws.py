"""Laws over random ledgers (failure-modes F24): a bound is monotone, and Renyi is never below the certified bracket."""

import numpy as np
import pytest

from tacit.accountants import GDPAccountant, PLDAccountant, RDPAccountant
from tacit.ledger import Charge, GaussianSumQuery, Ledger, PoissonSample


def draws(count, seed, smallest=1e-5):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        q, z = 10 ** rng.uniform(np.log10(smallest), 0), 10 ** rng.uniform(np.log10(0.3), 2)
        yield float(q), float(z), int(10 ** rng.uniform(0, 6)), float(10 ** rng.uniform(-12, -2))


def epsilon(accountant, q, z, steps, delta):
    ledger = Ledger.planned([Charge(PoissonSample(q, (GaussianSumQuery(1.0, z),)), steps)])
    return accountant.guarantee(ledger, delta=delta).epsilon


def check_monotone(accountant, q, z, steps, delta):
    cost = epsilon(accountant, q, z, steps, delta)
    assert 0 <= cost < np.inf
    assert epsilon(accountant, q, 1.1 * z, steps, delta) <= cost
    assert epsilon(accountant, min(1.0, 1.1 * q), z, steps, delta) >= cost
    assert epsilon(accountant, q, z, 2 * steps, delta) >= cost
    assert epsilon(accountant, q, z, steps, delta / 2) >= cost


@pytest.mark.parametrize("row", list(draws(60, seed=1)))
def test_renyi_is_monotone(row):
    check_monotone(RDPAccountant(), *row)


@pytest.mark.slow
def test_renyi_is_monotone_in_a_thousand_draws():
    for row in draws(1000, seed=2):
        check_monotone(RDPAccountant(), *row)


@pytest.mark.slow
def test_renyi_is_never_below_the_certified_bracket():
    for q, z, steps, delta in draws(300, seed=3, smallest=1e-3):
        ledger = Ledger.planned([Charge(PoissonSample(q, (GaussianSumQuery(1.0, z),)), max(10, steps))])
        pld = PLDAccountant().guarantee(ledger, delta=delta)
        assert pld.lower <= pld.epsilon
        assert pld.lower <= RDPAccountant().guarantee(ledger, delta=delta).epsilon
        assert GDPAccountant().guarantee(ledger, delta=delta).is_bound == (q == 1)
