import numpy as np
import pytest

from tacit.accountants import attack_probability, best_attack, closest_mu, epsilon_curve, ledger_bracket, trade_off
from tacit.errors import InputError, RefusedError
from tacit.ledger import Charge, GaussianSumQuery, Ledger, LedgerHeader, PoissonSample


def ledger(q=0.02, z=1.5, steps=300, **header):
    return Ledger.planned([Charge(PoissonSample(q, (GaussianSumQuery(1.0, z),)), steps)], LedgerHeader(**header))


def test_epsilon_falls_as_delta_grows():
    curve = epsilon_curve(ledger(), [1e-8, 1e-6, 1e-4])
    assert (np.diff(curve) < 0).all()


def test_a_full_batch_is_its_own_closest_gaussian():
    assert closest_mu(trade_off(ledger(1.0, 10.0, 50))) == pytest.approx(np.sqrt(50) / 10, rel=0.01)


def test_the_trade_off_is_convex_falling_and_below_the_guess():
    curve = trade_off(ledger())
    assert (np.diff(curve.false_negative) <= 1e-12).all()
    assert (np.diff(curve.false_negative, 2) >= -1e-9).all()
    assert (curve.false_negative <= 1 - curve.false_positive + 1e-12).all()
    assert (curve.true_positive >= curve.false_positive - 1e-12).all()


def test_an_empty_ledger_helps_nobody():
    curve = trade_off(Ledger())
    assert curve.false_negative == pytest.approx(1 - curve.false_positive)
    assert best_attack(Ledger()) == 0.5


def test_the_best_attack_is_within_what_epsilon_allows():
    assert 0.5 < best_attack(ledger()) <= attack_probability(ledger_bracket(ledger(), 1e-5).upper, 1e-5)


def test_bad_rates_and_adaptive_ledgers_are_refused():
    with pytest.raises(InputError, match="false_positive"):
        trade_off(ledger(), [1.5])
    with pytest.raises(RefusedError, match="adaptive"):
        epsilon_curve(ledger(schedule="adaptive"), [1e-5])
