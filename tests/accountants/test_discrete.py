"""What the discrete Gaussian costs, against sums over the whole grid."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accountants import ACCOUNTANTS, Budget, BudgetGate
from tacit.accountants.discrete import discrete_log_moments
from tacit.accountants.moments import log_moments
from tacit.errors import BudgetError, InputError, RefusedError
from tacit.ledger import (
    Charge,
    DiscretePoissonSample,
    FixedSizeSample,
    GaussianSumQuery,
    Ledger,
    PoissonSample,
    event_from_json,
    event_to_json,
)


def event(q=0.01, z=1.1, **fields):
    return DiscretePoissonSample(q, (GaussianSumQuery(1.0, z, grid=2.0**-30, **fields),))


def exact_log_moments(q, sigma, shift, order):
    """Both directions by summing over the grid: log E_P[(M/P)^a] and log E_M[(P/M)^a], M = (1-q) P + q Q."""
    reach = int(40 * sigma + 2 * order * shift) + 10
    x = np.arange(-reach, reach + 1)
    weight = -(x**2) / (2 * sigma**2)
    log_p = weight - np.logaddexp.reduce(weight)
    log_q = -((x - shift) ** 2) / (2 * sigma**2) - np.logaddexp.reduce(weight)
    log_m = np.logaddexp(np.log1p(-q) + log_p, np.log(q) + log_q) if q < 1 else log_q
    remove = np.logaddexp.reduce(order * log_m + (1 - order) * log_p)
    add = np.logaddexp.reduce(order * log_p + (1 - order) * log_m)
    return remove, add


@settings(max_examples=100)
@given(
    q=st.sampled_from([0.001, 0.1, 0.5, 0.9, 1.0]),
    sigma=st.sampled_from([0.7, 1.0, 2.5, 10.0]),
    shift=st.integers(1, 4),
    order=st.sampled_from([1.3, 2.0, 2.5, 3.0, 5.0, 7.5, 12.0]),
)
def test_no_order_and_no_direction_is_above_the_bound(q, sigma, shift, order):
    bound = float(discrete_log_moments(q, sigma / shift, np.array([order]))[0])
    remove, add = exact_log_moments(q, sigma, shift, order)
    assert max(remove, add) <= bound + 1e-9 * (1 + bound)
    if order == round(order):  # at whole orders nothing is given away
        assert remove == pytest.approx(bound, rel=1e-7, abs=1e-9)


def test_whole_orders_cost_as_much_as_the_gaussian():
    orders = np.array([2.0, 5.0, 32.0, 63.0])
    assert discrete_log_moments(0.02, 1.3, orders) == pytest.approx(log_moments(0.02, 1.3, orders)[0])


@pytest.mark.parametrize("name", ["pld", "gdp"])
def test_what_is_not_proved_is_refused_by_name(name):
    with pytest.raises(RefusedError, match="discrete_poisson"):
        ACCOUNTANTS[name].guarantee(Ledger.planned([Charge(event(), 10)]), delta=1e-5)


def test_rdp_states_a_bound_a_little_above_that_of_the_gaussian():
    plain = PoissonSample(0.01, (GaussianSumQuery(1.0, 1.1),))
    found = ACCOUNTANTS["rdp"].guarantee(Ledger.planned([Charge(event(), 1000)]), delta=1e-5)
    other = ACCOUNTANTS["rdp"].guarantee(Ledger.planned([Charge(plain, 1000)]), delta=1e-5)
    assert found.is_bound
    assert other.epsilon <= found.epsilon <= 1.05 * other.epsilon


def test_the_gate_counts_strict_steps():
    gate = BudgetGate(Budget(1.0, 1e-5))
    gate(Ledger(), [Charge(event(), 100)])
    with pytest.raises(BudgetError):
        gate(Ledger(), [Charge(event(), 100_000)])


def test_the_event_is_read_back_and_the_plain_one_keeps_its_bytes():
    assert event_from_json(event_to_json(event())) == event()
    assert "grid" not in event_to_json(PoissonSample(0.1, (GaussianSumQuery(1.0, 1.0),)))["queries"][0]


def test_a_grid_where_nothing_is_proved_is_refused():
    query = GaussianSumQuery(1.0, 1.0, grid=0.5)
    for make in (lambda: PoissonSample(0.1, (query,)), lambda: FixedSizeSample(1, 2, (query,)),
                 lambda: DiscretePoissonSample(0.1, (GaussianSumQuery(1.0, 1.0),)), lambda: event(slack=0.1),
                 lambda: event(multiplicity=2), lambda: DiscretePoissonSample(2.0, (query,))):  # fmt: skip
        with pytest.raises(InputError):
            make()
    assert event(q=1.0, multiplicity=2).noise_multiplier == 0.55
