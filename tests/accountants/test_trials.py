"""The best of a random number of trials: against every small mechanism, and against the theorem computed anew."""

import math

import numpy as np
import pytest

from tacit.accountants import Budget, BudgetGate, RDPAccountant, Refusal, guarantees
from tacit.accountants.renyi import trials as formulas
from tacit.accountants.renyi.moments import ORDERS
from tacit.accountants.renyi.trials import expected_trials, gamma_for_trials, poisson_selection_rdp, selection_rdp
from tacit.errors import BudgetError, InputError
from tacit.ledger import (
    Charge,
    GaussianSumQuery,
    Ledger,
    LedgerHeader,
    NegativeBinomialTrials,
    PoissonSample,
    PoissonTrials,
    Tuned,
)

STEP = PoissonSample(0.05, (GaussianSumQuery(1.0, 6.0),))
SCORE = PoissonSample(1.0, (GaussianSumQuery(1.0, 30.0),))
TRIAL = ((STEP, 300), (SCORE, 1))
A = np.array([1.1, 1.5, 2.0, 3.0, 5.0, 8.0, 16.0, 40.0])


def generating(trials):
    """E[x^K] of the number of trials."""
    match trials:
        case PoissonTrials(mean=m):
            return lambda x: np.exp(m * (x - 1)) + math.exp(-m) * (x - 1)
        case NegativeBinomialTrials(eta=0, gamma=g):
            return lambda x: np.log1p(-(1 - g) * x) / math.log(g)
        case NegativeBinomialTrials(eta=eta, gamma=g):
            return lambda x: ((1 - (1 - g) * x) ** -eta - 1) / (g**-eta - 1)


def best(one, trials):
    """The law of the best of K draws, worst output first."""
    return np.diff(generating(trials)(np.minimum(np.concatenate([[0.0], np.cumsum(one)]), 1.0)))


def divergences(one, other):
    """Renyi, the larger of both directions."""
    kept = (one > 0) & (other > 0)
    p, q = np.log(one[kept]), np.log(other[kept])
    return np.array([
        max(np.logaddexp.reduce(a * x + (1 - a) * y) for x, y in ((p, q), (q, p))) / (a - 1) for a in A
    ])  # fmt: skip


def hockey_stick(one, other):
    ratio = 1 + 1 / (A - 1)
    both = [np.maximum(x - ratio[:, None] * y, 0).sum(1) for x, y in ((one, other), (other, one))]
    return np.maximum(*both)


