"""The release gate: an honest run leaves with a statement, and any doubt leaves nothing behind."""

import json
import tarfile

import numpy as np
import pytest
from safetensors.numpy import save_file

from tacit.commands.app import run as command
from tacit.errors import InputError, LedgerError, RefusedError, TacitError
from tacit.evidence import Evidence, Stretch, evidence_path, save_evidence
from tacit.ledger import Charge, LedgerFile, LedgerHeader, PosteriorSample, read_ledger, verify_ledger
from tacit.release import check_bundle, release_run, write_manifest

HEADER = {"dataset": "mine", "dataset_size": 1000, "epsilon": 1.0, "delta": 1e-5}


def make_run(folder, event, facts=None, steps=100, weights=(0.5, -1.0), **header):
    """What `tacit train` leaves behind, without the training."""
    with LedgerFile(folder / "ledger.jsonl", LedgerHeader(**{**HEADER, **header})) as ledger:
        ledger.plan(100)
        ledger.reserve([Charge(event, steps)])
    save_file({"w": np.array(weights)}, folder / "posterior.safetensors", {"tacit_posterior": "point"})
    told = {"format": 1, "unit": "record", "epsilon": 1.0, "delta": 1e-5, **(facts or {})}
    (folder / "run.json").write_text(json.dumps(told))
    write_manifest(folder, ["posterior.safetensors", "run.json"])
    return folder


@pytest.fixture
def run(tmp_path, event):
    return make_run(tmp_path / "run", event)


@pytest.fixture
def refused(tmp_path):
    """Asserts that a release is refused with these words, and that nothing at all is left of it."""

    def check(folder, words, **options):
        before = (folder / "ledger.jsonl").read_bytes() if (folder / "ledger.jsonl").exists() else None
        with pytest.raises(TacitError, match=words):
            release_run(folder, tmp_path / "bundle", **options)
        assert before is None or (folder / "ledger.jsonl").read_bytes() == before
        assert {path.name for path in tmp_path.iterdir()} <= {"run", "other"}

    return check


def test_an_honest_run_is_released_and_the_bundle_checks(run, tmp_path):
    done = release_run(run, tmp_path / "bundle")
    names = {path.name for path in (tmp_path / "bundle").iterdir()}
    assert names == {"posterior.safetensors", "run.json", "ledger.jsonl", "ledger.jsonl.head", "statement.json",
                     "statement.md", "SHA256SUMS"}  # fmt: skip
    found = check_bundle(tmp_path / "bundle")
    assert found.statement.best.epsilon == done.statement.best.epsilon
    assert found.statement.head == verify_ledger(run).head
    said = json.loads((tmp_path / "bundle" / "statement.json").read_text())
    assert said["is_bound"]
    assert (said["notion"], said["unit"], said["neighbours"]) == ("dp", "record", "add_remove")
    assert said["epsilon"] == min(row["epsilon"] for row in said["accountants"] if row["is_bound"])
    assert "bayesian" not in (tmp_path / "bundle" / "statement.md").read_text().lower()
    assert read_ledger(tmp_path / "bundle").charges == read_ledger(run).charges


def test_the_ledger_notes_a_release_without_a_trace_of_the_data(tmp_path, event):
    for name, weights in (("one", (0.5, -1.0)), ("other", (7.0, 8.0))):
        release_run(make_run(tmp_path / name, event, weights=weights), tmp_path / f"{name}-bundle")
    assert (tmp_path / "one" / "ledger.jsonl").read_bytes() == (tmp_path / "other" / "ledger.jsonl").read_bytes()
    record = json.loads((tmp_path / "one" / "ledger.jsonl").read_text().splitlines()[-1])
    assert record["artefacts"] == ["posterior.safetensors", "run.json"]


def test_the_archive_is_the_same_bytes_each_time(tmp_path, event):
    for name in ("one", "other"):
        make_run(tmp_path / name, event)
        release_run(tmp_path / name, tmp_path / f"{name}.tar.gz")
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "other.tar.gz").read_bytes()
    assert check_bundle(tmp_path / "one.tar.gz").statement.best.is_bound


