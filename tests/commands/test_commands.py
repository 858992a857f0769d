"""The command-line contract: what is printed, and exit code 2 with one line on bad input."""

import json
import math

import pytest

from tacit.ledger import Charge, LedgerFile, LedgerHeader


@pytest.fixture
def ledger(tmp_path, event):
    with LedgerFile(tmp_path / "run" / "ledger.jsonl", LedgerHeader(dataset="mine", dataset_size=1000)) as file:
        file.reserve([Charge(event, 100)])
    return tmp_path / "run"


WHAT_IF = ("account", "--poisson", 256 / 60_000, "--noise", 1.3, "--steps", 3516, "--delta", 1e-5)


def test_account_says_paper_ns_numbers(tacit):
    code, out, _ = tacit(*WHAT_IF, "--json")
    found = {row["accountant"]: row for row in json.loads(out)["guarantees"]}
    assert code == 0
    assert found["pld"]["epsilon"] == pytest.approx(0.8645, abs=5e-5)
    assert found["rdp"]["epsilon"] == pytest.approx(0.955, abs=5e-4)
    assert found["gdp"]["epsilon"] == pytest.approx(0.834, abs=6e-4)
    assert [found[name]["is_bound"] for name in ("pld", "rdp", "gdp")] == [True, True, False]
    for row in found.values():
        assert (row["notion"], row["neighbours"], row["unit"]) == ("dp", "add_remove", "record")
        assert any("hypothetical" in sentence for sentence in row["assumptions"])


def test_account_replays_a_ledger(tacit, ledger):
    code, out, _ = tacit("account", ledger, "--json")
    asked = tacit("account", "--poisson", 0.01, "--noise", 1.1, "--steps", 100, "--json")[1]
    assert code == 0
    for one, other in zip(json.loads(out)["guarantees"], json.loads(asked)["guarantees"], strict=True):
        assert one["epsilon"] == other["epsilon"]
        assert not any("hypothetical" in sentence for sentence in one["assumptions"])


def test_account_as_a_table(tacit, ledger):
    code, out, _ = tacit("account", ledger, "--accountant", "rdp")
    assert code == 0
    assert "rdp" in out
    assert "pld" not in out


def test_account_draws(tacit, ledger, tmp_path):
    code, _, _ = tacit("account", ledger, "--plot", tmp_path / "privacy.svg")
    assert code == 0
    assert "<svg" in (tmp_path / "privacy.svg").read_text()


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_calibrate_never_exceeds_the_target(tacit, accountant):
    code, out, _ = tacit("calibrate", "--epsilon", 2, "--delta", 1e-5, "--poisson", 0.01, "--steps", 1000,
                         "--accountant", accountant, "--json")  # fmt: skip
    found = json.loads(out)
    assert code == 0
    assert 1.99 < found["epsilon"] <= 2
    assert found["accountant"] == accountant
    assert found["noise_multiplier"] > 0


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (("--poisson", 0.01, "--noise", 2.0), "steps"),
        (("--noise", 2.0, "--steps", 100), "probability"),
    ],
)
def test_calibrate_finds_what_is_left_out(tacit, given, found):
    code, out, _ = tacit("calibrate", "--epsilon", 1, *given, "--json")
    assert code == 0
    assert json.loads(out)[found] > 0
    assert json.loads(out)["epsilon"] <= 1


def test_calibrate_in_words(tacit):
    code, out, _ = tacit("calibrate", "--epsilon", 1, "--poisson", 0.1, "--steps", 10)
    assert code == 0
    assert "hypothetical" in " ".join(out.split())


def test_ledger_show_verify_head(tacit, ledger):
    assert json.loads(tacit("ledger", "show", ledger, "--json")[1])["steps"] == 100
    assert "poisson" in tacit("ledger", "show", ledger)[1]
    assert json.loads(tacit("ledger", "verify", ledger, "--json")[1])["ok"]
    head = json.loads(tacit("ledger", "head", ledger, "--json")[1])
    assert tacit("ledger", "head", ledger)[1].split() == [str(head["count"]), head["hash"]]


def test_a_changed_ledger_is_refused_with_its_line(tacit, ledger):
    path = ledger / "ledger.jsonl"
    path.write_text(path.read_text().replace('"steps":100', '"steps":1'))
    for command in (("account", ledger), ("ledger", "verify", ledger), ("ledger", "show", ledger)):
        code, out, err = tacit(*command)
        assert (code, out) == (2, "")
        assert "line 2" in err


