import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accountants import calibrate_noise, calibrate_probability, calibrate_steps
from tacit.errors import InputError

GOOD = {"epsilon": 1.0, "delta": 1e-5, "probability": 0.01, "steps": 1000, "accountant": "rdp"}


@settings(max_examples=25)
@given(st.floats(0.05, 20), st.floats(1e-4, 1), st.integers(1, 10**5))
def test_noise_is_within_the_target_and_tight(epsilon, q, steps):
    found = calibrate_noise(epsilon, 1e-6, probability=q, steps=steps, accountant="rdp")
    assert epsilon * (1 - 1e-4) <= found.epsilon <= epsilon or found.noise_multiplier < 0.01


@settings(max_examples=15)
@given(st.floats(2, 10), st.floats(1.2, 10))
def test_one_more_step_would_be_too_much(epsilon, z):
    setting = {"probability": 0.05, "noise_multiplier": z, "accountant": "rdp"}
    found = calibrate_steps(epsilon, 1e-6, **setting)
    assert found.epsilon <= epsilon
    following = calibrate_noise(epsilon, 1e-6, probability=0.05, steps=found.steps + 1, accountant="rdp")
    assert following.noise_multiplier >= z * (1 - 1e-6)


@pytest.mark.parametrize("accountant", ["pld", "rdp", "gdp"])
def test_probability_is_within_the_target(accountant):
    found = calibrate_probability(1.0, 1e-5, noise_multiplier=2.0, steps=1000, accountant=accountant)
    assert 0.999 < found.epsilon <= 1.0
    assert calibrate_probability(9.0, 1e-5, noise_multiplier=20.0, steps=2, accountant=accountant).probability == 1.0


@pytest.mark.parametrize(
    ("field", "value"),
    [("epsilon", 0.0), ("epsilon", float("nan")), ("delta", 0.0), ("delta", 1.0), ("probability", 0.0),
     ("probability", 1.1), ("steps", 0), ("steps", 1.5), ("accountant", "best")],
)  # fmt: skip
def test_bad_input_is_named(field, value):
    with pytest.raises(InputError, match=field):
        calibrate_noise(**{**GOOD, field: value})