def test_a_folder_without_run_facts_is_released_too(run, tmp_path):
    (run / "run.json").unlink()
    write_manifest(run, ["posterior.safetensors"])
    assert "run.json" not in release_run(run, tmp_path / "bundle").files


def test_what_is_private_stays_at_home_and_the_rest_is_left_behind(run, tmp_path):
    (run / "report.html").write_text("<p>for the data holder</p>")
    write_manifest(run, ["posterior.safetensors", "run.json", "report.html"])
    gather(run)
    done = release_run(run, tmp_path / "bundle")
    assert done.left_behind == ("report.html",)
    assert not any("evidence" in name for name in done.files)


def gather(run, kind="members"):
    head = verify_ledger(run).head
    shares = np.linspace(0, 1, 60, dtype=np.float32).reshape(2, 30)
    save_evidence(Evidence(head, kind, shares, (Stretch(0.01, 1.1, 100, 0, 1),)), evidence_path(run, kind))


def test_bayesian_numbers_leave_only_when_asked_for_and_marked(run, tmp_path, refused):
    refused(run, "no evidence", include_bayesian=True)
    gather(run)
    release_run(run, tmp_path / "bundle", include_bayesian=True)
    said = json.loads((tmp_path / "bundle" / "statement.json").read_text())
    assert "no worst-case guarantee" in said["private_diagnostics"]["what"]
    assert said["notion"] == "dp"
    assert check_bundle(tmp_path / "bundle").diagnostics
    said["private_diagnostics"]["what"] = "private"
    repack(tmp_path / "bundle", said)
    with pytest.raises(RefusedError, match="not marked"):
        check_bundle(tmp_path / "bundle")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"schema": {"derived_from_private_data": True}}, "derived_from_private_data"),
        ({"bayesian": {"epsilon": 0.1}}, "Bayesian number"),
        ({"guarantees": [{"notion": "bayesian_dp", "value": "0.1"}]}, "Bayesian number"),
        ({"unit": None}, "does not say its unit"),
        ({"delta": None}, "does not say its delta"),
        ({"epsilon": None}, "does not say its epsilon"),
        ({"unit": "user"}, "the ledger 'record'"),
        ({"delta": 2e-5}, "the ledger 1e-05"),
        ({"epsilon": 3.0}, "the ledger 1.0"),
        ({"shared_ledger": "all.jsonl", "shared_epsilon": 3.0}, "run.json says shared_epsilon 3.0"),
        ({"shared_ledger": "all.jsonl"}, "does not say its shared_epsilon"),
        ({"epsilon": 0.01}, "claims epsilon 0.01"),
        ({"guarantees": [{"epsilon": 0.01, "delta": 1e-6}]}, "claims epsilon 0.01"),
    ],
)
def test_facts_that_do_not_hold_are_refused(tmp_path, event, refused, facts, words):
    refused(make_run(tmp_path / "run", event, facts), words)


def test_a_derived_schema_is_released_by_flag_and_said(tmp_path, event):
    run = make_run(tmp_path / "run", event, {"schema": {"derived_from_private_data": True}})
    done = release_run(run, tmp_path / "bundle", accept_derived_schema=True)
    assert any("read off the private data" in sentence for sentence in done.statement.assumptions)
    said = json.loads((tmp_path / "bundle" / "statement.json").read_text())
    said["assumptions"] = []
    repack(tmp_path / "bundle", said)
    with pytest.raises(RefusedError, match="derived_from_private_data"):
        check_bundle(tmp_path / "bundle")


@pytest.mark.parametrize(
    ("header", "steps", "words"),
    [
        ({"randomness": "seeded"}, 100, "seeded"),
        ({"epsilon": 0.01}, 100, "over the 0.01"),
        ({"assumptions": ("derived_from_private_data: bounds",)}, 100, "derived_from_private_data"),
        ({"epsilon": None, "delta": None}, 100, "declares no budget"),
        ({}, 0, "no charged step"),
    ],
)
def test_ledgers_that_no_number_makes_releasable(tmp_path, event, refused, header, steps, words):
    refused(make_run(tmp_path / "run", event, steps=steps, **header), words)


