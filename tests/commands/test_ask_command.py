"""``tacit ask``: answers with intervals, a folder that the other commands read, one line for a mistake."""

import csv
import json
import sys

import numpy as np
import pytest

import tacit.queries  # noqa: F401 (its module of one name with a function is reached by sys.modules)

SCHEMA = """
dataset = "people"
records = 2000
[[columns]]
name = "age"
kind = "number"
low = 0
high = 100
[[columns]]
name = "job"
kind = "category"
levels = ["cook", "clerk"]
"""


@pytest.fixture
def table(tmp_path):
    chance = np.random.default_rng(0)
    rows = zip(chance.integers(18, 90, 2000), chance.choice(["cook", "clerk"], 2000), strict=True)
    lines = [f"{age},{job},p{i % 500}" for i, (age, job) in enumerate(rows)]
    (tmp_path / "t.csv").write_text("age,job,who\n" + "\n".join(lines))
    (tmp_path / "s.toml").write_text(SCHEMA)
    return tmp_path


def test_answers_as_json_and_csv_and_a_folder_that_others_read(tacit, table):
    asked = ["count", "mean:age", "histogram:job", "quantile:age:.5"]
    code, out, _ = tacit("ask", table / "t.csv", *asked, "--schema", table / "s.toml", "--epsilon", 1, "--out",
                         table / "run", "--csv", table / "a.csv", "--json")  # fmt: skip
    found = json.loads(out)
    assert code == 0
    assert [one["query"] for one in found["answers"]] == ["count", "mean:age", *["histogram:job"] * 2, asked[3]]
    assert [one.get("cell") for one in found["answers"]][2:4] == ["job=cook", "job=clerk"]
    assert all(one["low"] <= one["value"] <= one["high"] and one["level"] == 0.95 for one in found["answers"])
    assert 0.9999 < found["guarantees"][0]["epsilon"] <= 1
    assert len(list(csv.reader((table / "a.csv").read_text().splitlines()))) == 6
    assert (table / "run" / "artefacts.json").exists()
    code, out, _ = tacit("account", table / "run", "--json")
    assert code == 0
    assert json.loads(out)["guarantees"][0]["epsilon"] <= 1
    code, out, _ = tacit("report", table / "run", "--format", "md")
    assert code == 0
    assert "Answers to 4 queries" in out
    assert "job=clerk" in out
    assert tacit("ledger", "verify", table / "run")[0] == 0
    code, _, err = tacit("predict", table / "run", table / "t.csv", "--out", table / "p.csv")
    assert code == 2
    assert "tacit ask" in err


def test_a_table_for_people(tacit, table):
    code, out, _ = tacit("ask", table / "t.csv", "count", "--unit", "who", "--schema", table / "s.toml",
                         "--epsilon", 1, "--out", table / "run")  # fmt: skip
    assert code == 0
    assert "one user" in out
    assert "hold the answer without noise with probability 0.95" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nonsense"], "expected one of count"),
        (["mean:nobody"], "declares no column 'nobody'"),
        (["mean:job"], "is a category"),
        (["quantile:age:2"], "strictly between 0 and 1"),
        (["count:job,job"], "named twice"),
        (["count", "--level", "1"], "level must lie strictly between"),
        (["count", "--share", "1,2"], "shares must be 1 numbers"),
        (["count", "--csv", "t.txt"], "--csv should end in"),
        (["count", "--budget-epsilon", "2"], "name it with --budget"),
        (["count", "--unit", "owner"], "no column 'owner'"),
        (["count", "--delta", "0.1"], "not below 1/2000"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(tacit, table, words, says):
    code, _, err = tacit("ask", table / "t.csv", *words, "--schema", table / "s.toml", "--epsilon", 1, "--out",
                         table / "run")  # fmt: skip
    assert code == 2
    assert says in err
    assert err.count("\n") == 1
    assert not (table / "run").exists()


def test_a_shared_budget_stops_what_it_cannot_pay(tacit, table):
    def share(out, epsilon, *more):
        return tacit("ask", table / "t.csv", "count", "--schema", table / "s.toml", "--epsilon", epsilon,
                     "--budget", table / "all.jsonl", *more, "--out", table / out)  # fmt: skip

    assert share("one", 0.5, "--budget-epsilon", 1)[0] == 0
    before = (table / "all.jsonl").read_bytes()
    code, _, err = share("two", 0.99)
    assert code == 2
    assert "would exceed the budget" in err
    assert (table / "all.jsonl").read_bytes() == before
    assert not (table / "two").exists()
    assert share("three", 0.3)[0] == 0


def test_answers_can_be_released_and_checked(tacit, table):
    told = ["ask", table / "t.csv", "count", "--schema", table / "s.toml", "--epsilon", 1, "--out", table / "run"]
    assert tacit(*told)[0] == 0
    assert tacit("release", table / "run", "--out", table / "bundle")[0] == 0
    assert tacit("release", "--check", table / "bundle")[0] == 0
    assert [one["query"] for one in json.loads((table / "bundle" / "run.json").read_text())["answers"]] == ["count"]


def test_a_shared_ledger_that_a_full_disk_left_empty_can_be_opened(tacit, table):
    (table / "all.jsonl").touch()
    told = ["ask", table / "t.csv", "count", "--schema", table / "s.toml", "--epsilon", 1, "--out", table / "run",
            "--budget", table / "all.jsonl", "--budget-epsilon", 2]  # fmt: skip
    code, _, err = tacit(*told)
    assert (code, err) == (0, "")


def test_queries_that_were_stopped_point_to_their_answers(tacit, table, monkeypatch):
    room = sys.modules["tacit.queries.ask"]

    asked = ["ask", table / "t.csv", "count", "--schema", table / "s.toml", "--epsilon", 1, "--out", table / "run"]
    with monkeypatch.context() as patch:
        patch.setattr(room, "released_answers", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert tacit(*asked)[0] == 130
    code, _, err = tacit(*asked)
    assert (code, "go on with --resume" in err) == (2, True)
    code, _, err = tacit("predict", table / "run", table / "t.csv", "--out", table / "p.csv")
    assert (code, err.count("\n")) == (2, 1)
