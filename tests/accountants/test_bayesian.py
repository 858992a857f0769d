"""Bayesian and individual accounting against exact expectations, the worst case, and distributions made to mislead."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import expon, weibull_min

from tacit.accountants import ACCOUNTANTS, RDPAccountant, get_accountant
from tacit.accountants.bayesian import (
    ESTIMATORS,
    MOMENTS,
    BayesianAccountant,
    IndividualAccountant,
    best_percentile,
    betting,
    chernoff_epsilons,
    clopper_pearson_upper,
    constant_exposure,
    exposure_of,
    gaussian_outcome,
    individual_epsilons,
    laplace_outcome,
    mixture_delta,
    most_exceeding,
    percentile_curve,
    privacy_costs,
    record_deltas,
    record_epsilons,
    student_t,
)
from tacit.accountants.pld import PoissonGaussian, delta_curve, epsilon_bracket
from tacit.errors import InputError, RefusedError
from tacit.evidence import Evidence, Stretch
from tacit.ledger import Charge, FixedSizeSample, GaussianSumQuery, Head, Ledger, LedgerHeader, PoissonSample

Q, T = 256 / 60_000, 3516  # paper N's run, as in the table of maths.md 8


def ledger(q=0.05, z=2.0, steps=200, **header):
    event = PoissonSample(q, (GaussianSumQuery(1.0, z),))
    return Ledger(LedgerHeader(**header), (Charge(event, steps),), planned_steps=steps, runs=1)


def evidence(shares, q=0.05, z=2.0, steps=200, kind="probes"):
    table = np.asarray(shares, dtype=np.float32)[None, :]
    return Evidence(Head(1, "0" * 64), kind, table, (Stretch(q, z, steps, 0, 0),))


SKEWED = np.clip(np.random.default_rng(0).exponential(0.2, 400), 0, 1)


# --- the cost of a step ---


@given(q=st.floats(1e-4, 0.9), r=st.floats(0.01, 2), moment=st.integers(1, 40))
def test_a_divergence_that_is_plugged_in_gives_the_gaussian_formula_again(q, r, moment):
    by_hand = privacy_costs(q, [r], [moment], lambda distances, order: gaussian_outcome(distances, order))
    np.testing.assert_allclose(by_hand, privacy_costs(q, [r], [moment]), rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("r", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("order", [2, 5])
def test_the_laplace_divergence_is_its_integral(r, order):
    def integrand(x):
        return math.exp(-order * abs(x - r) + (order - 1) * abs(x)) / 2

    value = quad(integrand, -60, 60, points=[0, r], limit=200)[0]
    assert laplace_outcome(np.array([r]), order)[0] == pytest.approx(math.log(value) / (order - 1), rel=1e-8)


@given(moment=st.sampled_from(MOMENTS[:64]), q=st.floats(1e-4, 1))
@settings(max_examples=40)
def test_the_cost_is_convex_in_the_squared_distance(moment, q):
    squares = np.linspace(0, 2, 41)
    costs = privacy_costs(q, np.sqrt(squares), [moment])[:, 0]
    assert (np.diff(costs, 2) >= -1e-9 * costs.max()).all()


# --- exposure: evidence and ledger joined ---


def test_sums_over_steps_are_those_of_each_record():
    shares = [0.0, 0.2, 0.77, 1.0]
    costs, worst = exposure_of(ledger(), evidence(shares), "x").costs((4, 16))
    exact = 200 * privacy_costs(0.05, np.asarray(shares) / 2.0, (4, 16))
    assert (costs >= exact * (1 - 1e-12)).all()
    np.testing.assert_allclose(costs, exact, rtol=2e-3, atol=1e-9)
    np.testing.assert_allclose(worst, exact[-1], rtol=1e-9)


def test_steps_without_evidence_count_at_the_worst_case():
    part = exposure_of(ledger(), evidence([0.0], steps=150), "x").costs((8,))[0]
    np.testing.assert_allclose(part, 50 * privacy_costs(0.05, [0.5], (8,)), rtol=1e-9)
    assert any("50 of 200" in s for s in _guarantee(ledger(), evidence(SKEWED, steps=150)).assumptions)


def test_evidence_of_other_steps_is_refused():
    with pytest.raises(InputError, match="more steps"):
        exposure_of(ledger(), evidence([0.1], steps=201), "x")
    with pytest.raises(InputError, match="never charged"):
        exposure_of(ledger(), evidence([0.1], z=3.0), "x")


def test_other_policies_are_refused_by_name():
    other = Ledger.planned([Charge(FixedSizeSample(10, 100, (GaussianSumQuery(1.0, 1.0),)), 3)])
    with pytest.raises(RefusedError, match="fixed_size"):
        BayesianAccountant().guarantee(other, delta=1e-5, evidence=evidence(SKEWED))


# --- the privacy loss of many records ---


@pytest.mark.parametrize(("q", "steps"), [(0.004, 2000), (0.2, 50), (1.0, 10), (0.9, 5), (1e-4, 20_000)])
@pytest.mark.parametrize("delta", [1e-5, 1e-9])
def test_records_at_one_distance_are_as_private_as_the_worst_case_there(q, steps, delta):
    distances = [0.05, 0.2, 0.5, 1.0]
    found = record_epsilons(constant_exposure(q, distances, steps), delta, math.inf)
    for r, epsilon in zip(distances, found, strict=True):
        truth = epsilon_bracket([PoissonGaussian(q, 1 / r, steps)], delta)
        assert truth.lower * (1 - 1e-3) - 2e-4 <= epsilon <= truth.upper * (1.07 if q < 1e-3 else 1.01), (
            r,
            epsilon,
            truth,
        )


def test_deltas_are_not_below_the_truth():
    epsilons, distances = np.linspace(0, 1.3, 14), [0.1, 0.4, 1.0]
    exposure = constant_exposure(Q, distances, T)
    found = np.maximum(*(record_deltas(exposure, way, epsilons, 1e-5) for way in ("remove", "add")))
    for r, row in zip(distances, found, strict=True):
        lower, upper = delta_curve([PoissonGaussian(Q, 1 / r, T)], epsilons)
        assert (row >= lower * (1 - 1e-6) - 1e-13).all()
        assert (row <= 1.1 * upper + 1e-8).all()


TABLE = {  # maths.md 8: Chernoff, improved, PLD mixture; 99th percentile by Markov, improved, individual
    "weibull .5": (weibull_min(0.5), 0.999, (1.321, 0.960, 0.605, 1.833, 1.472, 0.415)),
    "weibull .8": (weibull_min(0.8), 0.9, (1.690, 1.329, 1.133, 2.202, 1.840, 1.351)),
    "exponential": (expon(), 0.5, (1.859, 1.498, 1.288, 2.371, 2.010, 1.351)),
    "two points": (None, None, (1.286, 0.925, 0.0946, 1.798, 1.437, 0.0763)),
}


@pytest.mark.parametrize("name", TABLE)
def test_the_table_of_four_distributions(name):
    law, quantile, wanted = TABLE[name]
    if law is None:
        r, w = np.array([0.1, 1.0]), np.array([0.9999, 0.0001])
    else:
        p = np.concatenate([np.arange(0.0005, 0.99, 0.001), np.arange(0.990005, 1, 0.00001)])
        r = np.append(np.minimum(law.ppf(p) / law.ppf(quantile), 1.0), 1.0)
        w = np.append(np.where(p < 0.99, 0.001, 0.00001), 0.0)
        w /= w.sum()
        r, w = _merged(r, w)
    exposure = constant_exposure(Q, r, T)
    costs = logsumexp(exposure.costs()[0], b=w[:, None], axis=0)
    epsilons = np.linspace(0, 1.4, 1401)
    mixture = epsilons[np.argmax(mixture_delta(exposure, epsilons, 1e-5, w) <= 1e-5)]
    single = record_epsilons(exposure, 1e-5, 1.3514)
    order = np.argsort(single)
    found = (
        chernoff_epsilons(costs, MOMENTS, 1e-5, "classic").min(),
        chernoff_epsilons(costs, MOMENTS, 1e-5).min(),
        mixture,
        chernoff_epsilons(costs, MOMENTS, 1e-5, "classic", 0.99).min(),
        chernoff_epsilons(costs, MOMENTS, 1e-5, "improved", 0.99).min(),
        single[order][np.searchsorted(np.cumsum(w[order]), 0.99 + 1e-9)],
    )
    np.testing.assert_allclose(found, wanted, atol=0.0045)


def _merged(r, w, cells=200):
    """Some hundred distinct distances, rounded up: many thousand would only make the test slow."""
    up = np.ceil(r * cells) / cells
    places, index = np.unique(up, return_inverse=True)
    return places, np.bincount(index, w)


# --- estimators ---


@pytest.mark.parametrize("name", ESTIMATORS)
@given(values=st.lists(st.floats(-30, 4), min_size=2, max_size=60), gamma=st.sampled_from([0.05, 1e-6]))
@settings(max_examples=40)
def test_an_estimate_is_never_above_the_worst_case_and_not_below_the_sample_mean(name, values, gamma):
    found = ESTIMATORS[name](np.array(values), 5.0, gamma)
    assert logsumexp(values) - math.log(len(values)) - 1e-9 <= found <= 5.0 + 1e-9


def test_a_value_above_the_bound_is_refused():
    with pytest.raises(InputError, match="exceeds"):
        betting([1.0, 6.0], 5.0, 0.1)


def test_very_many_values_give_about_the_same_as_all_of_them_exactly():
    values = np.random.default_rng(1).normal(-4, 1.5, 2000).clip(max=0)
    few = betting(values, 0.0, 1e-6)
    many = betting(np.repeat(values, 3) + np.random.default_rng(2).uniform(-1e-7, 0, 6000), 0.0, 1e-6)
    assert many < few  # more data, a tighter bound, though rounded


POPULATIONS = {
    "weibull .5": lambda rng, m: np.minimum(rng.weibull(0.5, m) / weibull_min(0.5).ppf(0.999), 1),
    "weibull .8": lambda rng, m: np.minimum(rng.weibull(0.8, m) / weibull_min(0.8).ppf(0.9), 1),
    "two points": lambda rng, m: np.where(rng.random(m) < 0.001, 1.0, 0.1),
    "half clipped": lambda rng, m: np.where(rng.random(m) < 0.5, 1.0, rng.random(m)),
}


def failures(estimator, draw, records, gamma, runs, moment=8, q=0.01, steps=1000):
    """How often an estimate from a sample lies below the population's log E[exp V], with constant norms."""
    rng = np.random.default_rng(records)
    worst = steps * privacy_costs(q, [1.0], [moment])[0, 0]

    def values(m):
        r, place = np.unique(draw(rng, m).round(4), return_inverse=True)
        return steps * privacy_costs(q, r, [moment])[place, 0]

    population = values(400_000)
    truth = logsumexp(population) - math.log(len(population))
    return sum(estimator(values(records), worst, gamma) < truth - 1e-3 for _ in range(runs)) / runs