def small_mechanisms(count, seed=0):
    """Pairs of laws on a few outputs, from nearly equal to far apart, with rare outputs at either end."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        size = int(random.integers(2, 6))
        one = random.dirichlet(np.full(size, random.choice([0.1, 1.0, 10.0]))) + 1e-5
        other = one * np.exp(random.choice([0.02, 0.3, 1.5]) * random.choice([-1.0, 1.0], size))
        yield one / one.sum(), other / other.sum()


def stated(one, other, trials):
    rdp = divergences(one, other)
    match trials:
        case PoissonTrials(mean=m):
            return poisson_selection_rdp(rdp, A, m, hockey_stick(one, other))
        case NegativeBinomialTrials(eta=eta, gamma=g):
            return selection_rdp(rdp, A, g, eta)


LAWS = [
    PoissonTrials(0.5),
    PoissonTrials(5.0),
    PoissonTrials(30.0),
    NegativeBinomialTrials(0.0, 0.05),
    NegativeBinomialTrials(1.0, 0.1),
    NegativeBinomialTrials(-0.5, 0.01),
    NegativeBinomialTrials(2.0, 0.3),
]


def most_over(trials, bound=stated):
    """By how much the exact divergence of a search exceeds what is stated, at worst; below 0 if it never does."""
    return max(
        float((divergences(best(one, trials), best(other, trials)) - bound(one, other, trials)).max())
        for one, other in small_mechanisms(300)
    )


@pytest.mark.parametrize("trials", LAWS, ids=str)
def test_no_small_mechanism_passes_the_bound(trials):
    assert most_over(trials) <= 1e-9


@pytest.mark.parametrize("trials", [LAWS[1], LAWS[3], LAWS[4]], ids=str)
def test_the_attack_would_see_a_search_that_is_charged_like_a_trial(trials):
    assert most_over(trials, lambda one, other, _: divergences(one, other)) > 0.1


def test_the_attack_would_see_a_missing_term():
    def without_delta(one, other, trials):
        return poisson_selection_rdp(divergences(one, other), A, trials.mean, np.zeros(len(A)))

    def without_gamma(one, other, trials):
        return divergences(one, other) + math.log(expected_trials(trials.gamma, trials.eta)) / (A - 1)

    assert most_over(PoissonTrials(5.0), without_delta) > 1e-3
    assert most_over(NegativeBinomialTrials(1.0, 0.1), without_gamma) > 1e-3


def trial_divergence(order):
    """Of 300 sampled steps and a score, by quadrature on a grid of our own."""
    x = np.linspace(-120, 121, 400_001)
    z = 6.0
    base = np.exp(-0.5 * (x / z) ** 2) / (z * math.sqrt(2 * math.pi))
    ratio = 1 - 0.05 + 0.05 * np.exp((2 * x - 1) / (2 * z * z))
    moment = np.trapezoid(base * ratio**order, x)
    return 300 * math.log(moment) / (order - 1) + order / (2 * 30.0**2)


def converted(divergence, order, delta):
    return divergence + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


@pytest.mark.parametrize(("eta", "mean"), [(0.0, 10.0), (1.0, 5.0)])
def test_epsilon_is_that_of_the_theorem(eta, mean):
    gamma = gamma_for_trials(mean, eta)
    ledger = Ledger.planned([Charge(Tuned(TRIAL, NegativeBinomialTrials(eta, gamma)), 1)])
    near = [order for order in ORDERS if 8 <= order <= 63]  # where the minima lie
    e = {order: trial_divergence(order) for order in near}
    extra = min((1 + eta) * ((1 - 1 / b) * e[b] + math.log(1 / gamma) / b) for b in near)
    theirs = min(converted(e[a] + extra + math.log(mean) / (a - 1), a, 1e-6) for a in near)
    assert RDPAccountant().guarantee(ledger, delta=1e-6).epsilon == pytest.approx(theirs, abs=1e-6)


def test_epsilon_is_that_of_the_theorem_for_a_poisson_number():
    """One Gaussian release a trial, whose delta has a closed form."""
    from scipy.stats import norm

    mean, mu, delta = 5.0, 0.1, 1e-6
    event = Tuned(((PoissonSample(1.0, (GaussianSumQuery(1.0, 1 / mu),)), 1),), PoissonTrials(mean))
    costs = []
    for a in ORDERS:
        e = math.log(1 + 1 / (a - 1))
        d = norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu)
        whole = math.log(mean * math.exp((a - 1) * mean * d) + math.exp(-mean))
        costs.append(converted(a * mu**2 / 2 + whole / (a - 1), a, delta))
    found = RDPAccountant().guarantee(Ledger.planned([Charge(event, 1)]), delta=delta).epsilon
    assert found == pytest.approx(min(costs), abs=1e-6)


def test_other_accountants_refuse_it_and_say_who_reads_it():
    ledger = Ledger.planned([Charge(Tuned(TRIAL, PoissonTrials(5.0)), 1)])
    by_name = {result.accountant: result for result in guarantees(ledger, 1e-6)}
    assert by_name["rdp"].is_bound
    for name in ("pld", "gdp"):
        assert isinstance(by_name[name], Refusal)
        assert "tuned" in by_name[name].reason
        assert "rdp reads them" in by_name[name].reason


@pytest.mark.parametrize("schedule", ["fixed", "adaptive"])
def test_a_budget_stops_it(schedule):
    charge = Charge(Tuned(TRIAL, PoissonTrials(5.0)), 1)
    cost = RDPAccountant().guarantee(Ledger.planned([charge]), delta=1e-6).epsilon
    opened = Ledger(LedgerHeader(schedule=schedule, epsilon=1.01 * cost, delta=1e-6))
    BudgetGate(Budget(1.01 * cost, 1e-6))(opened, [charge])
    with pytest.raises(BudgetError):
        BudgetGate(Budget(0.99 * cost, 1e-6))(opened, [charge])


def test_one_order_costs_what_it_costs_among_all():
    event = Tuned(TRIAL, NegativeBinomialTrials(0.0, 0.05))
    whole = formulas.tuned_log_moments(event, np.array(ORDERS))
    assert formulas.tuned_log_moments(event, np.array(ORDERS[40:41]))[0] == pytest.approx(whole[40], rel=1e-12)


@pytest.mark.parametrize("bad", [lambda: Tuned((), PoissonTrials(5.0)), lambda: Tuned(((STEP, 0),), PoissonTrials(5.0)),
                                 lambda: PoissonTrials(0.0), lambda: NegativeBinomialTrials(-1.0, 0.1),
                                 lambda: NegativeBinomialTrials(0.0, 1.0)])  # fmt: skip
def test_what_means_nothing_is_refused(bad):
    with pytest.raises(InputError):
        bad()
