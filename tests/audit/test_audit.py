"""The checks themselves: they hold on the right code, say what they measured, and see what is planted."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import tacit
from tacit.audit import (
    check_canary,
    check_engine,
    check_formulas,
    check_one_run,
    check_records,
    check_recount,
    check_replay,
    perform,
    self_checks,
)
from tacit.audit.attacks import lowest_epsilon
from tacit.audit.audit import most_frequent_event, self_subjects
from tacit.audit.canary import Leak, Moments, Scores, claimed_ledger, measure, surely_leaked
from tacit.audit.engine.judge import CHUNK, judge
from tacit.audit.engine.workloads import workloads
from tacit.audit.finding import Trial, rejected
from tacit.audit.formulas import simulated_delta
from tacit.audit.neighbours import few_cases
from tacit.audit.noise.check import check_noise, released_noise
from tacit.audit.noise.keys import _rank, small_keys
from tacit.audit.noise.normality import normality_trials
from tacit.audit.noise.tails import far_draws
from tacit.audit.sampler import check_sampler
from tacit.audit.subject import subject_of
from tacit.commands.app import run
from tacit.errors import LedgerError
from tacit.kernels import library
from tacit.ledger import Charge, GaussianSumQuery, LedgerFile, LedgerHeader, PoissonSample, PosteriorSample, read_ledger
from tacit.sampling import SAMPLING_POLICIES

EVENT = PoissonSample(0.05, (GaussianSumQuery(1.0, 1.0, group="a"), GaussianSumQuery(2.0, 3.0, group="b")))


@pytest.fixture
def folder(tmp_path):
    header = LedgerHeader(dataset="mine", dataset_size=1000, epsilon=9.0, delta=1e-5)
    with LedgerFile(tmp_path / "ledger.jsonl", header) as ledger:
        ledger.plan(200)
        ledger.reserve([Charge(EVENT, 200)])
    return tmp_path


def test_quick_checks_hold():
    found = [finding for finding, _ in perform(self_checks("quick"))]
    assert [finding.check for finding in found] == ["replay", "engine", "noise", "sampler", "ledger", "accountants"]
    assert all(finding.held for finding in found), [finding.broke for finding in found]


def test_the_engine_is_driven_over_every_kind_of_model():
    names = {one.name for one in workloads()}
    assert {"convolution", "group norm", "embedding", "attention", "recurrent", "tied weights", "large"} <= names
    assert {"bfloat16", "data set", "augmented data set", "worst-case rounding"} <= names
    assert all(len(places) > CHUNK for one in workloads() for places in one.neighbours())  # several chunks
    assert max(value.numel() for one in workloads() for value in one.model().parameters()) > 16_384


@pytest.mark.skipif(library() is None, reason="the record is the worst for a compiled kernel")
def test_without_its_slack_a_constructed_record_moves_more_than_its_charge(monkeypatch):
    (worst,) = [one for one in workloads() if one.name == "worst-case rounding"]
    assert not judge(worst).broke
    monkeypatch.setattr("tacit.training.plan.SLACK", 0.0)
    assert any("moved the release by 1.00000" in sentence for sentence in judge(worst).broke)


def test_a_model_that_the_engine_refuses_is_a_finding():
    linear = workloads()[-1]
    mixed = replace(linear, build=lambda: torch.nn.Sequential(torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 3)))
    assert "a sound model was refused: RecordMixingError" in check_engine(0, [mixed], ()).broke[0]


DRIVING = {
    "recount": lambda: check_recount([SAMPLING_POLICIES["poisson"]]),
    "replay": lambda: check_replay(few_cases()[:1]),
    "noise": lambda: check_noise(self_subjects()[:1], 1000, processes=0),
    "engine": lambda: check_engine(1, (), ()),
}


def test_an_error_is_a_finding_with_one_line(monkeypatch):
    def failing(*arguments):
        raise KeyError(7)

    monkeypatch.setattr("tacit.training.charging.Charging.reserve", failing)
    for check in DRIVING.values():
        finding = check()
        assert not finding.held
        assert "KeyError: 7 (test_audit.py, line" in finding.broke[0]
        assert "\n" not in finding.broke[0]


@pytest.mark.parametrize("check", DRIVING)
def test_a_full_disk_is_nobodys_broken_promise(monkeypatch, check):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tacit.storage.disk.OperatingSystem.sync_data", full)
    with pytest.raises((OSError, LedgerError), match="No space left"):
        DRIVING[check]()


def test_keys_span_all_their_bits():
    assert small_keys(1000) == ()
    assert _rank([0b01, 0b10, 0b11]) == 2


def test_a_level_is_shared_by_the_tests():
    trials = [Trial("a", 4e-7, ""), Trial("b", 0.5, ""), Trial("c", math.nan, "")]
    assert [sentence[0] for sentence in rejected(trials)] == ["c"]
    assert len(rejected(trials[:1])) == 1


@pytest.mark.parametrize("number", range(5))
def test_the_noise_of_every_clipping_rule_is_what_its_ledger_says(number):
    table = released_noise(self_subjects()[number], 40_000)
    assert not rejected(normality_trials(table))


def test_known_draws_are_normal_and_planted_faults_are_seen():
    draws = np.random.default_rng(1).standard_normal((500, 400))
    assert not rejected(normality_trials(draws))
    for spoil in (lambda x: 0.97 * x, lambda x: x + 0.02, lambda x: x.astype(np.float32), np.abs):
        assert rejected(normality_trials(np.asarray(spoil(draws), dtype=np.float64)))


def test_a_draw_beyond_single_precision_is_released():
    assert far_draws() == ()


@pytest.mark.parametrize("name", SAMPLING_POLICIES)
def test_policies_are_audited_one_by_one(name):
    assert check_sampler([SAMPLING_POLICIES[name]], 100_000).held


def test_the_canary_comes_close_and_not_beyond():
    subject = self_subjects()[0]
    finding = check_canary(subject, claimed_ledger(subject, 200), 1e-5, steps=600)
    assert finding.held
    assert "Gaussian outputs" in finding.assumptions[0]
    lower = float(finding.measured.split()[3])
    assert 0.75 * 4.766 < lower < 4.766


def test_bounds_hold_nearly_always():
    """Scores made by the model that the bounds assume: the truth is above the bound in 99.9 % of all cases."""
    subject, generator = self_subjects()[0], np.random.default_rng(3)
    ledger = claimed_ledger(subject, 200)
    for _ in range(100):
        drawn = int(generator.binomial(20_000, 0.05))
        scores = Scores(Moments(), Moments())
        scores.drawn.add(1 + generator.standard_normal(drawn))
        scores.not_drawn.add(generator.standard_normal(20_000 - drawn))
        leak = measure(scores, subject, ledger)
        assert leak.rate < 1 or leak.shift_over_noise < 1
    assert surely_leaked(ledger, Leak(1.0, 1.0, 1.0, 1.0), 1e-5) == pytest.approx(4.7661, abs=1e-3)


def test_one_run_with_many_canaries_is_weak_and_says_so():
    subject = self_subjects()[0]
    finding = check_one_run(subject, claimed_ledger(subject, 100), 1e-5, canaries=300)
    assert finding.held
    assert "gross faults only" in finding.verdict
    assert lowest_epsilon(1000, 200, 100, 1e-5, 0.001) == 0.0
    assert lowest_epsilon(1000, 200, 200, 1e-5, 0.001) > 2.5


def test_the_ledger_is_recounted():
    finding = check_recount([SAMPLING_POLICIES["poisson"]])
    assert finding.held, finding.broke
    assert finding.times > 20


def test_formulas_hold_and_the_simulation_is_right():
    assert check_formulas(1000).held
    found, error = simulated_delta(1.0, 5.0, 25, 1.0, 20_000)
    assert found == pytest.approx(0.126937, abs=5 * error)  # mu = 1


def test_a_run_is_audited_with_its_own_numbers(folder):
    ledger = read_ledger(folder)
    subject = subject_of(most_frequent_event(ledger), "record")
    assert subject.claimed == EVENT.queries
    assert check_noise([subject], 60_000, processes=0).held
    finding = check_canary(subject, ledger, 1e-5, steps=400)
    assert finding.held, finding.broke


@pytest.mark.parametrize("unit", ["user", "microbatch"])
def test_units_of_several_rows(unit):
    subject = subject_of(EVENT, unit)
    assert check_canary(subject, claimed_ledger(subject, 50), 1e-5, steps=100).held


def test_a_leak_is_seen(folder):
    half = PoissonSample(0.05, tuple(GaussianSumQuery(q.clip_norm / 2, q.noise_stddev) for q in EVENT.queries))
    claimed = subject_of(half, "record")
    real = subject_of(EVENT, "record")
    lied = type(real)(real.name, real.sampling, real.clipping, None, real.unit, real.groups, claimed.claimed)
    finding = check_canary(lied, claimed_ledger(claimed, 200), 1e-5, steps=300)
    assert not finding.held


def test_statements_must_follow_from_the_ledger(folder):
    assert check_records(folder, 1e-5).held
    (folder / "run.json").write_text(json.dumps({"epsilon": 1.0, "delta": 1e-5}))
    assert "run.json states epsilon 1" in check_records(folder, 1e-5).broke[0]
    (folder / "run.json").write_text(json.dumps({"epsilon": 9.5, "delta": 1e-5, "private": {"notion": "bayesian_dp"}}))
    assert check_records(folder, 1e-5).held


def test_a_checkpoint_of_another_ledger_is_found(folder):
    from tacit.ledger import Head
    from tacit.training import Checkpoint

    Checkpoint(3, {"w": torch.zeros(2)}, Head(2, "1" * 64), "plan").write(folder / "checkpoint.safetensors")
    assert "does not continue" in check_records(folder, 1e-5).broke[0]


def test_a_seeded_run_is_broken(tmp_path):
    private = tacit.PrivateGradient(
        torch.nn.Linear(2, 1), lambda model, x: model(x)[:, 0], tacit.PoissonSampling(0.5, 5), tacit.ClipRecords(1.0),
        tacit.GaussianNoise(multiplier=1.0), ledger=tmp_path / "ledger.jsonl", randomness=tacit.Randomness.seeded(1),
    )  # fmt: skip
    for sample in private.samples(torch.randn(10, 2), 2):
        private.backward(sample)
    private.close()
    assert any("seeded" in sentence for sentence in check_records(tmp_path, 1e-3).broke)


def test_posterior_samples_have_nothing_to_replay(tmp_path):
    with LedgerFile(tmp_path / "ledger.jsonl", LedgerHeader()) as ledger:
        ledger.reserve([Charge(PosteriorSample(1.0, 0.5, True), 1)])
    assert most_frequent_event(read_ledger(tmp_path)) is None
    assert run(["audit", str(tmp_path), "--json"]) == 0


@pytest.mark.slow
def test_the_command_audits_this_installation(capsys):
    assert run(["audit", "--self"]) == 0
    assert "nothing broke" in capsys.readouterr().out


@pytest.mark.slow
def test_the_command_audits_a_run(folder, capsys):
    assert run(["audit", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert not found["broke"]
    (folder / "run.json").write_text(json.dumps({"epsilon": 1.0, "delta": 1e-5}))
    assert run(["audit", str(folder)]) == 1
    assert "BROKEN" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["audit"], ["audit", "x", "--self"], ["audit", "nothing-there"], ["audit", "--self", "--delta", "2"]]
)
def test_bad_input_is_one_line(arguments, capsys):
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert captured.out == ""