BAD = [
    ("account",),
    ("account", "nowhere"),
    ("account", "--poisson", 0.1),
    ("account", "--poisson", 0, "--noise", 1, "--steps", 1),
    ("account", "--poisson", 1.5, "--noise", 1, "--steps", 1),
    ("account", "--poisson", "nan", "--noise", 1, "--steps", 1),
    ("account", "--poisson", 0.1, "--noise", 0, "--steps", 1),
    ("account", "--poisson", 0.1, "--noise", "inf", "--steps", 1),
    ("account", "--poisson", 0.1, "--noise", 1, "--steps", 0),
    ("account", "--poisson", 0.1, "--noise", 1, "--steps", 1.5),
    ("account", "--poisson", 0.1, "--noise", 1, "--steps", 1, "--delta", 0),
    ("account", "--poisson", 0.1, "--noise", 1, "--steps", 1, "--delta", 1),
    ("account", "--poisson", 0.1, "--noise", 1, "--steps", 1, "--delta", "nan"),
    ("account", "--poisson", 0.1, "--noise", 1, "--steps", 1, "--delta", 0.01, "--dataset-size", 100),
    ("account", "--poisson", 0.1, "--noise", 1, "--steps", 1, "--accountant", "psychic"),
    ("account", "--poisson", 0.1, "--noise", 1, "--steps", 1, "--plot", "picture.gif"),
    ("account", "--poisson", 0.1, "--noise", 1, "--steps", 1, "--plot", "nowhere/picture.png"),
    ("account", "--poisson", 0.1, "--noise", 1, "--steps", 1, "--bayesian"),
    ("account", "nowhere", "--bayesian"),
    ("calibrate",),
    ("calibrate", "--epsilon", 1),
    ("calibrate", "--epsilon", 0, "--poisson", 0.1, "--steps", 10),
    ("calibrate", "--epsilon", -1, "--poisson", 0.1, "--steps", 10),
    ("calibrate", "--epsilon", "nan", "--poisson", 0.1, "--steps", 10),
    ("calibrate", "--epsilon", 1, "--poisson", 0.1, "--steps", 10, "--noise", 1),
    ("calibrate", "--epsilon", 1, "--poisson", 0.1, "--steps", 10, "--delta", 2),
    ("calibrate", "--epsilon", 1, "--poisson", 0.1, "--steps", 10, "--accountant", "gdp"),
    ("calibrate", "--epsilon", 1, "--poisson", 0.1, "--steps", 10, "--dataset-size", 1_000_000),
    ("ledger", "show"),
    ("ledger", "verify", "nowhere"),
    ("ledger", "burn"),
    ("demo", "--out"),
    ("dance",),
    ("account", "--dance"),
]


@pytest.mark.parametrize("arguments", BAD, ids=lambda arguments: " ".join(map(str, arguments)))
def test_bad_input_is_one_line_and_exit_code_2(tacit, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = tacit(*arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("tacit: ")
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_evidence_that_is_missing_or_of_another_run_is_refused(tacit, ledger, tmp_path):
    import numpy as np

    from tacit.evidence import Evidence, Stretch, evidence_path, save_evidence
    from tacit.ledger import Head

    code, _, err = tacit("account", ledger, "--bayesian")
    assert (code, "no evidence" in err) == (2, True)
    foreign = Evidence(Head(1, "f" * 64), "probes", np.ones((1, 2), dtype=np.float32), (Stretch(0.1, 1.0, 1, 0, 0),))
    save_evidence(foreign, evidence_path(ledger, "probes"))
    code, _, err = tacit("account", ledger, "--bayesian")
    assert (code, "another head" in err) == (2, True)


def test_a_delta_that_is_too_large_for_the_declared_size_is_refused(tacit, ledger):
    code, _, err = tacit("account", ledger, "--delta", 0.001)
    assert code == 2
    assert "1/1000" in err


def test_the_demo_reaches_what_it_promises(tacit, tmp_path):
    code, out, _ = tacit("demo", "--out", tmp_path / "demo", "--json")
    result = json.loads(out)
    assert code == 0
    assert result["accuracy"] > 0.905  # 0.932 with a standard deviation of 0.005 over runs; always-benign gives 0.63
    assert result["accuracy"] < result["accuracy_non_private"]
    assert {row["accountant"]: row for row in result["guarantees"]}["pld"]["epsilon"] <= 1
    assert len(result["predictions"]) == 3
    assert all(
        0 <= case["mutual_information"] <= case["entropy"] <= math.log(2) + 1e-6 for case in result["predictions"]
    )
    assert {path.name for path in (tmp_path / "demo").iterdir()} == {
        "patients.csv", "new-patients.csv", "draft.toml", "schema.toml", "run", "predictions.csv", "demo.png",
        "bundle",
    }  # fmt: skip
    assert {path.name for path in (tmp_path / "demo" / "run").iterdir()} == {
        "run.json", "ledger.jsonl", "ledger.jsonl.head", "posterior.safetensors", "evaluation.json",
        "artefacts.json", "report.html",
    }  # fmt: skip
    replayed = json.loads(tacit("account", tmp_path / "demo" / "run", "--json")[1])
    assert replayed["guarantees"] == result["guarantees"]
    code, _, err = tacit("demo", "--out", tmp_path / "demo")
    assert code == 2
    assert "holds a run already" in err


def test_version_and_help(tacit):
    assert tacit("--version")[1].startswith("tacit ")
    assert "calibrate" in tacit("--help")[1]
