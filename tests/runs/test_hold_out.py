"""A private score: on records that were not trained on, with intervals that hold noise and chance, charged."""

import json

import numpy as np
import pytest

from tacit.accountants import best_bound, guarantees
from tacit.randomness import Randomness
from tacit.runs import Problem, RunFacts, RunFolder, train_table
from tacit.runs.quality import hold_out as room
from tacit.runs.quality.hold_out import _summed, split_off
from tacit.runs.quality.scores import BINS, LOSS_CUT, Released, class_scores, number_scores
from tacit.tables import Category, Encoded, Number, Schema, Table, encode
from tacit.tables.settings import score_event
from tests.runs.people import EchoingPredictor, people, write_files

SCHEMA = Schema((Number("x", -3, 3), Category("ill", ("no", "yes"))), records=2000, users=500, target="ill")

NAMES = ["accuracy", "accuracy of the most frequent", "sensitivity", "specificity", "AUC", "log-loss",
         "log-loss of the shares", "Brier score", "mean probability minus share"]  # fmt: skip


def trained(folder, hold_out=0.2, unit="record", seed=0):
    schema = SCHEMA.with_facts(unit=unit)
    facts = RunFacts(Problem(schema, "ill", 1.0, 1e-5, hold_out=hold_out))
    return train_table(facts, encode(people(2000, seed), schema, "ill"), RunFolder(folder))


@pytest.mark.parametrize("unit", ["record", "who"])
def test_a_run_says_how_good_it_is_within_its_budget(tmp_path, unit):
    found = trained(tmp_path / "run", unit=unit)
    scores = {score["query"]: score for score in found.facts.score["scores"]}
    assert list(scores) == NAMES
    assert all(score["low"] <= score["value"] <= score["high"] for score in scores.values())
    assert 0.999 < best_bound(guarantees(found.fitted.ledger, 1e-5)).epsilon <= 1.0
    assert not (tmp_path / "run" / "hold-out.private").exists()
    said = json.loads((tmp_path / "run" / "run.json").read_text())
    assert said["hold_out"] == 0.2
    assert RunFolder(tmp_path / "run").read_facts().score == found.facts.score


def test_units_are_held_out_whole_and_by_chance(tmp_path):
    schema = SCHEMA.with_facts(unit="who")
    data = encode(people(2000, 0), schema, "ill")
    kept, held = split_off(data, 0.2, RunFolder(tmp_path), Randomness(), resume=False)
    assert not set(kept.users) & set(held.users)
    assert len(kept.rows) + len(held.rows) == 2000
    assert 60 < len(set(held.users)) < 140
    again, _ = split_off(data, 0.2, RunFolder(tmp_path), Randomness(), resume=True)
    assert (again.rows == kept.rows).all()


def held_out(chance, records, rate, apart):
    """A calibrated model: labels and the probabilities of "yes" that it gives."""
    labels = (chance.random(records) < rate).astype(int)
    score = apart * (chance.normal(size=records) + apart * (labels - 0.5)) + np.log(rate / (1 - rate))
    return labels, 1 / (1 + np.exp(-score))


def class_sums(labels, said):
    loss = np.minimum(-np.log(np.where(labels, said, 1 - said)), LOSS_CUT) / LOSS_CUT
    return {
        "right and wrong": np.bincount(2 * labels + ((said > 0.5) != labels), minlength=4).reshape(2, 2),
        "probabilities": np.bincount(BINS * labels + np.minimum((said * BINS).astype(int), BINS - 1),
                                     minlength=2 * BINS).reshape(2, BINS),
        "log-loss": loss.sum(keepdims=True),
        "squared log-loss": (loss**2).sum(keepdims=True),
        "calibration": (said - labels).sum(keepdims=True),
        "Brier": np.square(said - labels).sum(keepdims=True),
    }  # fmt: skip


def number_sums(targets, said):
    squares = np.minimum(np.square(said - targets), 1)
    sums = {"units": np.ones(len(targets)), "squared errors": squares, "fourth powers": squares**2,
            "targets": targets, "squared targets": targets**2}  # fmt: skip
    return {name: each.sum(keepdims=True) for name, each in sums.items()}


def noisy(sums, noise, chance, numbers=False):
    stddevs = {query.group: query.noise_stddev for query in score_event(noise, numbers=numbers).queries}
    return Released({n: s + stddevs[n] * chance.standard_normal(s.shape) for n, s in sums.items()}, stddevs)


def coverage(draw, read, draws):
    """How often each interval holds the score that very many records would have without noise."""
    true = {score["query"]: score["value"] for score in read(draw(2_000_000, 1e-9))}
    held = dict.fromkeys(true, 0)
    for _ in range(draws):
        for score in read(draw(None, None)):
            held[score["query"]] += score["low"] <= true[score["query"]] <= score["high"]
    return {name: count / draws for name, count in held.items()}


CASES = [(2000, 0.3, 1.5, 12.0), (400, 0.1, 2.0, 1.5), (100, 0.4, 3.0, 1.5), (400, 0.3, 3.0, 4.0)]
AT_LEAST = (
    "accuracy of the most frequent",
    "AUC",
    "Brier score",
    "RMSE of the mean",
    "sensitivity",
    "log-loss of the shares",
)  # wider where little is known


