"""Ledgers far beyond what anyone trains: a sound bound or a refusal in the user's words, and never an error inside."""

import math

import mpmath
import numpy as np
import pytest

from tacit.accountants import (
    PLDAccountant,
    RDPAccountant,
    Refusal,
    best_attack,
    gaussian_epsilon,
    guarantees,
    trade_off,
)
from tacit.accountants.pld import PoissonGaussian, delta_bracket, epsilon_bracket
from tacit.accountants.pld.loss import loss_at
from tacit.errors import RefusedError
from tacit.ledger import Charge, GaussianSumQuery, Ledger, PoissonSample


def draws(count, seed):
    """Rates down to 1e-300 and up to almost 1, noise from 1e-150 to 1e150, up to 1e12 steps, delta from 1e-300 on."""
    rng = np.random.default_rng(seed)

    def power(*ranges):
        return float(10 ** rng.uniform(*ranges[rng.integers(len(ranges))]))

    for _ in range(count):
        q = 1 - power((-16, -1)) if rng.random() < 0.2 else power((-12, 0), (-300, -12), (-3, 0), (-1e-9, 0))
        z = power((-3, -1), (-1, 2), (-1, 2), (2, 8), (-150, -3), (8, 150))
        delta = 1 - power((-15, -1)) if rng.random() < 0.1 else power((-12, -2), (-12, -2), (-300, -12))
        yield q, z, int(power((0, 2), (0, 6), (0, 12), (6, 12))), delta


def ledger(q, z, steps):
    return Ledger.planned([Charge(PoissonSample(q, (GaussianSumQuery(1.0, z),)), steps)])


def check_extremes(count, seed):
    """The Renyi bound is computed by other formulas, so either would betray an error of the other."""
    for q, z, steps, delta in draws(count, seed):
        found, renyi = guarantees(ledger(q, z, steps), delta, only=["pld", "rdp"])
        if isinstance(found, Refusal) or isinstance(renyi, Refusal):
            assert all("add noise" in answer.reason for answer in (found, renyi) if isinstance(answer, Refusal))
            continue
        assert 0 <= (found.lower or 0.0) <= found.epsilon <= renyi.epsilon * (1 + 1e-6), (q, z, steps, delta)
        assert (found.lower is None) == any("not resolved" in sentence for sentence in found.assumptions)


def test_extremes_are_bounded_or_refused_in_words():
    check_extremes(60, seed=5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_three_hundred_more_extremes(seed):
    check_extremes(60, seed)


def test_a_rare_step_keeps_the_digits_of_its_loss():
    """q e^t is tiny at a large t: rounding of 1e-14 there once refuted the error bound of a contour."""
    x, q, m = np.array([2.0, 5.0, 9.0]), 1e-59, 0.147
    with mpmath.workdps(120):
        truth = [mpmath.log1p(q * mpmath.expm1((2 * one - 1) / (2 * mpmath.mpf(m) ** 2))) for one in x.tolist()]
    assert loss_at(x, np.array(q), np.array(m)).value == pytest.approx([float(one) for one in truth], rel=1e-12)
    found = epsilon_bracket([PoissonGaussian(1.5551399494025574e-59, 0.14710109145320366, 1000)], 4.49e-122)
    assert 40 < found.upper < 50


def test_noise_too_small_for_floating_point_is_refused_in_words():
    for accountant in (PLDAccountant(), RDPAccountant()):
        with pytest.raises(RefusedError, match="no finite epsilon"):
            accountant.guarantee(ledger(0.5, 1e-170, 10), delta=1e-5)


@pytest.mark.parametrize(
    ("q", "z", "steps"), [(1e-77, 2.4, 3), (1 - 1e-12, 1e-3, 10**6), (0.01, 0.0005, 5), (0.5, 1e-20, 9)]
)
def test_what_is_not_resolved_is_still_above_the_truth(q, z, steps):
    """From below: one step has a closed form, and more steps cost no less."""
    events, delta = [PoissonGaussian(q, z, steps)], 1e-160
    found, one = epsilon_bracket(events, delta), epsilon_bracket([PoissonGaussian(q, z, 1)], delta)
    assert one.lower <= found.upper < math.inf
    assert found.upper <= gaussian_epsilon(math.sqrt(steps) / z, delta) * (1 + 1e-9)
    assert 0 <= delta_bracket(events, 1.0).upper <= 1


def test_a_ledger_within_delta_by_total_variation_costs_nothing():
    assert epsilon_bracket([PoissonGaussian(1e-56, 1e-19, 900_000)], 1e-5).upper == 0.0
    assert best_attack(ledger(1e-200, 1e-3, 17)) == 0.5


def test_what_is_too_extreme_to_be_drawn_is_refused_before_it_takes_minutes():
    with pytest.raises(RefusedError, match="so large that no curve says more; add noise"):
        trade_off(ledger(0.01, 0.001, 10**12))
