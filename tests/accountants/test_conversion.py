import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.accountants import ORDERS, epsilon_from_rdp, moments_epsilon
from tacit.errors import InputError


@given(st.floats(1e-6, 10), st.floats(1e-12, 0.1))
def test_improved_is_never_above_classic_and_never_negative(rho, delta):
    rdp = [rho * a for a in ORDERS]
    improved, classic = (epsilon_from_rdp(rdp, ORDERS, delta, how)[0] for how in ("improved", "classic"))
    assert 0 <= improved <= classic


def test_a_divergence_that_is_no_number_is_an_error():
    with pytest.raises(ArithmeticError):
        epsilon_from_rdp([float("nan"), 1.0], [2.0, 3.0], 1e-5)


def test_an_unknown_conversion_is_named():
    with pytest.raises(InputError, match="conversion"):
        epsilon_from_rdp([1.0], [2.0], 1e-5, "best")


def test_paper_b_figure_5_at_its_best_order():
    q, steps = 64 / 60000, 10_000
    assert min(moments_epsilon(q, 1.0, steps, 1e-5, k) for k in range(1, 40)) == pytest.approx(1.106, abs=1e-3)
