import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.accountants.renyi.divergences import renyi_curve, reverse_log_moment
from tacit.accountants.renyi.moments import LARGEST_ORDER, log_moments
from tacit.errors import InputError
from tacit.ledger import Charge, GaussianSumQuery, Ledger, PoissonSample

probabilities = st.floats(-8, -0.01).map(lambda e: 10**e)
noises = st.floats(0.3, 50.0)


def reference(q, z, a):
    """E[(1+u)^a - 1 - a u] at 30 digits, by mpmath's own quadrature."""
    with mpmath.workdps(30):
        q, z, a = mpmath.mpf(q), mpmath.mpf(z), mpmath.mpf(a)

        def integrand(x):
            u = q * mpmath.expm1((2 * x - 1) / (2 * z * z))
            return mpmath.npdf(x, 0, z) * ((1 + u) ** a - 1 - a * u)

        ends = np.linspace(float(min(0, a) - 12 * z), float(max(1, a) + 12 * z), 40)
        return float(mpmath.log1p(mpmath.quad(integrand, [mpmath.mpf(float(e)) for e in ends])))


@pytest.mark.parametrize(
    ("q", "z", "a"),
    [(1e-5, 1, 1.5), (1e-9, 0.3, 1.1), (0.5, 0.3, 1.1), (0.99, 0.5, 5.5), (0.01, 100, 1.1), (0.01, 1, 7), (0.3, 2, -4)],
)
def test_against_mpmath(q, z, a):
    assert log_moments(q, z, a)[0, 0] == pytest.approx(reference(q, z, a), rel=1e-10)


@given(probabilities, noises, st.integers(2, 60))
def test_the_sum_and_the_integral_agree(q, z, order):
    exact, near = log_moments(q, z, [order, order + 1e-9])[0]
    assert near == pytest.approx(exact, rel=1e-6)


@given(probabilities, noises)
def test_convex_in_the_order_and_never_negative(q, z):
    values = log_moments(q, z, np.arange(1.5, 12, 0.5))[0]
    assert (values >= 0).all()
    assert (np.diff(values, 2) >= -1e-9 * values[2:]).all()


@given(probabilities, noises, st.floats(0.5, 10))
def test_removing_is_the_larger_direction(q, z, moment):
    forward, reverse = log_moments(q, z, [moment + 1, -moment])[0]
    assert reverse <= forward * (1 + 1e-9)


def test_the_ends_are_closed_forms():
    assert log_moments(0.0, 1.0, [2, 2.5]).tolist() == [[0.0, 0.0]]
    assert log_moments(1.0, 2.0, [2, 2.5])[0] == pytest.approx([2 / 8, 2.5 * 1.5 / 8])


def test_events_do_not_disturb_each_other():
    q, z = np.array([0.01, 1e-6, 0.7]), np.array([0.4, 30.0, 1.0])
    together = log_moments(q, z, [1.3, 5, 700])
    alone = np.concatenate([log_moments(a, b, [1.3, 5, 700]) for a, b in zip(q, z, strict=True)])
    assert together == pytest.approx(alone, rel=1e-11)


# --- far beyond the default orders: an upper bound, and a tight one ---

DIGITS = 75  # (1+u)^a - 1 - a u loses forty of them where q is small and the noise large
SETTINGS = [(1e-9, 1.0), (0.001, 0.3), (0.01, 1.0), (0.01, 100.0), (0.5, 0.2), (0.5, 5.0), (0.5, 100.0), (0.99, 1.0)]


def whole_moment(q, z, order):
    """log E[(1+u)^a] for a whole order: the binomial sum, with many digits."""
    with mpmath.workdps(DIGITS):
        q, z = mpmath.mpf(q), mpmath.mpf(z)
        term, total = (1 - q) ** order, mpmath.mpf(0)
        for k in range(order + 1):
            total += term * mpmath.expm1((k * k - k) / (2 * z * z)) if k > 1 else 0
            term *= q / (1 - q) * (order - k) / (k + 1)
        return mpmath.log1p(total)


