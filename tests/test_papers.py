"""The papers' tables and figures: every item has its script, and the quick ones hold."""

import ast
import importlib
import json

import pytest
import torch

from tacit.commands.app import run
from tacit.data.files import has_data
from tacit.errors import InputError
from tacit.reproduction import Expectation, Verdict, find_papers, read_items

PAPERS = find_papers()
ITEMS = read_items(PAPERS)


@pytest.mark.parametrize("item", ITEMS.values(), ids=list(ITEMS))
def test_an_item_has_a_script_and_rows(item):
    assert item.script.is_file()
    assert item.rows
    assert all(row.paper is None or row.holds(row.paper) or row.why for row in item.rows.values())


def test_scripts_do_not_know_what_is_expected():
    for script in PAPERS.rglob("*.py"):
        assert "expected.json" not in script.read_text()


def test_scripts_use_public_parts_only():
    for script in PAPERS.rglob("*.py"):
        for node in ast.walk(ast.parse(script.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            assert not any(name.startswith("_") for name in names), script


def test_adult_columns_are_chosen_for_each_record_on_its_own(monkeypatch):
    monkeypatch.syspath_prepend(str(PAPERS))
    rows = importlib.import_module("bayesian_dp.adult_rows")
    inputs = torch.rand(5, sum(rows.WIDTHS.values()), generator=torch.Generator().manual_seed(1)) + 0.1
    found = rows.reshaped(inputs)
    torch.testing.assert_close(found.norm(dim=1), torch.ones(5))
    torch.testing.assert_close(found[2:3], rows.reshaped(inputs[2:3]))
    torch.testing.assert_close(found, rows.reshaped(3 * inputs))
    left = sum(rows.WIDTHS[name] for name in rows.LEFT_OUT) + 2  # the two bins of no gain and no loss
    assert found.shape == (5, inputs.shape[1] - left)


SLOW = {"bayesian_dp/figure-1", "dp_bnn/figures-5-6-7", "dp_bnn/table-4", "dp_bnn/table-4-mlp", "dp_sgmcmc/figure-2"}


@pytest.mark.parametrize("key", [pytest.param(key, marks=[pytest.mark.slow] if key in SLOW else []) for key in ITEMS])
def test_a_quick_run_holds(key, tmp_path):
    lacking = [name for name in ITEMS[key].needs if not has_data(name)]
    if lacking:
        pytest.skip(f"TACIT_DATA does not hold {', '.join(lacking)}")
    assert run(["reproduce", key, "--quick", "--out", str(tmp_path)]) == 0


def test_the_lambda_figure_is_reproduced_and_kept(tmp_path, capsys):
    assert run(["reproduce", "bayesian_dp/figure-5", "--quick", "--out", str(tmp_path)]) == 0
    assert "as expected" in capsys.readouterr().out
    kept = json.loads((tmp_path / "results.json").read_text())
    assert len(kept["results"]) == len(ITEMS["bayesian_dp/figure-5"].rows)
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_a_wrong_value_is_said_to_be_wrong(tmp_path):
    folder = tmp_path / "papers" / "made_up"
    folder.mkdir(parents=True)
    (folder / "table_1.py").write_text("def reproduce(work):\n    work.measure('a', 2.0)\n")
    rows = {"a": {"paper": 1.0, "expected": 1.0, "tolerance": 0.1}, "b": {"expected": 0.0}}
    (folder / "expected.json").write_text(json.dumps({"table-1": {"title": "t", "minutes": 1, "rows": rows}}))
    asked = ["reproduce", "made_up/table-1", "--papers", str(folder.parent), "--out", str(tmp_path / "out")]
    assert run(asked) == 1
    assert json.loads((tmp_path / "out" / "results.json").read_text())["missing"] == ["b"]


def test_a_paper_is_all_its_items_and_rows_are_told_as_they_come(tmp_path, capsys):
    folder = tmp_path / "papers" / "made_up"
    folder.mkdir(parents=True)
    items = {}
    for name, value in (("table-1", 2.0), ("figure-1", 3.0)):
        (folder / f"{name.replace('-', '_')}.py").write_text(f"def reproduce(work):\n    work.measure('a', {value})\n")
        items[name] = {"title": "t", "minutes": 1, "rows": {"a": {"at_least": 2.5}}}
    (folder / "expected.json").write_text(json.dumps(items))
    place = ["--papers", str(folder.parent), "--out", str(tmp_path / "out")]
    assert run(["reproduce", "made_up", *place]) == 1  # as the first table is not as expected
    shown = capsys.readouterr().out
    assert shown.index("  a: 2\n") < shown.index("made_up/table-1: t") < shown.index("  a: 3\n")
    assert {path.parent.name for path in (tmp_path / "out").rglob("results.json")} == {"table-1", "figure-1"}
    assert run(["reproduce", "made_up", *place, "--json"]) == 1
    made = json.loads(capsys.readouterr().out)["items"]
    assert [item["item"] for item in made] == [f"made_up/{name}" for name in items]


def test_a_resumed_try_keeps_rows_of_its_seed_and_measures_the_others(tmp_path):
    folder = tmp_path / "papers" / "made_up"
    folder.mkdir(parents=True)
    script = "import time\ndef reproduce(work):\n    for row in 'ab':\n        if work.lacks(row):\n"
    (folder / "table_1.py").write_text(script + "            work.measure(row, time.monotonic_ns())\n")
    rows = {"a": {"at_least": 0}, "b": {"at_least": 0}}
    (folder / "expected.json").write_text(json.dumps({"table-1": {"title": "t", "minutes": 1, "rows": rows}}))

    def values(*options: str) -> dict[str, float]:
        place = ["--papers", str(folder.parent), "--out", str(tmp_path / "out")]
        assert run(["reproduce", "made_up/table-1", *place, *options]) == 0
        kept = json.loads((tmp_path / "out" / "results.json").read_text())
        return {result["row"]: result["ours"] for result in kept["results"]}

    first = values("--only", "a")
    second = values("--resume")
    assert second["a"] == first["a"]
    assert set(second) == {"a", "b"}
    assert values("--resume", "--seed", "1")["a"] > second["b"]
    assert values()["a"] > second["b"]


@pytest.mark.parametrize(
    ("row", "value", "verdict"),
    [
        (Expectation(paper=1.0, expected=1.0, tolerance=0.1), 1.05, Verdict.REPRODUCED),
        (Expectation(paper=2.0, expected=1.0, tolerance=0.1), 1.05, Verdict.DIFFERS),
        (Expectation(expected=1.0, tolerance=0.1), 1.05, Verdict.AS_EXPECTED),
        (Expectation(at_least=1.0), 0.5, Verdict.NOT_AS_EXPECTED),
        (Expectation(at_most=1.0), float("nan"), Verdict.NOT_AS_EXPECTED),
        (Expectation(), 3.0, Verdict.SHOWN),
    ],
)
def test_verdicts(row, value, verdict):
    assert row.judge(value) is verdict


@pytest.mark.parametrize("asked", [["nothing/here"], ["figure-5"], ["bayesian_dp/figure-5", "--papers", "nowhere"]])
def test_an_unknown_item_is_one_line(asked, capsys):
    assert run(["reproduce", *asked]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_item_without_its_data_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("TACIT_DATA", raising=False)
    needy = [key for key, item in ITEMS.items() if item.needs]
    if not needy:
        pytest.skip("no item needs data yet")
    assert run(["reproduce", needy[0], "--out", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()


def test_all_results_become_one_document_that_says_what_was_not_run(tmp_path, capsys):
    assert run(["reproduce", "bayesian_dp/figure-5", "--out", str(tmp_path / "figure-5")]) == 0
    capsys.readouterr()
    assert run(["reproduce", "--table", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "| C = 1, lambda 8 |  | 1.529 |" in shown
    assert shown.count("Not run in full") == len(ITEMS) - 1
    assert run(["reproduce", "--table", str(tmp_path / "nowhere")]) == 2


def test_the_document_names_few_of_many_missing_rows_and_says_each_note_once(tmp_path, capsys):
    folder = tmp_path / "papers" / "made_up"
    folder.mkdir(parents=True)
    noted = "    work.note(f'run {work.only[0]}: few probes')\n    work.note('one core')\n"
    (folder / "table_1.py").write_text("def reproduce(work):\n    work.measure(work.only[0], 1.0)\n" + noted)
    rows = {name: {"at_least": 0} for name in ("a", "b", "c", "d", "e", "f")}
    (folder / "expected.json").write_text(json.dumps({"table-1": {"title": "t", "minutes": 1, "rows": rows}}))
    place = ["--papers", str(folder.parent)]

    def document(*measured: str) -> str:
        for row in measured:
            asked = ["made_up/table-1", *place, "--only", row, "--resume", "--out", str(tmp_path / "out")]
            assert run(["reproduce", *asked]) == 0
        capsys.readouterr()
        assert run(["reproduce", "--table", str(tmp_path / "out"), *place]) == 0
        return capsys.readouterr().out

    assert "Not measured: 4 rows, the first of them b; c; d." in document("a", "f")
    shown = document("c")
    assert "Not measured: b; d; e." in shown
    assert [line[2] for line in shown.splitlines() if line.startswith("| ") and line[3] == " "] == ["a", "c", "f"]
    assert shown.endswith("\n\n- run a; run f; run c: few probes\n- one core\n")
    shown = document("b", "d", "e")
    assert "Not measured" not in shown
    assert "- 6 rows: few probes\n" in shown


def test_the_list_names_every_item(capsys):
    assert run(["reproduce", "--list"]) == 0
    shown = capsys.readouterr().out
    assert all(item.name in shown for item in ITEMS.values())


def test_papers_are_found_or_asked_for(tmp_path):
    assert (find_papers() / "bayesian_dp" / "expected.json").is_file()
    with pytest.raises(InputError, match="each paper is a folder"):
        find_papers(tmp_path)


def test_no_data_set_name_is_made_up():
    known = {"mnist", "fashion-mnist", "cifar10", "svhn", "adult", "abalone"}
    assert all(set(item.needs) <= known for item in ITEMS.values())
