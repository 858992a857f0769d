"""``tacit train`` stopped at any of its durable writes, and taken up again: always a run that can be released."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from tacit.commands.breast_cancer import write_table
from tacit.ledger import read_ledger
from tacit.ledger.disk import OperatingSystem, using
from tacit.release import check_bundle, release_run
from tacit.tables import Flag, Number, Schema, Table, recipes, schema_text

BUDGET, TOTAL = 2.0, 2.2  # a filter over one order is a little looser than what found the noise


class Killed(BaseException):
    """No handler of an ordinary error sees it."""


class MortalDisk(OperatingSystem):
    """The real disk until call number ``last``, of which it does a half; after it nothing changes any more.

    So what a process does on its way out leaves no trace, as if it had been killed.
    """

    def __init__(self, last: int | None = None) -> None:
        self.last = last
        self.calls: list[str] = []

    def _live(self, name: str) -> None:
        self.calls.append(name)
        if self.last is not None and len(self.calls) >= self.last:
            raise Killed

    def write(self, file, data):
        if len(self.calls) + 1 == self.last:
            os.write(file, bytes(data)[: len(data) // 2])
        self._live("write")
        return super().write(file, data)


def _mortal(name):
    real = getattr(OperatingSystem, name)

    def call(self, *given, **options):
        self._live(name)
        return real(self, *given, **options)

    return call


for _name in ("make_folder", "open_to_append", "open_new", "truncate", "sync_data", "rename", "sync_folder"):
    setattr(MortalDisk, _name, _mortal(_name))


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A folder with a small table, and public rows to test on."""
    monkeypatch.setattr(recipes, "STEPS", {"classification": 60, "regression": 60, "vi": 60})
    rng = np.random.default_rng(0)
    for name, rows in (("private", 120), ("test", 30)):
        x = rng.uniform(-1, 1, (rows, 2))
        cells = {"a": x[:, 0], "b": x[:, 1], "number": 0.5 * x[:, 0] + 0.1 * rng.normal(size=rows)}
        cells["flag"] = np.where(x[:, 0] > 0, "yes", "no").astype(object)
        write_table(Table(cells), tmp_path / f"{name}.csv")
    numbers = (Number("a", -1, 1), Number("b", -1, 1))
    for target in (Flag("flag"), Number("number", -1, 1)):
        schema = Schema((*numbers, target), dataset="small", records=120, target=target.name)
        (tmp_path / f"{target.name}.toml").write_text(schema_text(schema))
    return tmp_path


class Trial:
    def __init__(self, tacit, folder: Path, target: str, shared: bool, name: str) -> None:
        self.tacit, self.folder, self.shared = tacit, folder, shared
        self.out = folder / f"run-{name}"
        self.private = folder / "private.csv"
        self.ledger = folder / f"shared-{name}.jsonl" if shared else self.out / "ledger.jsonl"
        budget = ("--budget", self.ledger, "--budget-epsilon", TOTAL) if shared else ()
        self.arguments = (self.private, "--schema", folder / f"{target}.toml", "--epsilon", BUDGET, "--public-test",
                          folder / "test.csv", "--out", self.out, *budget)  # fmt: skip

    def start(self, disk: MortalDisk) -> None:
        with using(disk):
            code, _, err = self.tacit("train", *self.arguments)
            assert code == 0, err

    def go_on(self, disk: MortalDisk) -> None:
        """With what a user has at hand: the table and the folder. Without a ledger nothing was charged."""
        if not (self.ledger.exists() and (self.out / "run.json").exists()):
            self.start(disk)
            return
        with using(disk):
            code, _, err = self.tacit("train", self.private, "--resume", "--out", self.out)
            assert code == 0, err

    def check(self) -> dict:
        """The run says that it is finished, can be released, and predicts."""
        done = release_run(self.out, self.out.with_suffix(".bundle"))
        assert done.statement.best.epsilon <= (TOTAL if self.shared else BUDGET)
        check_bundle(done.path)
        said = self.folder / f"{self.out.name}.csv"
        code, _, err = self.tacit("predict", self.out, self.folder / "test.csv", "--out", said)
        assert code == 0, err
        assert json.loads((self.out / "evaluation.json").read_text())["records"] == 30
        assert not (self.out / "checkpoint.safetensors").exists()
        assert self.tacit("train", self.private, "--resume", "--out", self.out)[0] == 2
        return json.loads((self.out / "run.json").read_text())


def stop_everywhere(tacit, folder: Path, target: str, shared: bool, some) -> None:
    whole = Trial(tacit, folder, target, shared, "whole")
    disk = MortalDisk()
    whole.start(disk)
    assert whole.check()["steps"] == 60
    for last in some(len(disk.calls)):
        trial = Trial(tacit, folder, target, shared, str(last))
        with pytest.raises(Killed):
            trial.start(MortalDisk(last))
        if trial.out.joinpath("artefacts.json").exists():  # only the folder's name was still to be synced
            assert disk.calls[last - 1 :] == ["sync_folder"]
            continue
        trial.go_on(MortalDisk())
        facts = trial.check()
        assert facts["steps"] >= 20, last  # what is lost is at most a block and, of a shared ledger, a histogram
        assert (facts["steps"] < 60) == any("the budget ended" in word for word in facts["warnings"])
        lost = any("histogram" in word for word in facts["warnings"])
        assert (facts["spread"] is None) == (target == "flag" or lost)


KINDS = [("flag", False), ("number", False), ("flag", True), ("number", True)]


@pytest.mark.parametrize(("target", "shared"), KINDS)
def test_a_run_stopped_at_some_of_its_writes_is_completed(tacit, table, target, shared):
    """Some of all, and more of the end: residuals, posterior, evaluation, manifest."""
    stop_everywhere(
        tacit, table, target, shared, lambda calls: [*range(2, calls - 30, 30), *range(calls - 30, calls + 1, 6)]
    )


@pytest.mark.slow
@pytest.mark.parametrize(("target", "shared"), KINDS)
def test_a_run_stopped_at_any_of_its_writes_is_completed(tacit, table, target, shared):
    stop_everywhere(tacit, table, target, shared, lambda calls: range(1, calls + 1))


@pytest.mark.parametrize("shared", [False, True])
def test_a_stop_while_residuals_are_computed_loses_and_costs_nothing(tacit, table, shared, monkeypatch):
    from tacit.runs import fit

    def killed(*given, **options):
        raise Killed

    trial = Trial(tacit, table, "number", shared, "residuals")
    with monkeypatch.context() as patched:
        patched.setattr(sys.modules[fit.__module__], "predict", killed)
        with pytest.raises(Killed):
            trial.start(MortalDisk())
    trial.go_on(MortalDisk())
    facts = trial.check()
    assert (facts["steps"], facts["spread"] is not None) == (60, True)
    assert read_ledger(trial.ledger).steps == 61


@pytest.mark.parametrize("target", ["flag", "number"])
def test_a_run_stopped_again_and_again_ends_in_a_model(tacit, table, target):
    """Each stop loses a block that was paid for, until the budget is used up; what was learned is kept."""
    trial = Trial(tacit, table, target, False, "often")
    disk = MortalDisk()
    Trial(tacit, table, target, False, "whole").start(disk)
    with pytest.raises(Killed):
        trial.start(MortalDisk(len(disk.calls) // 2))
    for _ in range(6):
        try:
            trial.go_on(MortalDisk(22))
        except Killed:
            continue
    trial.go_on(MortalDisk())
    assert trial.check()["steps"] < 60
    assert read_ledger(trial.out).steps <= 61