@pytest.mark.slow
@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize("records", [28, 256, 1225])
def test_betting_fails_no_more_often_than_it_says(name, records):
    gamma, runs = 0.05, 400
    assert failures(betting, POPULATIONS[name], records, gamma, runs) <= gamma + 3 * math.sqrt(gamma / runs)


@pytest.mark.slow
def test_student_t_fails_most_of_the_time_on_skewed_data():
    """0.1 % of the mass at the clip, 28 samples, nominal gamma 1e-15 (maths.md 1.4)."""
    assert failures(student_t, POPULATIONS["two points"], 28, 1e-15, 400) > 0.9
    assert failures(betting, POPULATIONS["two points"], 28, 1e-15, 400) == 0


# --- the accountants ---


def _guarantee(book, found, **settings):
    return BayesianAccountant(**settings).guarantee(book, delta=1e-5, evidence=found)


@pytest.mark.parametrize("composition", ["probes", "holder", "mixture"])
def test_an_empty_ledger_costs_nothing_and_no_evidence_is_refused(composition):
    accountant = BayesianAccountant(composition)
    assert accountant.guarantee(Ledger(), delta=1e-5, evidence=evidence(SKEWED)).epsilon == 0
    with pytest.raises(RefusedError, match="needs evidence"):
        accountant.guarantee(ledger(), None, delta=1e-5)
    with pytest.raises(InputError, match="needs evidence"):
        get_accountant(accountant)


