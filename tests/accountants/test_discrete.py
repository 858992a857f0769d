"""What the discrete Gaussian costs, against sums over the whole grid."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accountants import ACCOUNTANTS, Budget, BudgetGate, trade_off
from tacit.accountants.pld import PoissonGaussian, delta_bracket
from tacit.accountants.renyi.discrete import discrete_log_moments
from tacit.accountants.renyi.moments import log_moments
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


def test_what_is_not_proved_is_refused_by_name():
    coarse = DiscretePoissonSample(0.01, (GaussianSumQuery(1.0, 1.1, grid=2.0**-10),))
    for name, book in (("gdp", event()), ("pld", coarse)):
        with pytest.raises(RefusedError, match="discrete_poisson"):
            ACCOUNTANTS[name].guarantee(Ledger.planned([Charge(book, 10)]), delta=1e-5)


def rounded_and_discrete(sigma):
    """Probabilities of a Gaussian rounded to whole numbers, and of the discrete Gaussian, with many digits."""
    reach = range(-14 * sigma, 14 * sigma + 1)
    with mpmath.workdps(40):
        weight = [mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * sigma**2)) for k in reach]
        total = mpmath.fsum(weight)
        cells = [mpmath.ncdf(mpmath.mpf(k + 0.5) / sigma) - mpmath.ncdf(mpmath.mpf(k - 0.5) / sigma) for k in reach]
        return cells, [one / total for one in weight]


@pytest.mark.parametrize("sigma", [15, 40])
def test_the_ratio_to_rounded_noise_has_the_moments_that_the_proof_says(sigma):
    """log E[(p/r)^a] <= 0.05 a^2/s^4 in both directions, for orders up to s^2/100 (docs/maths.md, section 12)."""
    rounded, discrete = rounded_and_discrete(sigma)
    for a in (2, 1 + sigma**2 // 200, sigma**2 // 100):
        with mpmath.workdps(40):
            for top, base in ((rounded, discrete), (discrete, rounded)):
                moment = mpmath.fsum(p**a * r ** (1 - a) for p, r in zip(top, base, strict=True) if p and r)
                assert mpmath.log(moment) <= mpmath.mpf(0.05) * a**2 / sigma**4


@pytest.mark.parametrize("q", [0.2, 1.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.5])
def test_rounded_noise_costs_no_more_than_the_gaussian(q, epsilon):
    """The sum over the grid, for a shift of one noise: data processing, so below delta of the Gaussian."""
    sigma = shift = 12
    rounded = np.array([float(one) for one in rounded_and_discrete(sigma)[0]])
    without = np.pad(rounded, (0, shift))
    with_unit = (1 - q) * without + q * np.pad(rounded, (shift, 0))
    for one, other in ((with_unit, without), (without, with_unit)):
        delta = np.maximum(one - np.exp(epsilon) * other, 0).sum()
        assert delta <= delta_bracket([PoissonGaussian(q, sigma / shift, 1)], epsilon).upper + 1e-12


def test_pld_states_strict_numerics_at_the_cost_of_the_gaussian():
    plain = PoissonSample(0.01, (GaussianSumQuery(1.0, 1.1),))
    for steps in (1, 1000):
        found = ACCOUNTANTS["pld"].guarantee(Ledger.planned([Charge(event(), steps)]), delta=1e-5)
        other = ACCOUNTANTS["pld"].guarantee(Ledger.planned([Charge(plain, steps)]), delta=1e-5)
        assert found.is_bound
        assert other.lower < found.epsilon <= other.epsilon + 1e-8
    ours, theirs = (trade_off(Ledger.planned([Charge(one, 100)]), [0.01, 0.1]) for one in (event(), plain))
    assert ours.false_negative == pytest.approx(theirs.false_negative, rel=1e-6)


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
