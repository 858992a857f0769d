"""The rows that paper B's table takes from CIFAR-10: every one is measured, and within its budget."""

import json
from importlib.util import find_spec

import pytest

from tacit.commands.app import run
from tacit.features import pretrained
from tacit.reproduction import find_papers

PAPERS = find_papers()


@pytest.mark.slow
@pytest.mark.skipif(find_spec(pretrained.PACKAGE) is None, reason="the weights are not installed")
def test_every_row_is_measured(data_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_DATA", str(data_folder))
    monkeypatch.setenv("TACIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(PAPERS))
    folder, name = tmp_path / "papers" / "part", "CIFAR-10, SGD, epsilon 1"
    folder.mkdir(parents=True)
    (folder / "table_1.py").write_text("from bayesian_dp.cifar10_rows import cifar10_rows as reproduce\n")
    rows = {f"{name}: DP epsilon": {"at_most": 1.0, "quick": True}}
    (folder / "expected.json").write_text(json.dumps({"table-1": {"title": "t", "minutes": 1, "rows": rows}}))
    asked = ["reproduce", "part/table-1", "--quick", "--papers", str(folder.parent), "--out", str(tmp_path / "out")]
    assert run(asked) == 0
    found = {row["row"]: row["ours"] for row in json.loads((tmp_path / "out" / "results.json").read_text())["results"]}
    for measured in ("accuracy", "ECE", "P(A) by DP", "Bayesian epsilon, sound"):
        assert f"{name}: {measured}" in found
    assert found[f"{name}: epsilon of 90 % of people"] <= found[f"{name}: DP epsilon"] <= 1.0
