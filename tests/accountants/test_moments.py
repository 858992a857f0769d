import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.accountants.moments import log_moments

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
