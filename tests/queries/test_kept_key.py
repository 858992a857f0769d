"""Queries that are stopped at any of their durable writes get the answers that they paid for, and pay once."""

import json
import sys

import numpy as np
import pytest

from reliability.f30_writes import Killed, MortalDisk
from tacit.ledger import is_begun, read_ledger
from tacit.queries import schema_run
from tacit.randomness import Randomness
from tacit.storage.disk import using
from tacit.tables import Category, Number, Schema, schema_text

room = sys.modules["tacit.queries.ask"]

AGE = Number("age", 0, 100)


@pytest.fixture
def files(tmp_path):
    chance = np.random.default_rng(0)
    rows = [f"{chance.integers(18, 90)},{chance.choice(['cook', 'clerk'])}" for _ in range(600)]
    (tmp_path / "t.csv").write_text("age,job\n" + "\n".join(rows) + "\n")
    for name, job in (("s", Category("job", ("cook", "clerk"))), ("open", Category("job", ask=("levels",)))):
        (tmp_path / f"{name}.toml").write_text(schema_text(Schema((AGE, job), records=600)))
    return tmp_path


def words(files, out, shared):
    more = ("--budget", files / f"{out}.jsonl", "--budget-epsilon", 3) if shared else ()
    return ("ask", files / "t.csv", "count", "mean:age", "--schema", files / "s.toml", "--epsilon", 1,
            "--out", files / out, *more)  # fmt: skip


def charges(files, out, shared):
    ledger = files / f"{out}.jsonl" if shared else files / out / "ledger.jsonl"
    return len(read_ledger(ledger).charges) if is_begun(ledger) else 0


@pytest.mark.parametrize("shared", [False, True])
def test_a_stop_at_any_write_takes_no_answer_and_costs_no_more(tacit, files, shared):
    disk = MortalDisk()
    with using(disk):
        assert tacit(*words(files, "whole", shared))[0] == 0
    twice = 0
    for last in range(1, len(disk.calls) + 1):
        out = f"run{last}"
        with using(MortalDisk(last)), pytest.raises(Killed):
            tacit(*words(files, out, shared))
        if (files / out / "artefacts.json").exists():
            continue
        paid = charges(files, out, shared)
        again = ("ask", files / "t.csv", "--resume", "--out", files / out, "--json")
        code, _, err = tacit(*(again if (files / out / "asking.private").exists() else words(files, out, shared)))
        assert code == 0, (last, err)
        assert not (files / out / "asking.private").exists()
        facts = json.loads((files / out / "run.json").read_text())
        assert [one["query"] for one in facts["answers"]] == ["count", "mean:age"]
        assert tacit("ledger", "verify", files / out)[0] == 0
        twice += charges(files, out, shared) - max(1, paid)
    assert twice <= (
        3 if shared else 0
    )  # of a shared ledger nobody can tell whose a charge is: between it and its note


def interrupted(*given):
    raise KeyboardInterrupt


def test_going_on_draws_the_same_answers(tacit, files, monkeypatch):
    found, real = [], room.released_answers
    again = ("ask", files / "t.csv", "--resume", "--out", files / "run", "--json")
    for command in (words(files, "run", False), again):
        with monkeypatch.context() as patched:
            patched.setattr(room, "released_answers", lambda *given: found.append(real(*given)) or interrupted())
            assert tacit(*command)[0] == 130
    code, out, _ = tacit(*again)
    assert code == 0
    assert found[0] == found[1]
    assert [one["value"] for one in json.loads(out)["answers"]] == [one.value for one in found[0]]
    assert len(read_ledger(files / "run").charges) == 1


def test_another_table_gets_no_answer_with_the_same_noise(tacit, files, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(room, "released_answers", interrupted)
        assert tacit(*words(files, "run", False))[0] == 130
    kept = json.loads((files / "run" / "asking.private").read_text())
    assert ("key" in kept, "found" in kept) == (True, False)
    assert (files / "run" / "asking.private").stat().st_mode & 0o077 == 0
    less = (files / "t.csv").read_text().splitlines()[:-1]
    (files / "less.csv").write_text("\n".join(less) + "\n")
    code, _, err = tacit("ask", files / "less.csv", "--resume", "--out", files / "run")
    assert (code, "not the one that the answers were paid for" in err) == (2, True)
    (files / "run" / "asking.private").unlink()
    code, _, err = tacit("ask", files / "t.csv", "--resume", "--out", files / "run")
    assert (code, "lost and paid for" in err, err.count("\n")) == (2, True, 1)


def test_what_is_asked_must_be_what_was_charged(tacit, files, monkeypatch):
    """A larger epsilon written into the kept request would draw less noise than was paid for."""
    with monkeypatch.context() as patched:
        patched.setattr(room, "released_answers", interrupted)
        assert tacit(*words(files, "run", False))[0] == 130
    kept = json.loads((files / "run" / "asking.private").read_text())
    kept["asked"]["epsilon"] *= 10
    (files / "run" / "asking.private").write_text(json.dumps(kept))
    code, _, err = tacit("ask", files / "t.csv", "--resume", "--out", files / "run")
    assert (code, "not charged for" in err, err.count("\n")) == (2, True, 1)


def test_going_on_takes_no_other_question(tacit, files):
    for more in (("count",), ("--epsilon", 2), ("--schema", files / "s.toml")):
        code, _, err = tacit("ask", files / "t.csv", *more, "--resume", "--out", files / "run")
        assert (code, err.count("\n")) == (2, 1), err
    code, _, err = tacit("ask", files / "t.csv", "--resume", "--out", files / "run")
    assert (code, "no queries that were stopped" in err) == (2, True)
    code, _, err = tacit("ask", files / "t.csv", "count", "--out", files / "run")
    assert (code, "needs --schema" in err) == (2, True)


@pytest.mark.parametrize("shared", [False, True])
def test_a_run_that_was_stopped_while_it_asked_goes_on(tacit, files, monkeypatch, shared):
    more = ("--budget", files / "all.jsonl", "--budget-epsilon", 3) if shared else ()
    start = ("train", files / "t.csv", "--schema", files / "open.toml", "--target", "age", "--epsilon", 3, *more)
    with monkeypatch.context() as patched:
        patched.setattr(schema_run.Questions, "answered", interrupted)
        assert tacit(*start, "--out", files / "run")[0] == 130
    code, out, err = tacit("train", files / "t.csv", "--resume", "--out", files / "run", "--json")
    assert code == 0, err
    found = json.loads(out)["run"]["schema"]["columns"][1]
    assert found["levels"] == ["clerk", "cook"]
    ledger = read_ledger(files / "all.jsonl" if shared else files / "run")
    assert [charge.event.kind for charge in ledger.charges].count("thresholded") == 1
    assert not (files / "run" / "asking.private").exists()


def test_a_key_gives_the_same_draws_and_is_checked():
    key = bytes(range(32))
    assert Randomness.of_key(key).kind == "secure"
    assert (Randomness.of_key(key).normals(5) == Randomness.of_key(key).normals(5)).all()
    for wrong in (b"short", "text", None):
        with pytest.raises(Exception, match="32 bytes"):
            Randomness.of_key(wrong)
