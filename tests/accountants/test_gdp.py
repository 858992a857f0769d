import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.accountants import GDPAccountant, gaussian_delta, gaussian_epsilon, gaussian_mu, gdp
from tacit.errors import InputError, RefusedError
from tacit.ledger import Charge, GaussianSumQuery, Ledger, PoissonSample


@given(st.floats(1e-3, 20), st.floats(-14, -1).map(lambda e: 10**e))
def test_epsilon_and_delta_are_inverse(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    assert epsilon == 0 or gaussian_delta(mu, epsilon) == pytest.approx(delta, rel=1e-6)


@given(st.floats(0, 10), st.floats(-12, -1).map(lambda e: 10**e))
def test_mu_passes_through_the_point(epsilon, delta):
    assert gaussian_delta(gaussian_mu(epsilon, delta), epsilon) == pytest.approx(delta, rel=1e-6)


def test_full_batches_are_exact():
    event = PoissonSample(1.0, (GaussianSumQuery(1.0, 10.0),))
    guarantee = GDPAccountant().guarantee(Ledger.planned([Charge(event, 50)]), delta=1e-5)
    assert guarantee.is_bound
    assert guarantee.epsilon == pytest.approx(2.9432255, rel=1e-6)


def test_sampling_makes_it_an_approximation_that_shows_its_distance():
    event = PoissonSample(256 / 60000, (GaussianSumQuery(1.0, 1.3),))
    guarantee = GDPAccountant().guarantee(Ledger.planned([Charge(event, 3516)]), delta=1e-5)
    assert not guarantee.is_bound
    assert "too low" in guarantee.assumptions[-1]


def test_without_a_bracket_it_still_says_that_it_is_no_bound(monkeypatch):
    def refuse(*_):
        raise RefusedError("no bracket today")

    monkeypatch.setattr(gdp, "ledger_bracket", refuse)
    event = PoissonSample(0.1, (GaussianSumQuery(1.0, 1.0),))
    assert "not a bound" in GDPAccountant().guarantee(Ledger.planned([Charge(event, 5)]), delta=1e-5).assumptions[-1]


def test_mu_must_be_a_number():
    with pytest.raises(InputError, match="mu"):
        gaussian_epsilon(float("nan"), 1e-5)