def test_the_declared_budget_holds_even_if_more_is_asked_for(tmp_path, event, refused):
    refused(make_run(tmp_path / "run", event, epsilon=0.01), "declared at opening", epsilon=5.0)
    refused(make_run(tmp_path / "other", event), "over the 0.001 asked for", epsilon=0.001)


def test_an_inexact_posterior_sample_is_refused(tmp_path, refused):
    refused(make_run(tmp_path / "run", PosteriorSample(0.01, 1.0, exact=False), steps=1), "not exact")


def test_an_early_stop_is_stated_at_the_declared_length_too(tmp_path, event):
    done = release_run(make_run(tmp_path / "run", event, steps=60), tmp_path / "bundle")
    said = done.statement.to_json()
    assert said["if_the_stop_followed_outputs"] > said["epsilon"]
    assert any("early stop" in sentence for sentence in said["assumptions"])


def test_changed_listed_missing_and_foreign_artefacts(run, refused):
    posterior = run / "posterior.safetensors"
    good = posterior.read_bytes()
    posterior.write_bytes(good[:-1] + b"x")
    refused(run, "not what the run wrote")
    posterior.unlink()
    refused(run, "no artefact")
    (run / "real").write_bytes(good)
    posterior.symlink_to(run / "real")
    refused(run, "cannot be read")
    posterior.unlink()
    posterior.write_bytes(good)
    (run / "model.safetensors").write_bytes(good)
    refused(run, "not listed")
    (run / "model.safetensors").unlink()
    (run / "artefacts.json").unlink()
    refused(run, "has no artefacts.json")


def test_evidence_and_checkpoints_are_known_by_content(run, refused):
    gather(run)
    (run / "evidence.members.safetensors").rename(run / "posterior.safetensors")
    write_manifest(run, ["posterior.safetensors", "run.json"])
    refused(run, "private evidence")
    facts = {"tacit_checkpoint": json.dumps({"head": {"count": 9, "hash": "f" * 64}})}
    save_file({"0": np.zeros(1)}, run / "posterior.safetensors", facts)
    write_manifest(run, ["posterior.safetensors", "run.json"])
    refused(run, "holds a checkpoint")


def test_a_ledger_that_is_behind_its_checkpoint_or_manifest_is_refused(run, refused, tmp_path, event):
    facts = {"tacit_checkpoint": json.dumps({"head": {"count": 9, "hash": "f" * 64}})}
    save_file({"0": np.zeros(1)}, run / "checkpoint.safetensors", facts)
    refused(run, "knows more than the ledger")
    (run / "checkpoint.safetensors").unlink()
    other = make_run(tmp_path / "other", event, steps=90)
    for name in ("ledger.jsonl", "ledger.jsonl.head"):
        (run / name).write_bytes((other / name).read_bytes())
    refused(run, "the ledger was replaced")


def test_timings_stay_at_home_and_other_files_too(tmp_path, event):
    run = make_run(tmp_path / "run", event, {"seconds": 12.5, "method": "sgd"})
    (run / "evaluation.json").write_text("{}")
    release_run(run, tmp_path / "bundle")
    assert json.loads((tmp_path / "bundle" / "run.json").read_text())["method"] == "sgd"
    assert "seconds" not in (tmp_path / "bundle" / "run.json").read_text()
    assert not (tmp_path / "bundle" / "evaluation.json").exists()
    check_bundle(tmp_path / "bundle")


def test_runs_that_share_a_ledger_are_stated_together(tmp_path, event, refused):
    shared = {"shared_ledger": "elsewhere", "epsilon": 0.1, "shared_epsilon": 1.0}
    run, other = make_run(tmp_path / "run", event, shared), make_run(tmp_path / "other", event)
    for name in ("ledger.jsonl", "ledger.jsonl.head"):
        (run / name).unlink()
    write_manifest(run, ["posterior.safetensors", "run.json"], ledger=other)
    refused(run, "no ledger")
    done = release_run(run, tmp_path / "bundle", ledger=other / "ledger.jsonl")
    assert done.statement.head == verify_ledger(other).head
    assert check_bundle(tmp_path / "bundle").statement.best.epsilon > 0.1


