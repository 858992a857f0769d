"""Whatever goes wrong ends in one line and an exit code; what a name or a file holds is shown, never obeyed."""

import csv
import errno
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from reliability.small_table import SmallTable, short_runs
from reliability.small_table import tacit as typed
from tacit.commands import app
from tacit.commands.predict import write_columns
from tacit.errors import InputError, StorageError
from tacit.ledger import Charge, LedgerFile, LedgerHeader, read_ledger
from tacit.posteriors import Point
from tacit.release import write_manifest
from tacit.storage.files import write_new_file
from tacit.tables import Flag, Number, Schema, schema_text

MARKUP = "[/b] [bold]x[/] :smile: [link=y] $\\frac$"


@pytest.fixture
def run(tmp_path, event):
    """A run whose data set and folder are named to be mistaken for markup."""
    folder = tmp_path / "a [/b] folder"
    with LedgerFile(folder / "ledger.jsonl", LedgerHeader(dataset=MARKUP, dataset_size=1000, delta=1e-5, epsilon=9.0,
                                                         assumptions=(MARKUP,))) as file:  # fmt: skip
        file.reserve([Charge(event, 10)])
    Point({"w": torch.ones(2)}).save(folder / "posterior.safetensors")
    write_manifest(folder, ["posterior.safetensors"])
    return folder


def test_names_are_printed_as_they_are(tacit, run, tmp_path):
    (tmp_path / "bundle [").mkdir()
    for command in (
        ("account", run),
        ("account", run, "--plot", tmp_path / "p.svg"),
        ("ledger", "show", run),
        ("ledger", "verify", run),
        ("report", run, "--format", "md"),
        ("release", run, "--out", tmp_path / "bundle [/b]"),
        ("release", "--check", tmp_path / "bundle [/b]"),
    ):
        code, out, err = tacit(*command)
        assert code == 0, (command, err)
        if command[0] in ("account", "ledger") and command[1] != "verify":
            assert "[/b]" in out, command
    code, _, err = tacit("account", tmp_path / "[/nothing]")
    assert (code, "[/nothing]" in err, err.count("\n")) == (2, True, 1)


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (InputError("a\nb \x1b[2J c"), 2, "tacit: a b \ufffd[2J c\n"),
        (OSError(errno.ENOSPC, "No space left on device", "f.csv"), 1, "tacit: f.csv: No space left on device\n"),
        (StorageError("f cannot be written"), 2, "tacit: f cannot be written\n"),
        (MemoryError(), 1, "tacit: there is not enough memory for this\n"),
        (ZeroDivisionError("division"), 1, "tacit: ZeroDivisionError: division (unexpected"),
        (RecursionError("deep\n"), 1, "tacit: RecursionError: deep (unexpected"),
    ],
)
def test_every_error_is_one_line(tacit, monkeypatch, error, code, says):
    def fails(*given, **options):
        raise error

    monkeypatch.setattr(app, "app", fails)
    found, out, err = tacit("account")
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert err.startswith(says)
    assert "Traceback" in tacit("--debug", "account")[2]


def test_debug_belongs_to_every_command(tacit, run):
    assert tacit("--debug", "ledger", "verify", run)[0] == 0
    code, _, err = tacit("--debug", "account", run / "nothing")
    assert (code, "Traceback" in err, err.splitlines()[-1].startswith("tacit: ")) == (2, True, True)


def test_a_full_disk_leaves_nothing(tacit, run, tmp_path, monkeypatch):
    (tmp_path / "t.csv").write_text("x,y\n1,2\n")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    for command in (
        ("schema", tmp_path / "t.csv", "--out", tmp_path / "s.toml"),
        ("account", run, "--plot", tmp_path / "p.png"),
        ("release", run, "--out", tmp_path / "bundle"),
    ):
        code, _, err = tacit(*command)
        assert (code, err.count("\n"), "No space left" in err) == (2, 1, True), (command, err)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before, command


@pytest.mark.parametrize("ending", ["csv", "tsv", "npz", "parquet"])
def test_columns_never_replace_a_file(tmp_path, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"p.{ending}"
    path.write_text("mine")
    with pytest.raises(InputError, match="not overwritten"):
        write_columns({"a": np.ones(2)}, path)
    link = tmp_path / f"link.{ending}"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="not overwritten"):
        write_columns({"a": np.ones(2)}, link)
    assert path.read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()


def test_a_read_only_folder_is_said(tmp_path):
    with pytest.raises(StorageError, match="cannot be written"):
        write_new_file(tmp_path / "missing" / "f", b"x")


def test_no_spreadsheet_runs_a_cell(tmp_path):
    texts = ["=1+1", "+1", "-1", "@x", "\tx", "\rx", "plain", "a=b"]
    write_columns({"=name": np.array(texts, dtype=object), "n": -np.ones(8)}, tmp_path / "p.csv")
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["'=name", "n"]
    assert [row[0] for row in rows[1:]] == [f"'{text}" for text in texts[:6]] + texts[6:]
    assert {row[1] for row in rows[1:]} == {"-1"}  # a number is no text


@pytest.mark.slow  # it compiles the kernels anew
@pytest.mark.skipif(os.getuid() != 0, reason="takes on another user")
def test_a_user_that_the_machine_does_not_know():
    """No HOME and no entry for the uid, as in many containers: a run once ended after its first charged block."""
    code = "import sys; from tacit.commands.app import run; sys.exit(run(sys.argv[1:]))"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as place:
        os.chown(place, 54321, 54321)
        rows = "".join(f"{number / 50},{'yes' if number > 25 else 'no'}\n" for number in range(50))
        Path(place, "t.csv").write_text("x,y\n" + rows)
        schema = Schema((Number("x", 0, 1), Flag("y")), dataset="small", records=50, target="y")
        Path(place, "s.toml").write_text(schema_text(schema))
        done = subprocess.run(
            [sys.executable, "-c", code, "train", "t.csv", "--schema", "s.toml", "--epsilon", "1", "--out", "run"],
            env=environment, user=54321, group=54321, extra_groups=[], capture_output=True, text=True, check=False,
            cwd=place,
        )  # fmt: skip
        if "No module named" in done.stderr or "Permission denied" in done.stderr:
            pytest.skip("the other user may not read the interpreter or its packages")
        assert done.returncode == 0, done.stderr
        assert read_ledger(Path(place, "run")).steps == 300


@pytest.mark.parametrize(
    "change",
    [{"steps": "x"}, {"seconds": []}, {"public_test": 3}, {"spread": {"stddevs": [1.0], "weights": "x"}},
     {"spread": {"stddevs": [0.0], "weights": [1.0]}}, {"spread_begun": 1}],
)  # fmt: skip
def test_facts_of_another_kind_are_refused(tmp_path, change):
    """run.json changed by hand, its manifest made anew: one line, whatever reads it."""
    with short_runs():
        table = SmallTable.write(tmp_path / "table")
        assert typed(*table.train("flag", tmp_path / "run")).code == 0
        facts = json.loads((tmp_path / "run" / "run.json").read_text())
        (tmp_path / "run" / "run.json").write_text(json.dumps({**facts, **change}))
        write_manifest(tmp_path / "run", ["run.json", "posterior.safetensors", "evaluation.json"])
        said = typed("predict", tmp_path / "run", table.test, "--out", tmp_path / "p.csv")
    assert (said.code, said.fault) == (2, "")
