"""The rows that paper B's table takes from CIFAR-10: every one is measured, and within its budget."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tacit.commands.app import run
from tacit.features import pretrained

PAPERS = Path(__file__).parents[2] / "papers"


@pytest.mark.slow
@pytest.mark.skipif(find_spec(pretrained.PACKAGE) is None, reason="the weights are not installed")
def test_every_row_is_measured(data_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_DATA", str(data_folder))
    monkeypatch.setenv("TACIT_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "papers" / "part"
    folder.mkdir(parents=True)
    (folder / "cifar10_rows.py").write_text((PAPERS / "bayesian_dp" / "cifar10_rows.py").read_text())
    (folder / "table_1.py").write_text("from cifar10_rows import cifar10_rows as reproduce\n")
    rows = {"CIFAR-10: DP epsilon": {"at_most": 1.0, "quick": True}}
    (folder / "expected.json").write_text(json.dumps({"table-1": {"title": "t", "minutes": 1, "rows": rows}}))
    asked = ["reproduce", "part/table-1", "--quick", "--papers", str(folder.parent), "--out", str(tmp_path / "out")]
    assert run(asked) == 0
    found = {row["row"]: row["ours"] for row in json.loads((tmp_path / "out" / "results.json").read_text())["results"]}
    assert len(found) == 7
    assert found["CIFAR-10: epsilon of 90 % of people"] <= found["CIFAR-10: DP epsilon"] <= 1.0
