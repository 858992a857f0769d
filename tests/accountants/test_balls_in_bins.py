import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accountants import RDPAccountant, renyi_curve
from tacit.accountants.renyi.balls_in_bins import Pass, add_log_moments, pass_log_moments, passes, remove_log_moments
from tacit.accountants.renyi.moments import log_moments
from tacit.ledger import BallsInBinsStep, Charge, GaussianSumQuery, Ledger

WHOLE = np.array([2.0, 3.0, 7.0])


def step(bins, z):
    return BallsInBinsStep(bins, (GaussianSumQuery(1.0, z),))


def two_bins(z, power):
    """E_Q[R^power] for two bins, on a plain grid."""
    x = np.linspace(-15, 15, 1501)
    weight = np.exp(-x * x / 2) / np.sqrt(2 * np.pi) * (x[1] - x[0])
    ratio = np.exp(x / z - 1 / (2 * z * z))
    return np.log(weight @ (((ratio[:, None] + ratio) / 2) ** power) @ weight)


@pytest.mark.parametrize("z", [1.0, 2.0, 10.0])
def test_both_directions_against_a_grid(z):
    item = Pass(2, z)
    assert remove_log_moments(item, WHOLE) == pytest.approx([two_bins(z, a) for a in WHOLE], rel=1e-6)
    assert add_log_moments(item, WHOLE) == pytest.approx([two_bins(z, 1 - a) for a in WHOLE], rel=1e-6)


def two_bins_remove(z, order):
    """The multinomial sum for two bins, with many digits."""
    with mpmath.workdps(40):
        terms = (
            mpmath.binomial(order, k)
            * mpmath.exp((k * k - k + (order - k) ** 2 - (order - k)) / (2 * mpmath.mpf(z) ** 2))
            for k in range(order + 1)
        )
        return mpmath.log(mpmath.fsum(terms)) - order * mpmath.log(2)


def two_bins_add(z, m):
    """E[R^-m] with R = exp(s/(sqrt(2) z) - 1/(2 z^2)) cosh(d/(sqrt(2) z)), s and d independent and normal."""
    with mpmath.workdps(40):
        step, z = mpmath.mpf(min(0.2, z, 0.6 / np.sqrt(1 + m / (2 * z * z)))), mpmath.mpf(z)
        terms = (
            mpmath.exp(-((i * step) ** 2) / 2) * mpmath.cosh(i * step / (mpmath.sqrt(2) * z)) ** (-m)
            for i in range(-int(14 / step), int(14 / step) + 1)
        )
        mean = mpmath.fsum(terms) * step / mpmath.sqrt(2 * mpmath.pi)
        return m / (2 * z * z) + mpmath.mpf(m) ** 2 / (4 * z * z) + mpmath.log(mean)


@pytest.mark.parametrize("z", [0.5, 3.0, 100.0])
@pytest.mark.parametrize("order", [2, 63, 1024, 4096])
def test_never_below_the_truth_to_order_4096(z, order):
    [bound] = pass_log_moments(Pass(2, z), np.array([float(order)]))
    truth = max(two_bins_remove(z, order), two_bins_add(z, order - 1))
    assert bound >= truth
    if bound < order * (order - 1) / (2 * z * z):  # where the integral does not reach, the bound of a known step
        assert bound <= truth * (1 + mpmath.mpf(1e-9)) + mpmath.mpf(1e-10)


@pytest.mark.parametrize("order", [1.3, 2.5, 6.7])
def test_between_whole_orders_it_is_above(order):
    assert remove_log_moments(Pass(2, 1.0), np.array([order]))[0] >= two_bins(1.0, order)


@settings(max_examples=20)
@given(st.integers(2, 300), st.floats(0.5, 20))
def test_between_one_sampled_step_and_the_plain_gaussian(bins, z):
    moments = pass_log_moments(Pass(bins, z), WHOLE)
    assert (moments >= log_moments(1 / bins, z, WHOLE)[0] * (1 - 1e-9)).all()
    assert (moments <= WHOLE * (WHOLE - 1) / (2 * z * z) + 1e-10).all()


def test_a_started_pass_is_a_whole_one():
    curves = [renyi_curve(Ledger.planned([Charge(step(10, 2.0), n)]), [4.0])[0] for n in (1, 10, 11)]
    assert curves[0] == curves[1] == pytest.approx(curves[2] / 2)


def test_a_pass_has_the_noise_of_its_loudest_step():
    charges = [Charge(step(10, 2.0), 4), Charge(step(10, 1.0), 3), Charge(step(10, 3.0), 24), Charge(step(5, 1.0), 1)]
    assert passes(Ledger.planned(charges)) == {Pass(10, 1.0): 1, Pass(10, 3.0): 3, Pass(5, 1.0): 1}


@given(st.lists(st.tuples(st.sampled_from([1.0, 2.0]), st.integers(0, 25)), max_size=8))
def test_every_step_is_in_some_pass(rows):
    ledger = Ledger.planned([Charge(step(7, z), n) for z, n in rows])
    assert sum(passes(ledger).values()) == -(-ledger.steps // 7)


def test_the_statement_names_its_condition():
    guarantee = RDPAccountant().guarantee(Ledger.planned([Charge(step(100, 1.0), 300)]), delta=1e-5)
    assert any("pass" in sentence for sentence in guarantee.assumptions)


@pytest.mark.parametrize("z", [1e-9, 1e-3, 0.049, 0.051, 0.08])
def test_little_noise_is_answered_at_once_and_hides_the_step_at_most(z):
    """Grids of 88 / z points once took a minute and all memory; and beyond their reach there was no number."""
    orders = np.array([1.5, 2.0, 8.0, 64.0])
    found = pass_log_moments(Pass(100, z), orders)
    known = orders * (orders - 1) / (2 * z**2)
    assert (found <= known).all()
    assert (found >= known - orders * np.log(100)).all()
