"""``tacit train`` stopped at some of its durable writes, and taken up again: always a run that can be released.

The reliability table stops it at every one (reliability/f30_writes.py).
"""

import sys

import pytest

from reliability.f30_writes import KINDS, Killed, MortalDisk, Trial, spaced, stopped
from reliability.small_table import STEPS, SmallTable, facts_of, fault_of_run, left_over, short_runs
from tacit.ledger import read_ledger
from tacit.training import PrivateSum
from tacit.training.plan import AT_ONCE


@pytest.fixture
def table(tmp_path):
    with short_runs():
        yield SmallTable.write(tmp_path / "table")


@pytest.mark.parametrize(("target", "shared"), KINDS)
def test_a_run_stopped_at_some_of_its_writes_is_completed(table, target, shared):
    found = list(stopped(table, target, shared, spaced(30)))
    assert len(found) > 5
    assert [fault for fault in found if fault] == []


def test_a_stop_that_loses_something_is_seen(table):
    """The proof can fail: a manifest that is written too early leaves a run that cannot be completed."""
    trial, disk = Trial(table, "flag", False, "early"), MortalDisk()
    assert Trial(table, "flag", False, "whole").start(disk) == ""
    with pytest.raises(Killed):
        trial.start(MortalDisk(len(disk.calls) - 12))
    (trial.out / "artefacts.json").write_bytes((table.folder / "run-whole" / "artefacts.json").read_bytes())
    assert trial.go_on(MortalDisk()) != ""
    assert trial.fault != ""


@pytest.mark.parametrize("shared", [False, True])
def test_a_stop_while_residuals_are_computed_loses_and_costs_nothing(table, shared, monkeypatch):
    from tacit.runs.fit import fit

    def killed(*given, **options):
        raise Killed

    trial = Trial(table, "number", shared, "residuals")
    with monkeypatch.context() as patched:
        patched.setattr(sys.modules[fit.__module__], "predict", killed)
        with pytest.raises(Killed):
            trial.start(MortalDisk())
    assert trial.go_on(MortalDisk()) == ""
    assert trial.fault == ""
    facts = facts_of(trial.out)
    assert (facts["steps"], facts["spread"] is not None) == (STEPS, True)
    assert read_ledger(trial.ledger).steps == STEPS + 1


@pytest.mark.parametrize("target", ["flag", "number"])
def test_a_run_stopped_again_and_again_ends_in_a_model(table, target):
    """Each stop loses a block that was paid for, until the budget is used up; what was learned is kept."""
    trial = Trial(table, target, False, "often")
    disk = MortalDisk()
    Trial(table, target, False, "whole").start(disk)
    with pytest.raises(Killed):
        trial.start(MortalDisk(2 * len(disk.calls) // 3))
    for _ in range(6):
        try:
            trial.go_on(MortalDisk(22))
        except Killed:
            continue
    assert trial.go_on(MortalDisk()) == ""
    assert trial.fault == ""
    assert facts_of(trial.out)["steps"] < STEPS
    assert read_ledger(trial.out).steps <= STEPS + 1


@pytest.mark.parametrize("target", ["flag", "number"])
def test_as_many_kills_before_the_first_step_as_there_are_blocks_end_in_a_model(table, target, monkeypatch):
    """It has learned nothing and says so; but what was paid for is there, released and verified like any other."""
    trial, kills = Trial(table, target, False, "first"), 0
    for _ in range(10):
        disk = MortalDisk()

        def killed(*_, disk=disk):
            disk.last = 0
            raise Killed

        monkeypatch.setattr(PrivateSum, "release", killed)
        try:
            assert trial.go_on(disk) == ""
            break
        except Killed:
            kills += 1
    assert kills == STEPS // AT_ONCE
    assert left_over(trial.out) + fault_of_run(trial.out, table.test) == ""
    assert facts_of(trial.out)["steps"] == 0
    assert any("the budget ended at step 0" in words for words in facts_of(trial.out)["warnings"])