@pytest.mark.parametrize(("draws", "close"), [(600, 0.03), pytest.param(10_000, 0.015, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("records", "rate", "apart", "noise"), CASES)
def test_intervals_hold_the_true_scores_as_often_as_they_say(draws, close, records, rate, apart, noise):
    chance = np.random.default_rng(2)

    def draw(many, little):
        sums = class_sums(*held_out(chance, many or chance.binomial(5 * records, 0.2), rate, apart))
        return noisy(sums, little or noise, chance)

    found = coverage(draw, lambda released: class_scores(released, ("no", "yes")), draws)
    assert set(found) == set(NAMES)
    assert all(share >= 0.95 - close for share in found.values()), found
    assert all(share <= 0.95 + close for name, share in found.items() if name not in AT_LEAST), found


@pytest.mark.parametrize(("draws", "close"), [(600, 0.03), pytest.param(10_000, 0.015, marks=pytest.mark.slow)])
def test_intervals_hold_the_true_error_of_numbers(draws, close):
    chance = np.random.default_rng(3)

    def draw(many, little):
        targets = np.clip(0.2 + 0.3 * chance.normal(size=many or chance.binomial(5000, 0.2)), -1, 1)
        return noisy(
            number_sums(targets, targets + 0.15 * chance.normal(size=len(targets))), little or 5.0, chance, True
        )

    found = coverage(draw, lambda released: number_scores(released, 10.0), draws)
    assert abs(found["RMSE"] - 0.95) <= close, found
    assert found["RMSE of the mean"] >= 0.95 - close, found


@pytest.mark.parametrize("numbers", [False, True])
def test_one_unit_moves_each_sum_by_at_most_1(monkeypatch, numbers):
    summed = []
    monkeypatch.setattr(room, "_summed", lambda *given: summed.append(_summed(*given)) or summed[-1])
    rows = np.arange(40)
    target = Number("ill", -10, 10) if numbers else SCHEMA.columns[1]
    schema = Schema((SCHEMA.columns[0], target), records=2000, users=500, target="ill", unit="who")
    predictor = EchoingPredictor(Problem(schema, "ill", 1.0, 1e-5, hold_out=0.2))
    chance = np.random.default_rng(0)
    inputs = chance.random((40, 1)).astype(np.float32)
    inputs[7] = np.nan
    targets = chance.uniform(-1, 1, 40) if numbers else chance.integers(0, 2, 40)
    whole = Encoded(inputs, targets, np.array([f"p{i // 4}" for i in rows], dtype=object), rows)
    for users in (whole.users, None):
        given = Encoded(whole.inputs, whole.targets, users, rows)
        for kept in (rows >= 4,) if users is not None else (rows != 0, rows != 7):
            less = Encoded(given.inputs[kept], given.targets[kept], None if users is None else users[kept], rows[kept])
            summed.clear()
            for one in (given, less):
                room.release_scores(predictor, one, 5.0, Randomness.seeded(1))
            half = len(summed) // 2
            assert half == (5 if numbers else 6)
            for before, after in zip(summed[:half], summed[half:], strict=True):
                assert np.linalg.norm(before - after) <= 1 + 1e-9


def test_numbers_have_a_private_score_too(tmp_path):
    schema = Schema((Number("x", -3, 3), Number("y", -10, 10)), records=2000, target="y")
    x = np.random.default_rng(0).normal(size=2000)
    facts = RunFacts(Problem(schema, "y", 10.0, 1e-5, hold_out=0.2))
    data = encode(Table({"x": x, "y": 2 * x}), schema, "y")
    found = train_table(facts, data, RunFolder(tmp_path / "run"), randomness=Randomness.seeded(0))
    error, constant = found.facts.score["scores"]
    assert error["value"] < constant["value"]
    assert constant["low"] < 2 < constant["high"] < 3
    assert best_bound(guarantees(found.fitted.ledger, 1e-5)).epsilon <= 10.0


def test_a_run_that_was_stopped_keeps_to_its_split(tacit, tmp_path, stopped):
    write_files(tmp_path, people(600, 1))
    asked = ["train", tmp_path / "t.csv", "--out", tmp_path / "run"]
    code, _, _ = tacit(*asked, "--schema", tmp_path / "s.toml", "--epsilon", 3, "--hold-out", "30%")
    assert code == 130
    split = tmp_path / "run" / "hold-out.private"
    assert split.stat().st_mode & 0o077 == 0
    assert tacit(*asked, "--resume", "--hold-out", "20%")[0] == 2
    code, out, _ = tacit(*asked, "--resume", "--json")
    assert code == 0
    assert len(json.loads(out)["run"]["score"]["scores"]) == len(NAMES)
    assert json.loads(out)["guarantees"][0]["epsilon"] <= 3
    assert not split.exists()


def test_the_command_takes_a_share_and_says_the_score(tacit, tmp_path):
    write_files(tmp_path, people(600, 1))
    asked = ["train", tmp_path / "t.csv", "--schema", tmp_path / "s.toml", "--epsilon", 3, "--out", tmp_path / "run"]
    code, out, _ = tacit(*asked, "--hold-out", "30%")
    assert code == 0
    assert "Private score on 30% of the units, held out: accuracy 0." in out
    code, out, _ = tacit("report", tmp_path / "run", "--format", "md")
    assert code == 0
    assert "Scores on records that were held out" in out
    for text, says in (("120%", "--hold-out is a share"), ("x", "--hold-out is a share")):
        code, _, err = tacit(*asked[:-1], tmp_path / "no", "--hold-out", text)
        assert (code, says in err, (tmp_path / "no").exists()) == (2, True, False)
    budget = ["--budget", tmp_path / "all.jsonl", "--budget-epsilon", 4]
    code, out, _ = tacit(*asked[:-1], tmp_path / "shared", "--hold-out", ".2", *budget)
    assert (code, "Private score" in out) == (0, True)
    code, _, err = tacit(*asked[:-1], tmp_path / "no", "--hold-out", ".2", *budget)
    assert (code, "exceed the budget" in err, (tmp_path / "no").exists()) == (2, True, False)
