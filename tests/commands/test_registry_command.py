"""Runs that enter themselves in a registry by the command line, and what they cost together."""

import json
import shutil

import pytest

from tacit.accountants import guarantees
from tacit.commands.demo.breast_cancer import patients_schema, split, write_table
from tacit.ledger import joined, read_ledger
from tacit.release import release_run
from tacit.tables import recipes, schema_text


@pytest.fixture
def patients(tmp_path, monkeypatch):
    monkeypatch.setattr(recipes, "STEPS", {"classification": 60, "regression": 60, "vi": 60})
    write_table(split()[0], tmp_path / "patients.csv")
    (tmp_path / "schema.toml").write_text(schema_text(patients_schema()))
    return tmp_path


@pytest.fixture
def train(tacit, patients):
    def call(name, *more):
        return tacit("train", patients / "patients.csv", "--schema", patients / "schema.toml", "--epsilon", 1,
                     "--out", patients / name, "--registry", patients / "registry.jsonl", *more)  # fmt: skip

    return call


def told(tacit, patients, *more):
    code, out, err = tacit("account", "--registry", patients / "registry.jsonl", "--json", *more)
    assert code == 0, err
    return json.loads(out)


def test_every_run_is_a_row_and_the_total_composes_their_ledgers(tacit, patients, train):
    assert [train(name)[0] for name in ("one", "two")] == [0, 0]
    said = told(tacit, patients)
    assert [(run["state"], run["steps"]) for run in said["runs"]] == [("closed", 60)] * 2
    assert all(0.99 < run["epsilon"] <= 1 for run in said["runs"])
    (total,) = said["totals"]
    whole = joined([read_ledger(patients / name) for name in ("one", "two")])
    assert total["guarantees"] == [json.loads(json.dumps(result.to_json())) for result in guarantees(whole, 1e-5)]
    pld = next(row for row in total["guarantees"] if row["accountant"] == "pld")
    assert 1 < pld["epsilon"] < total["added"]["epsilon"]
    assert "later runs were fixed before" in " ".join(pld["assumptions"])
    assert "never named this registry" in said["unseen"]


def test_what_is_deleted_or_made_anew_stays_spent(tacit, patients, train):
    assert train("one")[0] == 0
    once = told(tacit, patients)["totals"]
    shutil.rmtree(patients / "one")
    gone = told(tacit, patients)
    assert ([run["state"] for run in gone["runs"]], gone["totals"][0]["steps"]) == (["missing"], once[0]["steps"])
    assert gone["totals"][0]["guarantees"][0]["epsilon"] == once[0]["guarantees"][0]["epsilon"]
    assert train("one")[0] == 0
    again = told(tacit, patients)
    assert [run["state"] for run in again["runs"]] == ["replaced", "closed"]
    assert again["totals"][0]["steps"] == 120
    _, out, _ = tacit("account", "--registry", patients / "registry.jsonl")
    assert "replaced: another run has" in out


def test_the_schema_names_it_and_going_on_remembers_it(tacit, patients, stopped):
    schema = patients / "schema.toml"
    schema.write_text('registry = "kept/registry.jsonl"\n' + schema.read_text())
    arguments = patients / "patients.csv", "--out", patients / "run"
    assert tacit("train", *arguments, "--schema", schema, "--epsilon", 1)[0] == 130
    registry = patients / "kept" / "registry.jsonl"
    rows = json.loads(tacit("account", "--registry", registry, "--json")[1])["runs"]
    assert [(row["state"], row["steps"]) for row in rows] == [("closed", 37)]
    code, _, err = tacit("train", *arguments, "--resume", "--registry", patients / "other.jsonl")
    assert (code, "cannot change" in err) == (2, True)
    assert tacit("train", *arguments, "--resume")[0] == 0
    rows = json.loads(tacit("account", "--registry", registry, "--json")[1])["runs"]
    assert [(row["state"], row["steps"]) for row in rows] == [("closed", 60)]


def test_runs_that_share_a_ledger_are_one_row(tacit, patients, train):
    shared = "--budget", patients / "all.jsonl"
    assert train("one", *shared, "--budget-epsilon", 3)[0] == 0
    assert train("two", *shared)[0] == 0
    said = told(tacit, patients)
    assert [(run["state"], run["steps"]) for run in said["runs"]] == [("closed", 120)]
    assert said["totals"][0]["added"]["epsilon"] == pytest.approx(3, rel=0.01)


def test_its_path_stays_at_home(tacit, patients, train):
    assert train("run")[0] == 0
    assert "registry.jsonl" in (patients / "run" / "run.json").read_text()
    release_run(patients / "run", patients / "bundle")
    for path in (patients / "bundle").iterdir():
        assert b"registry.jsonl" not in path.read_bytes()


@pytest.mark.parametrize("name", ["patients.csv", "schema.toml", "."])
def test_another_file_is_refused_and_nothing_is_written(tacit, patients, name):
    before = sorted(patients.iterdir()), (patients / "patients.csv").read_bytes()
    code, _, err = tacit("train", patients / "patients.csv", "--schema", patients / "schema.toml", "--epsilon", 1,
                         "--out", patients / "run", "--registry", patients / name)  # fmt: skip
    assert (code, err.count("\n")) == (2, 1)
    assert (sorted(patients.iterdir()), (patients / "patients.csv").read_bytes()) == before
    assert tacit("account", "--registry", patients / name)[0] == 2


def test_it_stands_alone(tacit, patients, train):
    assert train("one")[0] == 0
    code, _, err = tacit("account", patients / "one", "--registry", patients / "registry.jsonl")
    assert (code, "--delta and --json only" in err) == (2, True)
    code, _, err = tacit("account", "--registry", patients / "none.jsonl")
    assert (code, "no registry at" in err) == (2, True)