def integral_moment(q, z, a, points=1500):
    """The same for any power, by a trapezoid rule with many digits and a step that suits the power."""
    theta = np.linspace(0.02, 0.98, 49) * np.pi
    wave = (60 + z * z * theta**2 / 2 - max(-a, 0) * np.log(np.cos(theta / 2))) / (z * z * theta)
    low, high = min(a, 0) - 13 * z, max(a, 1) + 13 * z
    number = math.ceil((high - low) / (2 * np.pi / wave.min()))
    if number > points:
        return None
    with mpmath.workdps(DIGITS):
        q, z, a, width = mpmath.mpf(q), mpmath.mpf(z), mpmath.mpf(a), mpmath.mpf(high - low) / number
        total = mpmath.mpf(0)
        for i in range(number + 1):
            x = low + i * width
            u = q * mpmath.expm1((2 * x - 1) / (2 * z * z))
            total += mpmath.exp(-x * x / (2 * z * z)) * ((1 + u) ** a - 1 - a * u)
        return mpmath.log1p(total * width / (z * mpmath.sqrt(2 * mpmath.pi)))


def check(bound, truth, tight=3e-8):
    assert truth <= mpmath.mpf(float(bound)) <= truth * (1 + mpmath.mpf(tight))


@pytest.mark.parametrize(("q", "z"), SETTINGS)
def test_whole_orders_to_4096_are_never_below_the_truth(q, z):
    for order in (2, 3, 10, 63, 300, 1024, 4096):
        check(log_moments(q, z, order)[0, 0], whole_moment(q, z, order))


@pytest.mark.parametrize(("q", "z"), SETTINGS)
def test_fractional_orders_in_both_directions_are_never_below_the_truth(q, z):
    tried = 0
    for power in (1.05, 10.5, 64.5, 1000.5, 4095.5, -0.5, -10.0, -63.5, -1000.0, -4095.0):
        truth = integral_moment(q, z, power)
        if truth is not None:
            check(log_moments(q, z, power)[0, 0], truth)
            tried += 1
    assert tried >= 2


@pytest.mark.parametrize(("q", "z"), SETTINGS)
@pytest.mark.parametrize("order", [64, 1000, 4095])
def test_fractional_orders_lie_between_the_tangent_and_the_chord_of_whole_ones(q, z, order):
    """The log moment is convex in the order, so its neighbours enclose it, also where integrals would be too long."""
    before, here, after = (whole_moment(q, z, order + k) for k in (-1, 0, 1))
    found = mpmath.mpf(float(log_moments(q, z, order + 0.5)[0, 0]))
    assert here + (here - before) / 2 <= found <= (here + after) / 2 * (1 + mpmath.mpf(1e-7))


def test_the_cases_that_came_out_too_low():
    assert log_moments(0.5, 100, 1000.5)[0, 0] == pytest.approx(12.820, abs=5e-4)
    assert reverse_log_moment(0.5, 100, 1000) == pytest.approx(12.207, abs=5e-4)


@pytest.mark.parametrize("power", [1.5, 2.0, 64.5, 4096.0, -0.5, -4095.0])
def test_extreme_events_have_a_bound_that_is_a_number(power):
    q, z = (values.ravel() for values in np.meshgrid([1e-300, 1e-12, 0.5, 1 - 1e-12, 1], [1e-200, 1e-3, 1e3, 1e200]))
    found = log_moments(q, z, power)
    assert not np.isnan(found).any()
    assert (found > 0).all()


def test_noise_that_hides_nothing_tells_an_absent_record_by_its_probability():
    assert reverse_log_moment(0.3, 0.01, 7) == pytest.approx(-7 * math.log(0.7))


@pytest.mark.parametrize("order", [2 * LARGEST_ORDER, math.nan, 0.5])
def test_orders_that_no_formula_bounds_are_refused_in_words(order):
    book = Ledger.planned([Charge(PoissonSample(0.01, (GaussianSumQuery(1.0, 1.0),)), 1)])
    with pytest.raises(InputError, match="order"):
        renyi_curve(book, [order])
