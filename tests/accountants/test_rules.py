import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.accountants import amplification_by_sampling, attack_probability, group_privacy
from tacit.errors import InputError


@given(st.floats(0, 500), st.floats(0, 1))
def test_sampling_never_hurts(epsilon, q):
    assert -1e-9 <= amplification_by_sampling(epsilon, q) <= epsilon + 1e-9


@given(st.floats(0, 1000), st.floats(0, 1))
def test_the_attack_is_at_least_a_guess(epsilon, delta):
    assert 0.5 <= attack_probability(epsilon, delta) <= 1


def test_one_record_is_a_group_of_one():
    assert group_privacy(1.0, 0.0, 3) == (3.0, 0.0)


@pytest.mark.parametrize("epsilon", [-1.0, float("nan"), float("inf")])
def test_bad_epsilon_is_named(epsilon):
    with pytest.raises(InputError, match="epsilon"):
        attack_probability(epsilon)
