"""A private score: on records that were not trained on, with intervals that hold noise and chance, charged."""

import json

import numpy as np
import pytest

from tacit.accountants import best_bound, guarantees
from tacit.randomness import Randomness
from tacit.runs import Problem, RunFacts, RunFolder, train_table
from tacit.runs import hold_out as room
from tacit.runs.hold_out import BINS, _counted, read_scores, split_off
from tacit.tables import Category, Encoded, Number, Schema, Table, encode
from tacit.tables.releases import score_event

SCHEMA = Schema((Number("x", -3, 3), Category("ill", ("no", "yes"))), records=2000, users=500, target="ill")

TOML = """
records = 600
target = "ill"
[[columns]]
name = "x"
kind = "number"
low = -3
high = 3
[[columns]]
name = "ill"
kind = "category"
levels = ["no", "yes"]
"""


def people(rows, seed):
    chance = np.random.default_rng(seed)
    x = chance.normal(size=rows)
    ill = chance.random(rows) < 1 / (1 + np.exp(1 - 2 * x))
    who = np.array([f"p{i // 4}" for i in range(rows)], dtype=object)
    return Table({"x": x, "ill": np.where(ill, "yes", "no").astype(object), "who": who})


def trained(folder, hold_out=0.2, unit="record", seed=0):
    schema = SCHEMA.with_facts(unit=unit)
    facts = RunFacts(Problem(schema, "ill", 1.0, 1e-5, hold_out=hold_out))
    return train_table(facts, encode(people(2000, seed), schema, "ill"), RunFolder(folder))


@pytest.mark.parametrize("unit", ["record", "who"])
def test_a_run_says_how_good_it_is_within_its_budget(tmp_path, unit):
    found = trained(tmp_path / "run", unit=unit)
    scores = {score["query"]: score for score in found.facts.score["scores"]}
    assert list(scores) == ["accuracy", "accuracy of the most frequent", "sensitivity", "specificity", "AUC"]
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


def draws_of_counts(truth, records, noise, chance):
    """Counts of a model whose true rates are known, with chance in the records and noise."""
    right_noise, bins_noise = (query.noise_stddev for query in score_event(noise).queries)
    labels = (chance.random(records) < truth["yes"]).astype(int)
    probability = np.clip(chance.beta(2 + 2 * labels, 4 - 2 * labels), 0, 1 - 1e-9)
    wrong = (probability > 0.5).astype(int) != labels
    right = np.bincount(2 * labels + wrong, minlength=4) + right_noise * chance.standard_normal(4)
    bins = np.bincount(BINS * labels + (probability * BINS).astype(int), minlength=2 * BINS)
    return (
        right.reshape(2, 2),
        right_noise,
        (bins + bins_noise * chance.standard_normal(2 * BINS)).reshape(2, BINS),
        bins_noise,
    )


@pytest.mark.parametrize(("draws", "close"), [(1000, 0.02), pytest.param(10_000, 0.01, marks=pytest.mark.slow)])
def test_intervals_hold_the_true_scores_as_often_as_they_say(draws, close):
    chance = np.random.default_rng(2)
    many = draws_of_counts({"yes": 0.3}, 2_000_000, 1e-9, chance)
    true = {score["query"]: score["value"] for score in read_scores(*many, ("no", "yes"))}
    held = dict.fromkeys(true, 0)
    for _ in range(draws):
        for score in read_scores(*draws_of_counts({"yes": 0.3}, 2000, 12.0, chance), ("no", "yes")):
            held[score["query"]] += score["low"] <= true[score["query"]] <= score["high"]
    assert all(abs(count / draws - 0.95) <= close for count in held.values()), held


def test_one_unit_moves_each_histogram_by_at_most_1(monkeypatch):
    counted = []
    monkeypatch.setattr(room, "_counted", lambda *given: counted.append(_counted(*given)) or counted[-1])
    rows = np.arange(40)
    schema = SCHEMA.with_facts(unit="who")

    class Predictor:
        problem = Problem(schema, "ill", 1.0, 1e-5, hold_out=0.2)

        @staticmethod
        def classes(inputs):
            from types import SimpleNamespace

            import torch

            p = torch.from_numpy(inputs[:, :1].astype(np.float64))
            return SimpleNamespace(mean=torch.cat([1 - p, p], 1))

    chance = np.random.default_rng(0)
    whole = Encoded(chance.random((40, 1)).astype(np.float32), chance.integers(0, 2, 40),
                    np.array([f"p{i // 4}" for i in rows], dtype=object), rows)  # fmt: skip
    for users in (whole.users, None):
        given = Encoded(whole.inputs, whole.targets, users, rows)
        for kept in (rows >= 4, rows != 7) if users is not None else (rows != 0, rows != 7):
            less = Encoded(given.inputs[kept], given.targets[kept], None if users is None else users[kept], rows[kept])
            if users is not None and kept[0]:
                continue  # a part of a user's rows is no unit
            counted.clear()
            for one in (given, less):
                room.release_scores(Predictor, one, 5.0, Randomness.seeded(1))
            for before, after in zip(counted[:2], counted[2:], strict=True):
                assert 0 < np.linalg.norm(before - after) <= 1 + 1e-9


def test_a_run_that_was_stopped_keeps_to_its_split(tacit, tmp_path, stopped):
    table = people(600, 1)
    lines = [f"{x:.3f},{ill}" for x, ill in zip(table.columns["x"], table.columns["ill"], strict=True)]
    (tmp_path / "t.csv").write_text("x,ill\n" + "\n".join(lines))
    (tmp_path / "s.toml").write_text(TOML)
    asked = ["train", tmp_path / "t.csv", "--out", tmp_path / "run"]
    code, _, _ = tacit(*asked, "--schema", tmp_path / "s.toml", "--epsilon", 3, "--hold-out", "30%")
    assert code == 130
    split = tmp_path / "run" / "hold-out.private"
    assert split.stat().st_mode & 0o077 == 0
    assert tacit(*asked, "--resume", "--hold-out", "20%")[0] == 2
    code, out, _ = tacit(*asked, "--resume", "--json")
    assert code == 0
    assert len(json.loads(out)["run"]["score"]["scores"]) == 5
    assert json.loads(out)["guarantees"][0]["epsilon"] <= 3
    assert not split.exists()


def test_the_command_takes_a_share_and_says_the_score(tacit, tmp_path):
    table = people(600, 1)
    lines = [f"{x:.3f},{ill}" for x, ill in zip(table.columns["x"], table.columns["ill"], strict=True)]
    (tmp_path / "t.csv").write_text("x,ill\n" + "\n".join(lines))
    (tmp_path / "s.toml").write_text(TOML)
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
    budget = ["--budget", tmp_path / "all.jsonl", "--budget-epsilon", 3]
    code, _, err = tacit(*asked[:-1], tmp_path / "no", "--hold-out", ".2", *budget)
    assert (code, "ledger of its own" in err) == (2, True)
