import math

import numpy as np
import pytest

from tacit.accountants import ORDERS, RDPAccountant, renyi_curve
from tacit.errors import InputError, RefusedError
from tacit.ledger import Charge, GaussianSumQuery, Ledger, LedgerHeader, PoissonSample


def ledger(q, z, steps, **header):
    return Ledger.planned([Charge(PoissonSample(q, (GaussianSumQuery(1.0, z),)), steps)], LedgerHeader(**header))


def test_paper_n():
    assert RDPAccountant().guarantee(ledger(256 / 60000, 1.3, 3516), delta=1e-5).epsilon == pytest.approx(
        0.9546, abs=1e-4
    )
    classic = RDPAccountant(conversion="classic").guarantee(ledger(256 / 60000, 1.3, 3516), delta=1e-5)
    assert classic.epsilon == pytest.approx(1.1923, abs=1e-3)


def test_large_orders_are_there():
    assert max(ORDERS) == 1024
    assert RDPAccountant().guarantee(ledger(1e-4, 4.0, 100), delta=1e-5).epsilon < 0.02


def test_orders_must_lie_above_one():
    with pytest.raises(InputError, match="orders"):
        renyi_curve(ledger(0.1, 1.0, 1), [0.5])


def test_an_adaptive_ledger_needs_a_budget():
    with pytest.raises(RefusedError, match="budget"):
        RDPAccountant().guarantee(ledger(0.1, 1.0, 1, schedule="adaptive"), delta=1e-5)


def test_an_adaptive_ledger_over_its_budget_is_refused():
    header = {"schedule": "adaptive", "epsilon": 0.5, "delta": 1e-5}
    with pytest.raises(RefusedError, match="exceed"):
        RDPAccountant().guarantee(ledger(0.1, 1.0, 1000, **header), delta=1e-5)


def test_groups_count_together():
    queries = (GaussianSumQuery(1.0, 2.0), GaussianSumQuery(2.0, 4.0))
    both = Ledger.planned([Charge(PoissonSample(0.01, queries), 100)])
    assert np.allclose(renyi_curve(both), renyi_curve(ledger(0.01, math.sqrt(2), 100)))
