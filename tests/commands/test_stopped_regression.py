"""``tacit regress`` stopped at some of its durable writes, and taken up again: never lost, and never paid for twice.

The reliability table stops it at every one (reliability/f30_coefficients.py).
"""

import numpy as np
import pytest

from reliability.f30_coefficients import Trial
from reliability.f30_writes import KINDS, Killed, MortalDisk, spaced, stopped
from reliability.small_table import SmallTable, facts_of, tacit
from tacit.errors import InputError, RefusedError
from tacit.ledger import read_ledger
from tacit.regression.newton.kept import Releases, read_releases
from tacit.regression.newton.plan import PARTS
from tacit.regression.newton.sums import PrivateSums


@pytest.fixture
def table(tmp_path):
    return SmallTable.write(tmp_path / "table", rows=300)


@pytest.mark.parametrize(("target", "shared"), KINDS)
def test_a_regression_stopped_at_some_of_its_writes_is_completed(table, target, shared):
    found = list(stopped(table, target, shared, spaced(60), Trial))
    assert len(found) > 8
    assert [fault for fault in found if fault] == []


def stop_at(trial, last):
    with pytest.raises(Killed):
        trial.go_on(MortalDisk(last))


def test_a_regression_stopped_again_and_again_says_what_it_lost(table):
    trial = Trial(table, "flag", False, "often")
    for _ in range(6):
        stop_at(trial, 60)
        assert read_ledger(trial.out).steps == 5 * PARTS
    assert trial.go_on(MortalDisk()) == ""
    assert trial.fault == ""
    assert trial.lost > 1
    assert read_ledger(trial.out).steps == 5 * PARTS


def test_what_was_kept_is_what_is_used(table, monkeypatch):
    """A run that is stopped after its last release goes on without a draw."""
    trial = Trial(table, "number", False, "kept")

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("tacit.regression.regression.posterior_draws", killed)
        assert "exit 130" in trial.start(MortalDisk())
    with monkeypatch.context() as patched:
        patched.setattr("tacit.randomness.Randomness.normals", killed)
        assert trial.go_on(MortalDisk()) == ""
    assert trial.lost == 0
    assert trial.fault == ""


def test_a_kill_between_the_draw_and_its_keeping_is_never_drawn_again(tmp_path):
    drawn, path = [], tmp_path / "c.safetensors"

    def one():
        drawn.append(1)
        if len(drawn) == 2:
            raise Killed
        return np.ones(2)

    with pytest.raises(Killed):
        Releases(path).mean("a", 2, one)
    again = read_releases(path)
    found = again.mean("a", 2, one)
    assert (found.begun, found.kept, len(drawn), again.lost) == (PARTS, PARTS - 1, PARTS, 1)
    assert found.total.tolist() == [PARTS - 1] * 2
    assert read_releases(path).mean("a", 2, None).kept == PARTS - 1
    with pytest.raises(InputError, match="holds 2 numbers"):
        read_releases(path).mean("a", 3, None)


def test_a_release_that_was_lost_in_all_its_parts_is_refused(tmp_path):
    path = tmp_path / "c.safetensors"

    def killed():
        raise Killed

    Releases(path).write()
    for _ in range(PARTS):
        with pytest.raises(Killed):
            read_releases(path).mean("a", 1, killed)
    with pytest.raises(RefusedError, match="another try needs"):
        read_releases(path).mean("a", 1, killed)


def test_the_noise_of_what_is_left_is_known(table):
    from tacit.regression.newton.kept import Progress

    class Plan:
        def part_stddev(self, name):
            return 6.0

    kept = Releases(found={"a": Progress(PARTS, 3, np.array([9.0]))})
    found = PrivateSums(None, 1.0, Plan(), None, kept=kept)._noisy("a", np.zeros(1), 2.0)
    assert found.value.tolist() == [3.0]
    assert found.stddev == pytest.approx(12 / 3**0.5)


def test_other_options_or_a_lost_file_are_refused(table):
    trial = Trial(table, "flag", False, "refused")
    stop_at(trial, 200)

    def said(*more):
        return tacit("regress", table.private, "--out", trial.out, *more)

    assert "go on with --resume" in said("--schema", table.schema("flag"), "--epsilon", 2).err
    others = {"epsilon": 3, "prior": "laplace:1", "contrast": "a - b", "family": "linear", "registry": "r"}
    for name, value in others.items():
        assert f"--{name} cannot change now" in said("--resume", f"--{name}", value).err
    assert "go on with the one that was begun: tacit regress" in tacit("summary", trial.out).err
    predicted = tacit("predict", trial.out, table.test, "--out", table.folder / "p.csv")
    assert "go on with tacit regress TABLE" in predicted.err
    (trial.out / "checkpoint.safetensors").rename(table.folder / "away")
    assert "is gone, and with it what was released" in said("--resume").err
    (table.folder / "away").rename(trial.out / "checkpoint.safetensors")
    (trial.out / "ledger.jsonl").rename(table.folder / "ledger")
    assert "never makes it anew" in said("--resume").err
    (table.folder / "ledger").rename(trial.out / "ledger.jsonl")
    (trial.out / "checkpoint.safetensors").write_bytes(b"nothing")
    assert "is damaged" in said("--resume").err
    assert facts_of(trial.out)["task"] == "coefficients"


def test_a_stop_after_a_shared_charge_finds_it_among_those_of_others(table, monkeypatch):
    """Runs that charge the very same: each goes on under its own charge, and one that did not charge must."""
    shared = ("--budget", table.folder / "all.jsonl", "--budget-epsilon", 5)

    def regress(out, *more):
        given = more or ("--schema", table.schema("flag"), "--epsilon", 2, *shared)
        return tacit("regress", table.private, "--out", table.folder / out, *given)

    def killed(*_, **__):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(PrivateSums, "gram", killed)
        with pytest.raises(Killed):
            regress("charged")
    with monkeypatch.context() as patched:
        patched.setattr("tacit.ledger.LedgerFile.reserve", killed)
        with pytest.raises(Killed):
            regress("not")
    assert read_ledger(table.folder / "all.jsonl").steps == 5 * PARTS
    assert regress("charged", "--resume").code == 0
    assert read_ledger(table.folder / "all.jsonl").steps == 5 * PARTS
    assert regress("not", "--resume").code == 0
    assert read_ledger(table.folder / "all.jsonl").steps == 10 * PARTS


def test_facts_alone_are_no_run(table):
    trial = Trial(table, "flag", False, "facts")
    trial.out.mkdir()
    assert "no run of tacit regress" in tacit("regress", table.private, "--resume", "--out", trial.out).err
    trial.start(MortalDisk())
    (trial.out.parent / "x").mkdir()
    (trial.out.parent / "x" / "run.json").write_bytes((trial.out / "run.json").read_bytes())
    said = tacit("regress", table.private, "--resume", "--out", trial.out.parent / "x")
    assert "start without --resume" in said.err