def test_a_ledger_in_use_is_refused(run, refused):
    with LedgerFile(run / "ledger.jsonl", read_ledger(run).header):
        refused(run, "in use by this very process")


def test_a_bundle_is_never_written_over_or_into_something(run, tmp_path):
    release_run(run, tmp_path / "bundle")
    for out in (tmp_path / "bundle", tmp_path / "nowhere" / "bundle", run / "bundle"):
        with pytest.raises(InputError):
            release_run(run, out)
    with pytest.raises(InputError, match="run's folder"):
        release_run(tmp_path / "nothing", tmp_path / "out")


def repack(bundle, said):
    """A liar who knows the format: another statement, with its words and checksums."""
    from tacit.release.bundle import sums_of
    from tacit.release.statement import in_words

    (bundle / "statement.json").write_text(json.dumps(said))
    (bundle / "statement.md").write_text(in_words(said))
    (bundle / "SHA256SUMS").unlink()
    files = {path.name: path.read_bytes() for path in bundle.iterdir()}
    (bundle / "SHA256SUMS").write_bytes(sums_of(files))


@pytest.mark.parametrize(
    ("name", "value"), [("epsilon", 0.001), ("delta", 1e-9), ("unit", "user"), ("notion", "bayesian_dp"),
                        ("is_bound", 1), ("assumptions", ["none"]), ("more", 1)]
)  # fmt: skip
def test_a_lying_statement_is_found_though_all_its_sums_are_right(run, tmp_path, name, value):
    release_run(run, tmp_path / "bundle")
    said = json.loads((tmp_path / "bundle" / "statement.json").read_text())
    repack(tmp_path / "bundle", {**said, name: value})
    with pytest.raises(RefusedError, match=f"its {name} does not follow"):
        check_bundle(tmp_path / "bundle")


def test_every_changed_file_of_a_bundle_is_found(run, tmp_path):
    release_run(run, tmp_path / "bundle")
    for path in sorted((tmp_path / "bundle").iterdir()):
        good = path.read_bytes()
        path.write_bytes(good[:-2] + b"??")
        with pytest.raises(TacitError):
            check_bundle(tmp_path / "bundle")
        path.unlink()
        with pytest.raises(TacitError):
            check_bundle(tmp_path / "bundle")
        path.write_bytes(good)
    check_bundle(tmp_path / "bundle")
    (tmp_path / "bundle" / "evidence.members.safetensors").write_bytes(b"")
    with pytest.raises(RefusedError):
        check_bundle(tmp_path / "bundle")


def test_a_hostile_archive_is_refused(tmp_path):
    with tarfile.open(tmp_path / "bundle.tar.gz", "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("../outside"))
    with pytest.raises(InputError):
        check_bundle(tmp_path / "bundle.tar.gz")
    (tmp_path / "broken.tar.gz").write_bytes(b"\x1f\x8b" + bytes(50))
    with pytest.raises(InputError, match="no readable bundle"):
        check_bundle(tmp_path / "broken.tar.gz")


def test_the_command(run, tmp_path, capsys):
    out = str(tmp_path / "bundle")
    assert command(["release", str(run), "--out", out]) == 0
    assert "upper bound" in capsys.readouterr().out
    assert command(["release", "--check", out]) == 0
    assert "follows from the ledger" in " ".join(capsys.readouterr().out.split())
    assert command(["release", "--check", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"]
    assert command(["release", str(run), "--out", out]) == 2
    for bad in (["release"], ["release", str(run)], ["release", str(run), "--check", out]):
        assert command(bad) == 2
    assert all(line.startswith("tacit: ") for line in capsys.readouterr().err.splitlines())


def test_damage_between_reading_and_locking_is_seen(run, tmp_path, event, monkeypatch):
    import tacit.release.bundle as bundle

    honest = bundle._prepare

    def prepare_then_charge(*arguments):
        prepared = honest(*arguments)
        with LedgerFile(run / "ledger.jsonl", read_ledger(run).header) as ledger:
            ledger.reserve([Charge(event, 1)])
        return prepared

    monkeypatch.setattr(bundle, "_prepare", prepare_then_charge)
    with pytest.raises(LedgerError, match="while it was being read"):
        release_run(run, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()
