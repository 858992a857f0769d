"""Confident-GNMax: what is charged, what leaves, and that the charge is for the most that a record can do."""

import dataclasses
import math

import numpy as np
import pytest

import tacit
from tacit.accountants import BudgetGate, gaussian_epsilon
from tacit.pate import (
    ConfidentGNMax,
    assign_teachers,
    calibrate_confident_gnmax,
    count_votes,
    data_dependent_epsilon,
    wrong_winner_probability,
)

SURE = np.tile([240, 5, 5], (50, 1))
SPLIT = np.tile([90, 80, 80], (50, 1))


def ledger_at(folder, name="votes", randomness="secure"):
    return tacit.ledger.LedgerFile(
        folder / name / "ledger.jsonl", tacit.ledger.LedgerHeader(dataset="votes", randomness=randomness)
    )


def test_sure_teachers_are_heard_and_split_ones_are_not(tmp_path):
    mechanism = ConfidentGNMax(threshold=180, threshold_noise=10, vote_noise=10, max_answers=100)
    with ledger_at(tmp_path) as ledger:
        answers = mechanism.answer(np.concatenate([SURE, SPLIT]), ledger)
    assert (answers.labels[:50] == 0).all()
    assert not answers.answered[50:].any()


def test_the_charge_is_that_of_two_kinds_of_gaussians(tmp_path):
    mechanism = ConfidentGNMax(threshold=180, threshold_noise=40, vote_noise=20, max_answers=30)
    with ledger_at(tmp_path) as ledger:
        mechanism.answer(SURE, ledger)
        [found] = tacit.guarantees(ledger.ledger, 1e-5, only=["pld"])
    mu = math.sqrt(50 / 40**2 + 30 * 2 / 20**2)  # maths.md 4: full-batch Gaussians add up exactly
    assert found.epsilon == pytest.approx(gaussian_epsilon(mu, 1e-5), rel=1e-4)


def test_votes_change_neither_the_ledger_nor_its_length(tmp_path):
    mechanism = ConfidentGNMax(threshold=180, threshold_noise=10, vote_noise=10, max_answers=7)
    for name, votes in {"sure": SURE, "split": SPLIT}.items():
        with ledger_at(tmp_path, name) as ledger:
            mechanism.answer(votes, ledger)
    assert (tmp_path / "sure" / "ledger.jsonl").read_bytes() == (tmp_path / "split" / "ledger.jsonl").read_bytes()


def test_no_more_answers_than_were_charged(tmp_path):
    mechanism = ConfidentGNMax(threshold=0, threshold_noise=1, vote_noise=1, max_answers=7)
    with ledger_at(tmp_path) as ledger:
        answers = mechanism.answer(SURE, ledger)
    assert answers.answered.sum() == 7


def test_a_budget_that_does_not_suffice_is_found_before_anything_is_charged(tmp_path):
    mechanism = ConfidentGNMax(threshold=0, threshold_noise=1, vote_noise=1, max_answers=7)
    with ledger_at(tmp_path) as ledger:
        with pytest.raises(tacit.errors.BudgetError):
            mechanism.answer(SURE, ledger, gate=BudgetGate(tacit.Budget(0.5, 1e-5)))
        assert ledger.ledger.steps == 0


def test_noise_has_the_declared_scale(tmp_path):
    """Between two equal classes the winner is a coin; with a gap of one sigma of the difference it is Phi(1)."""
    votes = np.tile([100 + 20 * math.sqrt(2), 100.0], (20_000, 1))
    mechanism = ConfidentGNMax(threshold=-1e9, threshold_noise=1, vote_noise=20, max_answers=20_000)
    with ledger_at(tmp_path, randomness="seeded") as ledger:
        labels = mechanism.answer(votes, ledger, randomness=tacit.Randomness.seeded(3)).labels
    assert (labels == 0).mean() == pytest.approx(0.8413, abs=0.011)


def test_one_record_sits_with_one_teacher_and_moves_nobody_else():
    parts = assign_teachers(500, 10, tacit.Randomness.seeded(1))
    more = assign_teachers(501, 10, tacit.Randomness.seeded(1))
    changed = [len(b) - len(a) for a, b in zip(parts, more, strict=True)]
    assert sorted(np.concatenate(parts)) == list(range(500))
    assert sorted(changed) == [0] * 9 + [1]
    assert all(set(a) <= set(b) for a, b in zip(parts, more, strict=True))


def test_votes_are_counted():
    assert count_votes([[0, 2], [0, 1], [1, 2]], 3).tolist() == [[2, 1, 0], [0, 1, 2]]


def test_the_data_dependent_number_is_smaller_where_teachers_agree_and_never_larger():
    mechanism = ConfidentGNMax(threshold=180, threshold_noise=100, vote_noise=20, max_answers=50)
    everything = np.ones(50, dtype=bool)
    sure = data_dependent_epsilon(SURE, mechanism, everything, 1e-5)
    split = data_dependent_epsilon(SPLIT, mechanism, everything, 1e-5)
    charged = tacit.guarantees(tacit.ledger.Ledger.planned(mechanism.charges(50)), 1e-5, only=["rdp"])[0].epsilon
    assert sure < 0.5 * split
    assert split <= charged * 1.02  # its coarser orders


def test_the_chance_of_a_wrong_winner_is_bounded_from_above():
    rng = np.random.default_rng(0)
    votes = np.array([[60, 50, 40]])
    noisy = votes + 15 * rng.standard_normal((40_000, 3))
    wrong = (noisy.argmax(axis=1) != 0).mean()
    assert wrong <= wrong_winner_probability(votes, 15)[0] <= 1.3 * wrong


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ConfidentGNMax(10, 0, 1, 1), "threshold_noise"),
        (lambda: ConfidentGNMax(10, 1, -1, 1), "vote_noise"),
        (lambda: ConfidentGNMax(math.nan, 1, 1, 1), "threshold"),
        (lambda: ConfidentGNMax(10, 1, 1, 0), "max_answers"),
        (lambda: assign_teachers(10, 0), "teachers"),
        (lambda: count_votes([[0, 3]], 3), "votes"),
        (lambda: count_votes([0, 1], 3), "votes"),
    ],
)
def test_bad_input_is_one_line(call, said):
    with pytest.raises(tacit.InputError, match=said):
        call()


@pytest.mark.parametrize("votes", [[1.0, 2.0], [[1.0]], [[math.nan, 1.0]], [[-1.0, 2.0]]])
def test_bad_votes_are_refused_before_the_charge(tmp_path, votes):
    mechanism = ConfidentGNMax(10, 1, 1, 1)
    with ledger_at(tmp_path) as ledger:
        with pytest.raises(tacit.InputError, match="votes"):
            mechanism.answer(votes, ledger)
        assert ledger.ledger.steps == 0


@pytest.mark.parametrize("queries", [100, 1000])
def test_calibrated_noise_is_within_the_budget_and_hardly_less_is_not(queries):
    mechanism = calibrate_confident_gnmax(1.0, 1e-5, queries=queries, max_answers=300, threshold=150)

    def epsilon(factor):
        less = dataclasses.replace(
            mechanism,
            threshold_noise=factor * mechanism.threshold_noise,
            vote_noise=factor * mechanism.vote_noise,
        )
        [found] = tacit.guarantees(tacit.ledger.Ledger.planned(less.charges(queries)), 1e-5, only=["pld"])
        return found.epsilon

    assert mechanism.threshold_noise == 2 * mechanism.vote_noise
    assert 0.999 < epsilon(1.0) <= 1.0 < epsilon(0.999)