def test_a_statement_says_what_it_is():
    found = _guarantee(ledger(), evidence(SKEWED))
    assert (found.notion, found.is_bound, found.unit) == ("bayesian_dp", False, "record")
    text = " ".join(found.assumptions)
    assert all(word in text for word in ("typical", "not itself private", "ex post", "betting"))


@pytest.mark.parametrize("composition", ["probes", "holder", "mixture"])
def test_everybody_at_the_clip_is_the_worst_case(composition):
    """Then typical is worst: no composition may come out below the certified lower bound."""
    found = _guarantee(ledger(), evidence(np.ones(50)), composition=composition)
    assert found.epsilon >= ACCOUNTANTS["pld"].guarantee(ledger(), delta=1e-5).lower


def test_the_probes_beat_holder_and_the_mixture_beats_both():
    book, found = ledger(), evidence(np.random.default_rng(3).uniform(0, 0.3, 4000))
    mixture, probes, holder = (
        BayesianAccountant(name).estimate(book, delta=1e-5, evidence=found) for name in ("mixture", "probes", "holder")
    )
    assert mixture < probes < holder
    assert mixture < ACCOUNTANTS["pld"].guarantee(book, delta=1e-5).epsilon


def test_markov_percentiles_are_never_above_dp():
    found = _guarantee(ledger(), evidence(SKEWED), percentile=0.99)
    assert found.percentile == 0.99
    assert found.epsilon <= ACCOUNTANTS["pld"].guarantee(ledger(), delta=1e-5).epsilon


