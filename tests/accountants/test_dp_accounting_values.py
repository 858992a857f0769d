"""The values that dp-accounting 0.6.0 tests itself against, wherever its events are also ours.

Its numbers for Laplace noise, randomised response, trees, mixtures and Poisson samples under replace-one have no event
of ours. Where both have one, two disagree, and neither is ours: its value at order 1.5 is 3 % above the truth (mpmath
is with us), and fractional orders that its tests state as not converging are bounded here.
"""

import math

import mpmath
import numpy as np
import pytest

from tacit.accountants import RDPAccountant, calibrate_noise, epsilon_from_rdp, renyi_curve, subsampled_gaussian_rdp
from tacit.accountants.pld import PoissonGaussian, delta_bracket, epsilon_bracket
from tacit.accountants.pld.closed_form import one_step_add, one_step_remove
from tacit.accountants.renyi.moments import log_moments
from tacit.ledger import Charge, GaussianSumQuery, Ledger, PoissonSample
from tests.accountants.test_moments import integral_moment, whole_moment


def ledger(*rows):
    return Ledger.planned([Charge(PoissonSample(q, (GaussianSumQuery(1.0, z),)), n) for q, z, n in rows])


def test_renyi_divergences_of_the_gaussian_and_of_two_together():
    assert renyi_curve(ledger((1.0, 2.71828, 1)), [3.14159])[0] == pytest.approx(3.14159 / (2 * 2.71828**2))
    queries = (GaussianSumQuery(1.0, 2.71828), GaussianSumQuery(1.0, 6.28319))
    both = Ledger.planned([Charge(PoissonSample(1.0, queries), 1)])
    assert renyi_curve(both, [3.14159])[0] == pytest.approx(3.14159 / 2 * (2.71828**-2 + 6.28319**-2))


def test_renyi_divergences_of_sampled_gaussians():
    found = 50 * subsampled_gaussian_rdp(0.01, 2.5, [1.5, 2.5, 5, 50, 100])[0]
    theirs = [6.70579741e-04, 1.08548710e-03, 2.18075656e-03, 2.38460375e-02, 1.67416308e02]
    assert found[1:] == pytest.approx(theirs[1:], rel=1e-4)
    truth = 50 * float(integral_moment(0.01, 2.5, 1.5)) / 0.5
    assert found[0] == pytest.approx(truth, rel=1e-8)
    assert theirs[0] == pytest.approx(1.0315 * truth, rel=1e-3)


@pytest.mark.parametrize(
    ("q", "sigma", "order"),
    [
        (1e-7, 0.1, 1.01),
        (1e-6, 0.1, 256),
        (1e-6, 1.0, 27),
        (1e-4, 1.0, 1.5),
        (1e-3, 1.0, 2),
        (0.01, 10.0, 20),
        (0.1, 100.0, 20.5),
        (0.99, 0.1, 256),
        (0.999, 100.0, 256.1),
    ],
)
def test_log_moments_at_the_points_that_they_compare_with_many_digits(q, sigma, order):
    truth = whole_moment(q, sigma, order) if order == round(order) else integral_moment(q, sigma, order)
    assert truth <= mpmath.mpf(float(log_moments(q, sigma, order)[0, 0])) <= truth * (1 + mpmath.mpf(1e-6))


def test_the_order_that_takes_their_series_too_long():
    """q 1e-5, noise .1, order 256.1: between its whole neighbours, by convexity."""
    low, high = whole_moment(1e-5, 0.1, 256), whole_moment(1e-5, 0.1, 257)
    assert low <= log_moments(1e-5, 0.1, 256.1)[0, 0] <= low + (high - low) / 10 * (1 + mpmath.mpf(1e-6))


def test_fractional_orders_that_their_series_had_negative_or_does_not_reach():
    assert (log_moments(0.4, 12.0, np.linspace(58.5, 59.5, 21)) > 0).all()
    found = RDPAccountant().guarantee(ledger((0.1, 1.0, 1)), delta=1e-5)
    assert math.isfinite(found.epsilon)
    assert np.isfinite(subsampled_gaussian_rdp(0.1, 1.0, np.arange(1.1, 11, 0.1))).all()


def test_conversion_to_epsilon():
    orders = range(2, 33)
    assert epsilon_from_rdp([1.1] * 31, orders, 1e-5) == pytest.approx((1.32783806176, 32))
    fine = np.arange(1001, 100_000) / 1000
    rdp = subsampled_gaussian_rdp(1.0, 4.530877117, fine)[0]
    assert epsilon_from_rdp(rdp, fine, 1e-6)[0] == pytest.approx(1.0, abs=1e-7)


@pytest.mark.parametrize(("q", "z", "steps", "delta"), [(1.0, math.sqrt(3), 3, 0.126936), (0.2, 0.5, 3, 0.15594)])
def test_privacy_loss_distributions(q, z, steps, delta):
    events = [PoissonGaussian(q, z, steps)]
    assert delta_bracket(events, 1.0).upper == pytest.approx(delta, abs=1e-5)
    assert epsilon_bracket(events, delta).upper == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize(
    ("stddev", "sensitivity", "q", "epsilon", "remove", "add"),
    [
        (1.0, 1.0, 1.0, 1.0, 0.12693674, 0.12693674),
        (1.0, 3.0, 1.0, 1.0, 0.78760074, 0.78760074),
        (1.0, 1.0, 1.0, 2.0, 0.02092364, 0.02092364),
        (1.0, 1.0, 0.8, 1.0, 0.0816951786585355, 0.0231362104090899),
        (1.0, 3.0, 0.7, 1.0, 0.5356298793262404, 0.1195051215523554),
        (2.0, 6.0, 0.4, 1.0, 0.2888308005139968, 0.0),
        (1.0, 1.0, 0.3, 2.0, 0.0003341102928869332, 0.0),
    ],
)
def test_delta_of_one_step_in_both_directions(stddev, sensitivity, q, epsilon, remove, add):
    at, z = np.array([epsilon]), stddev / sensitivity
    assert one_step_remove(at, q, z)[1][0] == pytest.approx(remove, abs=1e-8)
    assert one_step_add(at, q, z)[1][0] == pytest.approx(add, abs=1e-8)
    assert delta_bracket([PoissonGaussian(q, z, 1)], epsilon).upper == pytest.approx(max(remove, add), abs=1e-8)


@pytest.mark.parametrize(
    ("epsilon", "delta", "sensitivity", "q", "steps", "stddev"),
    [
        (1.0, 0.78760074, 1.0, 1.0, 1, 1 / 3),
        (1.0, 0.78760074, 6.0, 1.0, 25, 10.0),
        (1.0, 1e-5, 1.0, 0.01, 1, 0.67379294682),
        (1.0, 1e-5, 6.0, 0.001, 25, 3.20956502598),
        (16.0, 1.016e-05, 1.0, 1.0, 1, 0.344),
        (2.0, 2.355e-06, 1.0, 0.1, 1, 1.0),
        (16.0, 3.294e-05, 1.0, 0.3, 1, 0.3),
    ],
)
def test_the_smallest_noise(epsilon, delta, sensitivity, q, steps, stddev):
    """To the digits that they give; a grid of theirs stands behind 3.20956502598, so ours may be a little less."""
    found = calibrate_noise(epsilon, delta, probability=q, steps=steps)
    assert found.noise_multiplier * sensitivity == pytest.approx(stddev, rel=5e-4)
    assert found.noise_multiplier * sensitivity <= stddev * (1 + 5e-4 if stddev < 0.5 or stddev == 1 else 1 + 1e-6)
