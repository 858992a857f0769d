"""``tacit regress`` and ``tacit summary``: a real run's folder, any level, and nothing charged for a mistake."""

import json

import numpy as np
import pytest

from tacit.commands.app import run
from tacit.ledger import read_ledger

SCHEMA = """
dataset = "patients"
records = 4000
target = "ill"
[[columns]]
name = "age"
kind = "number"
low = 20
high = 80
[[columns]]
name = "drug"
kind = "flag"
[[columns]]
name = "ill"
kind = "flag"
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("regress")
    chance = np.random.default_rng(0)
    age, drug = chance.uniform(20, 80, 4000), chance.integers(0, 2, 4000)
    ill = chance.random(4000) < 1 / (1 + np.exp(-(0.03 * (age - 50) - 0.6 * drug)))
    lines = [f"{a:.1f},{'yes' if d else 'no'},{'yes' if i else 'no'}" for a, d, i in zip(age, drug, ill, strict=True)]
    (folder / "t.csv").write_text("age,drug,ill\n" + "\n".join(lines) + "\n")
    (folder / "s.toml").write_text(SCHEMA)
    return folder


def command(files, out, *more):
    return [
        "regress",
        str(files / "t.csv"),
        "--schema",
        str(files / "s.toml"),
        "--epsilon",
        "2",
        "--out",
        str(out),
        *more,
    ]


@pytest.fixture(scope="module")
def finished(files):
    assert run(command(files, files / "run", "--contrast", "drug=yes - drug=no")) == 0
    return files / "run"


def test_json_has_coefficients_and_guarantees(files, tmp_path, capsys):
    assert run(command(files, tmp_path / "run", "--json", "--level", ".9")) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in found["coefficients"]] == ["(intercept)", "age", "drug = yes"]
    for row in found["coefficients"]:
        assert row["low"] < row["estimate"] < row["high"]
        assert row["level"] == 0.9
    assert min(one["epsilon"] for one in found["guarantees"] if one.get("is_bound")) <= 2


def test_the_folder_is_a_run_that_other_commands_read(finished, tmp_path, capsys):
    assert {path.name for path in finished.iterdir()} >= {
        "artefacts.json", "ledger.jsonl", "posterior.safetensors", "run.json",
    }  # fmt: skip
    for words in (["account", finished], ["report", finished], ["release", finished, "--out", tmp_path / "out"],
                  ["release", "--check", tmp_path / "out"], ["ledger", "verify", finished]):  # fmt: skip
        assert run([str(word) for word in words]) == 0, words
    page = (finished / "report.html").read_text()
    assert "What are the effects?" in page
    assert "drug = yes" in page
    assert 'class="line strong"' in page
    assert run(["predict", str(finished), str(finished.parent / "t.csv"), "--out", str(tmp_path / "p.csv")]) == 2
    assert "tacit summary" in capsys.readouterr().err


def test_summary_gives_any_level_and_format(finished, capsys):
    widths = []
    for level in (".5", ".95"):
        assert run(["summary", str(finished), "--json", "--level", level]) == 0
        row = json.loads(capsys.readouterr().out)["coefficients"][1]
        widths.append(row["high"] - row["low"])
    assert widths[1] / widths[0] == pytest.approx(1.96 / 0.674, rel=0.05)
    for form, mark in (("text", "odds ratio"), ("markdown", "| age |"), ("latex", "\\begin{tabular}")):
        assert run(["summary", str(finished), "--format", form, "--contrast", "drug=no - drug=yes"]) == 0
        assert mark in capsys.readouterr().out


def test_a_changed_folder_is_refused(finished, tmp_path, capsys):
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in finished.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    (copy / "run.json").write_text((copy / "run.json").read_text().replace("0.", "1."))
    assert run(["summary", str(copy)]) == 2
    assert "not what the run wrote" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--outcome", "nothing"], "no column 'nothing'"),
        (["--family", "poisson"], "does not fit the family"),
        (["--level", "1.5"], "level must lie"),
        (["--contrast", "drug=maybe - drug=no"], "no coefficient"),
        (["--prior", "gaussian:-1"], "a prior is flat"),
        (["--interaction", "age:height"], "must be two columns"),
        (["--delta", "0.5"], "delta"),
        (["--epsilon", "-1"], "epsilon must be"),
        (["--assume-spread", "0"], "assume_spread must lie in (0, 1]"),
        (["--assume-spread", "1.2"], "assume_spread must lie in (0, 1]"),
        (["--assume-spread", "much"], "'--assume-spread'"),
    ],
)
def test_a_mistake_is_one_line_and_costs_nothing(files, tmp_path, capsys, more, message):
    out = tmp_path / "run"
    assert run(command(files, out, *more)) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not out.exists()


def test_a_declared_spread_is_said_wherever_intervals_are(files, tmp_path, capsys):
    """In the terminal, JSON, summary, run.json, report and statement; and nothing of it without a declaration."""
    out, sentence = tmp_path / "run", "of the standardised covariates keeps at least 0.5 of the variance"
    assert run(command(files, out, "--assume-spread", "0.5")) == 0
    assert f"Assumed: intervals hold if any weighted sum {sentence}" in " ".join(capsys.readouterr().out.split())
    assert run(["summary", str(out), "--json"]) == 0
    assert sentence in json.loads(capsys.readouterr().out)["assumptions"][0]
    facts = json.loads((out / "run.json").read_text())["regression"]
    assert (facts["assume_spread"], facts["dropped"]) == (0.5, "")
    assert run(["report", str(out)]) == 0
    assert sentence in (out / "report.html").read_text()
    assert run(["release", str(out), "--out", str(tmp_path / "bundle")]) == 0
    assert run(["release", "--check", str(tmp_path / "bundle")]) == 0
    statement = json.loads((tmp_path / "bundle" / "statement.json").read_text())
    assert any(sentence in said and "privacy does not rest on it" in said for said in statement["assumptions"])
    assert min(one["epsilon"] for one in statement["accountants"] if one.get("is_bound")) <= 2


def test_a_schema_declares_a_spread_for_all_its_columns(files, tmp_path, capsys):
    schema = tmp_path / "s.toml"
    schema.write_text("assume_spread = 0.4" + SCHEMA)
    given = ["--schema", str(schema), "--json"]
    assert run(command(files, tmp_path / "run", *given)) == 0
    assert "keeps at least 0.4" in json.loads(capsys.readouterr().out)["assumptions"][0]
    assert run(command(files, tmp_path / "products", *given, "--interaction", "age:drug")) == 2
    assert "says nothing of products" in capsys.readouterr().err
    schema.write_text("assume_spread = 4" + SCHEMA)
    assert run(command(files, tmp_path / "wrong", *given)) == 2
    assert "assume_spread must lie in (0, 1]" in capsys.readouterr().err
    assert not (tmp_path / "wrong").exists()


def test_a_registry_remembers_the_run(files, tmp_path, capsys):
    registry = tmp_path / "all.registry"
    assert run(command(files, tmp_path / "run", "--registry", str(registry))) == 0
    capsys.readouterr()
    assert run(["account", "--registry", str(registry), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["runs"]
    assert row["state"] == "closed"


def test_a_budget_is_shared_with_other_runs(files, tmp_path, capsys):
    """With a model and another regression; what is left cannot pay for a third, which leaves nothing behind."""
    ledger = tmp_path / "all.jsonl"
    shared = ["--budget", str(ledger)]
    assert run(command(files, tmp_path / "none", *shared)) == 2
    assert "--budget-epsilon 4" in capsys.readouterr().err
    model = ["train", str(files / "t.csv"), "--schema", str(files / "s.toml"), "--epsilon", "1", "--method", "sgd"]
    assert run([*model, *shared, "--budget-epsilon", "2.7", "--out", str(tmp_path / "model"), "--json"]) == 0
    charged = read_ledger(ledger).steps
    assert run(command(files, tmp_path / "one", *shared)) == 0
    capsys.readouterr()
    assert read_ledger(ledger).steps == charged + 20
    for words in (["release", tmp_path / "one", "--out", tmp_path / "out"], ["release", "--check", tmp_path / "out"],
                  ["summary", tmp_path / "one"], ["report", tmp_path / "one"]):  # fmt: skip
        assert run([str(word) for word in words]) == 0, words
    assert json.loads((tmp_path / "out" / "run.json").read_text())["shared_ledger"] == "all.jsonl"
    capsys.readouterr()
    assert run(command(files, tmp_path / "two", *shared)) == 2
    assert "would exceed the budget" in capsys.readouterr().err
    assert run(command(files, tmp_path / "two", *shared, "--delta", "1e-7")) == 2
    assert not (tmp_path / "two").exists()
    assert read_ledger(ledger).steps == charged + 20


def test_whole_people_are_protected(files, tmp_path, capsys):
    lines = (files / "t.csv").read_text().splitlines()
    owned = [f"{lines[0]},who", *(f"{line},p{number // 3}" for number, line in enumerate(lines[1:]))]
    (tmp_path / "t.csv").write_text("\n".join(owned) + "\n")
    schema = SCHEMA.replace("records = 4000", 'users = 1334\nunit = "who"')
    (tmp_path / "s.toml").write_text(schema)
    out = tmp_path / "run"
    assert run(command(tmp_path, out, "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert {one["unit"] for one in found["guarantees"] if one.get("is_bound")} == {"user"}
    assert [row["name"] for row in found["coefficients"]] == ["(intercept)", "age", "drug = yes"]
    facts = json.loads((out / "run.json").read_text())
    assert (facts["unit"], facts["n_records"]) == ("user", 1334)
    for words in (["release", out, "--out", tmp_path / "out"], ["release", "--check", tmp_path / "out"],
                  ["summary", out], ["report", out]):  # fmt: skip
        assert run([str(word) for word in words]) == 0, words


def test_power_is_planned_without_data(capsys):
    assert (
        run(["regress", "--plan", "--rows", "2000", "--columns", "3", "--epsilon", "1", "--effect", ".5", "--json"])
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["width"] > found["width_without_privacy"]
    assert 0 < found["epsilon_for_wanted_power"] < 3
    assert run(["regress", "--plan", "--rows", "2000"]) == 2


def test_another_run_has_no_coefficients(tmp_path, files, capsys):
    out = tmp_path / "model"
    given = ["train", str(files / "t.csv"), "--schema", str(files / "s.toml"), "--epsilon", "1", "--out", str(out)]
    assert run([*given, "--method", "sgd", "--json"]) == 0
    capsys.readouterr()
    assert run(["summary", str(out)]) == 0
    assert "no coefficients" in capsys.readouterr().out


def test_a_shared_ledger_that_a_full_disk_left_empty_can_be_opened(files, tmp_path):
    (tmp_path / "all.jsonl").touch()
    shared = ["--budget", str(tmp_path / "all.jsonl"), "--budget-epsilon", "2"]
    assert run(command(files, tmp_path / "one", *shared)) == 0