@pytest.mark.parametrize("composition", ["probes", "holder", "mixture"])
def test_few_probes_never_say_more_than_the_worst_case(composition):
    book, worst = ledger(), ACCOUNTANTS["pld"].guarantee(ledger(), delta=1e-5).epsilon
    few = evidence(np.ones(10))
    found = _guarantee(book, few, composition=composition)
    assert found.epsilon == worst < BayesianAccountant(composition).estimate(book, delta=1e-5, evidence=few)
    assert any("this is the DP number" in sentence for sentence in found.assumptions)
    many = _guarantee(book, evidence(np.full(20_000, 0.05)), composition="mixture")
    assert many.epsilon < worst
    assert not any("this is the DP number" in sentence for sentence in many.assumptions)


@pytest.mark.parametrize(
    ("composition", "estimator", "words"),
    [
        ("mixture", "betting", "at most 1e-06 of all samples, and 1e-06 of delta"),
        ("probes", "betting", "at most 1e-06 of all samples (82 orders together), and 1e-06 of delta"),
        ("holder", "betting", "at most 1e-06 of all samples (82 orders of 300 steps together), and 1e-06 of delta"),
        ("holder", "student_t", "claims to be too low for at most 1e-06 of all samples"),
        ("probes", "binary", "a posterior probability of at most 1e-06 (82 orders together)"),
    ],
)
def test_what_is_spent_on_estimating_is_said_in_words(composition, estimator, words):
    found = _guarantee(ledger(steps=300), evidence(SKEWED), composition=composition, estimator=estimator)
    assert any(words in sentence for sentence in found.assumptions), found.assumptions
    assert any("per order" in sentence for sentence in found.assumptions) is False


def test_a_percentile_spends_its_share_of_gamma():
    found = _guarantee(ledger(), evidence(SKEWED), composition="mixture", percentile=0.9)
    assert any("1e-07 of delta" in sentence for sentence in found.assumptions)


def test_members_say_nothing_sound_about_the_population():
    own = evidence(SKEWED, kind="members")
    with pytest.raises(RefusedError, match="no fresh draws"):
        _guarantee(ledger(), own)
    assert _guarantee(ledger(), own, estimator="student_t").epsilon > 0


@pytest.mark.parametrize("by", ["pld", "rdp"])
def test_single_records_are_ordered_by_their_shares_and_below_the_worst_case(by):
    shares = np.linspace(0, 1, 30)
    epsilons = individual_epsilons(ledger(), evidence(shares), 1e-5, by)
    assert (np.diff(epsilons) >= -1e-6).all()
    assert epsilons[0] < 1e-2
    assert epsilons[-1] <= ACCOUNTANTS["pld"].guarantee(ledger(), delta=1e-5).epsilon


def test_a_percentile_that_the_sample_cannot_support_is_refused_with_the_best():
    with pytest.raises(RefusedError, match="at most 96"):
        IndividualAccountant(0.999).guarantee(ledger(), delta=1e-5, evidence=evidence(SKEWED))
    curve = percentile_curve(ledger(), evidence(SKEWED), 1e-5, (0.5, 0.9, 0.96, 0.999))
    assert [item.percentile for item in curve] == [0.5, 0.9, 0.96]
    assert curve[0].epsilon <= curve[1].epsilon <= curve[2].epsilon


@given(m=st.integers(20, 5000), p=st.floats(0.5, 0.999), gamma=st.sampled_from([0.05, 1e-3, 1e-6]))
@settings(max_examples=60)
def test_the_order_statistic_is_the_last_that_clopper_pearson_allows(m, p, gamma):
    k = most_exceeding(m, p, gamma)
    assert (k is None) == (best_percentile(m, gamma) < p)
    if k is not None:
        assert clopper_pearson_upper(k, m, gamma) <= (1 - p) * (1 + 1e-9)
        assert clopper_pearson_upper(k + 1, m, gamma) > (1 - p) * (1 - 1e-9)


def test_a_filter_that_the_ledger_declares_bounds_the_renyi_number():
    open_book = ledger(steps=20_000)
    filtered = ledger(steps=20_000, filter_order=9.0, filter_divergence=0.2)
    stated, without = (RDPAccountant().guarantee(book, delta=1e-5) for book in (filtered, open_book))
    assert stated.epsilon < without.epsilon
    assert any("individual Renyi filter" in sentence for sentence in stated.assumptions)
