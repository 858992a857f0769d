"""One posterior sample costs its power times the range of the log-likelihood, and less by Renyi."""

import numpy as np
import pytest
from scipy.special import logsumexp

from tacit.accountants import Budget, BudgetGate, guarantees
from tacit.accountants.renyi.posterior_sample import posterior_sample_log_moments
from tacit.errors import RefusedError
from tacit.ledger import Charge, GaussianSumQuery, Ledger, PoissonSample, PosteriorSample

DELTA = 1e-6
EXACT, CLOSE = PosteriorSample(4.0, 0.1, exact=True), PosteriorSample(4.0, 0.1, exact=False)
GAUSSIAN = PoissonSample(0.01, (GaussianSumQuery(1.0, 2.0),))


def answers(*charges):
    ledger = Ledger.planned([Charge(event, count) for event, count in charges])
    return {answer.accountant: answer for answer in guarantees(ledger, DELTA)}


def test_a_few_add_up_and_many_cost_less():
    assert answers((EXACT, 2))["rdp"].epsilon == pytest.approx(0.8, rel=1e-6)
    assert answers((EXACT, 200))["rdp"].epsilon < 200 * 0.4 / 2


def test_together_with_gaussian_sums():
    alone, both = answers((GAUSSIAN, 100))["rdp"], answers((GAUSSIAN, 100), (EXACT, 1))["rdp"]
    assert alone.epsilon < both.epsilon <= alone.epsilon + 0.4 + 1e-9
    assert both.is_bound


def test_a_draw_that_is_not_exact_is_no_bound():
    answer = answers((CLOSE, 1), (GAUSSIAN, 10))["rdp"]
    assert not answer.is_bound
    assert any("not a bound" in sentence for sentence in answer.assumptions)


def test_a_gate_refuses_what_is_no_bound():
    gate, ledger = BudgetGate(Budget(10.0, DELTA)), Ledger()
    gate(ledger, [Charge(EXACT, 1)])
    with pytest.raises(RefusedError, match="posterior_sample"):
        gate(ledger, [Charge(CLOSE, 1)])


@pytest.mark.parametrize("name", ["pld", "gdp"])
def test_others_refuse_it_by_name(name):
    assert "posterior_sample" in answers((EXACT, 1))[name].reason


def log_posterior(ones, zeros, power, least):
    """The posterior of a share in [least, 1 - least] on a fine grid."""
    x = np.linspace(least, 1 - least, 20_001)
    log_density = power * (ones * np.log(x) + zeros * np.log1p(-x))
    return log_density - logsumexp(log_density)


@pytest.mark.parametrize(("ones", "zeros"), [(0, 0), (3, 40), (100, 0), (500, 500)])
@pytest.mark.parametrize("power", [0.2, 1.0])
def test_no_neighbour_exceeds_the_bounds(ones, zeros, power):
    least = 0.05
    event = PosteriorSample(np.log((1 - least) / least), power, exact=True)
    p = log_posterior(ones, zeros, power, least)
    orders = np.array([1.5, 2.0, 8.0, 64.0])
    for q in (log_posterior(ones + 1, zeros, power, least), log_posterior(ones, zeros + 1, power, least)):
        loss = p - q
        assert np.abs(loss).max() <= event.epsilon + 1e-9
        for one, sign in ((q, 1), (p, -1)):  # both directions
            moments = logsumexp(one + sign * np.outer(orders, loss), axis=1)
            assert (moments <= posterior_sample_log_moments(event.epsilon, orders) + 1e-9).all()
