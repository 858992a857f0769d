"""A run that was stopped, killed or tampered with: it goes on honestly or not at all (failure-modes F9, F10, F11)."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest
import torch
from conftest import classify

import tacit
from tacit.errors import BudgetError, InputError, LedgerError
from tacit.evidence import evidence_path
from tacit.ledger import Head
from tacit.training import Checkpoint, PrivateSum, read_checkpoint
from tacit.training.checkpoints import put_together, take_apart


@pytest.fixture
def plan(tmp_path):
    sampling = tacit.PoissonSampling(probability=0.5, expected_size=20)
    return tacit.TrainingPlan(
        sampling, tacit.ClipRecords(1.0), tacit.GaussianNoise(multiplier=1.0), 30, tmp_path / "ledger.jsonl", block=8
    )


@pytest.fixture
def method(model):
    return tacit.SGD(model, classify, 0.1, momentum=0.9)


@pytest.fixture
def checkpoint(tmp_path):
    return tmp_path / "run" / "checkpoint"


NOTHING = Head(0, "0" * 64)


class Killed(BaseException):
    """Stands for the end of the process: see :func:`killed`."""


def killed(method, data, plan, checkpoint, step, **more):
    """Nothing that would run after a kill may run: neither settling nor the checkpoint on the way out."""
    patched = pytest.MonkeyPatch()

    def kill(number):
        if number == step:
            patched.setattr("tacit.ledger.LedgerFile.settle", lambda *_: None)
            patched.setattr(Checkpoint, "write", lambda *_: None)
            raise Killed

    try:
        with pytest.raises(Killed):
            tacit.train(method, data, plan, checkpoint=checkpoint, on_step=kill, **more)
    finally:
        patched.undo()


def stop_after(step, error=KeyboardInterrupt):
    def stop(number):
        if number == step:
            raise error

    return stop


def stopped(method, data, plan, checkpoint, step, **more):
    with pytest.raises(KeyboardInterrupt):
        tacit.train(method, data, plan, checkpoint=checkpoint, on_step=stop_after(step), **more)


def test_draws_and_state_are_those_of_an_uninterrupted_run(method, data, plan, checkpoint, tmp_path):
    """Without records and with hardly any noise, fresh randomness makes no difference that can be seen."""
    quiet = replace(plan, noise=tacit.GaussianNoise(multiplier=1e-9), sampling=tacit.PoissonSampling(1.0, 40.0))
    whole = tacit.train(method, data, replace(quiet, ledger=tmp_path / "whole"), keep_last=5, keep_every=6)
    stopped(method, data, quiet, checkpoint, 13, keep_last=5, keep_every=6)
    rest = tacit.train(method, data, quiet, checkpoint=checkpoint, resume=True, keep_last=5, keep_every=6)
    for name, value in whole.posterior.vectors.items():
        torch.testing.assert_close(rest.posterior.vectors[name], value)
    assert rest.ledger.merged() == whole.ledger.merged()


@pytest.mark.parametrize("resumes", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_many_resumes_cost_what_one_run_costs(method, data, plan, checkpoint, tmp_path, resumes):
    """Failure-modes F10: the replayed epsilon is exactly equal."""
    for step in range(resumes):
        stopped(method, data, plan, checkpoint, step, resume=True)
    run = tacit.train(method, data, plan, checkpoint=checkpoint, resume=True)
    whole = tacit.train(method, data, replace(plan, ledger=tmp_path / "whole"))
    epsilons = [tacit.guarantees(ledger, delta=1e-5)[0].epsilon for ledger in (run.ledger, whole.ledger)]
    assert epsilons[0] == epsilons[1]
    assert (run.ledger.runs, run.ledger.planned_steps) == (1, 30)


def test_a_resume_draws_fresh_noise(method, data, plan, checkpoint, monkeypatch):
    """Failure-modes F9: the steps that were lost are not repeated, they are other draws."""
    seen = []

    def noting(self, state, mean_gradient):
        seen.append(mean_gradient["0.weight"].clone())
        return original(self, state, mean_gradient)

    original = tacit.SGD.step
    monkeypatch.setattr(tacit.SGD, "step", noting)
    for _ in range(3):  # a crash at the same place, again and again
        killed(method, data, plan, checkpoint, 6, resume=True)
    assert len(seen) == 7 + 3 + 3  # the fourth step is saved
    assert len({value.numpy().tobytes() for value in seen}) == 13


def test_there_is_a_checkpoint_before_anything_is_charged(method, data, plan, checkpoint):
    seen = []

    def reserve(file, charges):
        seen.append((read_checkpoint(checkpoint, like=_example(method, plan)).step, file.ledger.steps))
        raise Killed

    with pytest.MonkeyPatch().context() as patched:
        patched.setattr("tacit.ledger.LedgerFile.reserve", reserve)
        with pytest.raises(Killed):
            tacit.train(method, data, plan, checkpoint=checkpoint)
    assert seen == [(0, 0)]
    run = tacit.train(method, data, plan, checkpoint=checkpoint, resume=True)
    assert run.ledger.steps == 30


def test_the_first_steps_are_saved_one_by_one_at_first(method, data, plan, checkpoint):
    for step, saved in ((0, 0), (1, 1), (4, 4), (7, 4), (9, 8)):
        checkpoint.unlink(missing_ok=True)
        killed(method, data, plan, checkpoint, step)
        assert read_checkpoint(checkpoint, like=_example(method, plan)).step == saved


def test_lost_steps_are_paid_again(method, data, plan, checkpoint):
    killed(method, data, plan, checkpoint, 13, checkpoint_every=10)
    assert read_checkpoint(checkpoint, like=_example(method, plan)).step == 10
    assert tacit.read_ledger(plan.ledger).steps == 16  # two blocks of 8; 14 were released
    run = tacit.train(method, data, plan, checkpoint=checkpoint, resume=True)
    assert run.ledger.steps == 16 + 20
    assert run.ledger.planned_steps == 36
    assert run.ledger.runs == 2
    assert any("later runs" in sentence for sentence in tacit.guarantees(run.ledger, delta=1e-5)[0].assumptions)


def _example(method, plan):
    from tacit.training.chains import Chains, Keeping

    return Chains(method, plan.steps, Keeping()).content


def test_a_finished_run_is_given_back_without_touching_data(method, data, plan, checkpoint):
    run = tacit.train(method, data, plan, checkpoint=checkpoint)
    before = plan.ledger.read_bytes()
    again = tacit.train(method, data, plan, checkpoint=checkpoint, resume=True)
    assert torch.equal(again.posterior.vectors["0.weight"], run.posterior.vectors["0.weight"])
    assert plan.ledger.read_bytes() == before


def test_resume_without_a_checkpoint_starts(method, data, plan, checkpoint):
    assert tacit.train(method, data, plan, checkpoint=checkpoint, resume=True).ledger.steps == 30


def test_a_checkpoint_is_not_overwritten_by_a_new_run(method, data, plan, checkpoint):
    tacit.train(method, data, plan, checkpoint=checkpoint)
    with pytest.raises(InputError, match="resume=True"):
        tacit.train(method, data, plan, checkpoint=checkpoint)
    with pytest.raises(InputError, match="checkpoint"):
        tacit.train(method, data, plan, resume=True)
    assert tacit.read_ledger(plan.ledger).steps == 30


def test_a_missing_ledger_is_refused_and_not_made_anew(method, data, plan, checkpoint):
    stopped(method, data, plan, checkpoint, 9)
    for path in plan.ledger.parent.glob("ledger.jsonl*"):
        path.unlink()
    with pytest.raises(LedgerError, match="no ledger"):
        tacit.train(method, data, plan, checkpoint=checkpoint, resume=True)
    assert not plan.ledger.exists()


def test_an_older_or_other_ledger_is_refused(method, data, plan, checkpoint, tmp_path):
    stopped(method, data, plan, checkpoint, 3)
    shutil.copytree(plan.ledger.parent, tmp_path / "old", ignore=shutil.ignore_patterns("run", "old"))
    stopped(method, data, plan, checkpoint, 20, resume=True)
    for path in (tmp_path / "old").glob("ledger.jsonl*"):
        shutil.copy(path, plan.ledger.parent)  # ledger and head rolled back together: only the checkpoint knows
    with pytest.raises(LedgerError, match="rolled back"):
        tacit.train(method, data, plan, checkpoint=checkpoint, resume=True)
    other = replace(plan, ledger=tmp_path / "other.jsonl")
    tacit.train(method, data, other)
    with pytest.raises(LedgerError, match="cannot go on from its checkpoint"):
        tacit.train(method, data, other, checkpoint=checkpoint, resume=True)


def test_another_plan_method_model_or_number_of_draws_is_refused(method, data, plan, checkpoint):
    stopped(method, data, plan, checkpoint, 9)
    go_on = {"checkpoint": checkpoint, "resume": True}
    with pytest.raises(InputError, match="another plan"):
        tacit.train(method, data, replace(plan, steps=40), **go_on)
    with pytest.raises(InputError, match="another method"):
        tacit.train(tacit.SGLD(method.model, classify, dataset_size=40, temperature=None), data, plan, **go_on)
    with pytest.raises(InputError, match="another model"):
        tacit.train(tacit.SGD(torch.nn.Linear(5, 3), classify, 0.1), data, plan, **go_on)
    with pytest.raises(InputError, match="keep_last"):
        tacit.train(method, data, plan, keep_last=2, **go_on)
    assert tacit.read_ledger(plan.ledger).steps == 10


def test_what_only_costs_time_may_change(method, data, plan, checkpoint):
    stopped(method, data, plan, checkpoint, 9)
    other = replace(plan, block=3, physical_batch=7)
    assert tacit.train(method, data, other, checkpoint=checkpoint, resume=True).ledger.steps == 30


def test_an_unfinished_pass_is_abandoned_and_was_charged(method, data, plan, checkpoint):
    passes = replace(plan, sampling=tacit.BallsInBinsSampling(bins=10, expected_size=4))
    stopped(method, data, passes, checkpoint, 13)
    assert tacit.read_ledger(plan.ledger).steps == 20
    run = tacit.train(method, data, passes, checkpoint=checkpoint, resume=True)
    assert run.ledger.steps == 40  # 14 steps of two passes, then 16 steps of two new ones


def test_a_budget_that_a_crash_used_up_stops_the_run_before_data(method, data, plan, checkpoint):
    calibrated = tacit.calibrate_noise(2.0, 1e-5, probability=0.5, steps=30)
    plan = replace(
        plan, noise=tacit.GaussianNoise(multiplier=calibrated.noise_multiplier), budget=tacit.Budget(2.0, 1e-5)
    )
    killed(method, data, plan, checkpoint, 12, checkpoint_every=10)
    with pytest.raises(BudgetError):
        tacit.train(method, data, plan, checkpoint=checkpoint, resume=True)
    spent = tacit.read_ledger(plan.ledger)
    assert tacit.guarantees(spent, delta=1e-5)[0].epsilon <= 2.0
    assert spent.steps > 16  # it went on as far as the budget allowed


def test_adaptive_clipping_goes_on_from_its_norm(method, data, plan, checkpoint):
    adaptive = replace(plan, clipping=tacit.AdaptiveClip(initial=0.3), schedule="fixed")
    stopped(method, data, adaptive, checkpoint, 20)
    found = read_checkpoint(checkpoint, like=_example(method, adaptive))
    assert found.clip_norm != 0.3
    engine = PrivateSum(method.losses, method.params(method.init()), adaptive)
    engine.go_on(found)
    assert engine.checkpoint(20, None).clip_norm == found.clip_norm
    engine.close()


def test_any_error_leaves_a_run_that_can_go_on(method, data, plan, checkpoint):
    with pytest.raises(ZeroDivisionError):
        tacit.train(method, data, plan, checkpoint=checkpoint, on_step=stop_after(17, ZeroDivisionError))
    assert tacit.train(method, data, plan, checkpoint=checkpoint, resume=True).ledger.steps == 30


def test_an_error_before_the_first_step_writes_nothing(method, data, plan, checkpoint):
    source = tacit.DataSource(data, user_ids=list(range(40)))
    with pytest.raises(InputError):
        tacit.train(method, source, plan, checkpoint=checkpoint)
    assert not checkpoint.exists()


SCRIPT = """
import sys, torch, tacit
from pathlib import Path
folder = Path(sys.argv[1])
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(3, 2)
losses = lambda model, batch: torch.nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")
data = torch.randn(40, 3), torch.randint(0, 2, (40,))
plan = tacit.TrainingPlan(tacit.PoissonSampling(0.5, 20), tacit.ClipRecords(1.0), tacit.GaussianNoise(multiplier=1.0),
                          100_000, folder / "ledger.jsonl", block=50)
tacit.train(tacit.SGD(model, losses, 0.1), data, plan, checkpoint=folder / "checkpoint", checkpoint_every=25,
            resume=True, on_step=lambda step: print(step, flush=True))
"""


def ended(folder, how, after):
    """Run the script, send it a signal when it has taken ``after`` more steps, and say which steps it took."""
    steps = []
    with subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder)], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            steps.append(int(line))
            if len(steps) == after:
                process.send_signal(how)
    return steps, process.returncode


ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def handlers():
    """As in a program that was started from a terminal; what the tests were started by may ignore some."""
    usual = (signal.default_int_handler, signal.SIG_DFL, signal.SIG_DFL)
    before = [signal.signal(number, handler) for number, handler in zip(ENDS, usual, strict=True)]
    yield list(usual)
    for number, handler in zip(ENDS, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("how", "error"),
    [(signal.SIGTERM, SystemExit), (signal.SIGHUP, SystemExit), (signal.SIGINT, KeyboardInterrupt)],
)
def test_a_signal_waits_for_the_step_in_hand(method, data, plan, checkpoint, handlers, how, error):
    seen = []

    def send(step):
        if step == 10:
            os.kill(os.getpid(), how)
        seen.append(step)  # the signal has come, and the step goes on

    with pytest.raises(error):
        tacit.train(method, data, plan, checkpoint=checkpoint, on_step=send)
    assert seen == list(range(11))
    assert tacit.read_ledger(plan.ledger).steps == 11
    assert [signal.getsignal(number) for number in ENDS] == handlers
    assert tacit.train(method, data, plan, checkpoint=checkpoint, resume=True).ledger.steps == 30


def test_a_signal_that_is_ignored_stays_so(method, data, plan, checkpoint, handlers):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as by nohup
    run = tacit.train(method, data, plan, checkpoint=checkpoint, on_step=lambda _: os.kill(os.getpid(), signal.SIGHUP))
    assert run.ledger.steps == 30


def test_a_second_signal_does_not_wait(method, data, plan, checkpoint, handlers):
    def send(step):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the second signal was held back")

    with pytest.raises(KeyboardInterrupt):
        tacit.train(method, data, plan, checkpoint=checkpoint, on_step=send)


@pytest.mark.slow
def test_a_polite_kill_loses_nothing(tmp_path):
    first, code = ended(tmp_path, signal.SIGTERM, 60)
    assert code == 128 + signal.SIGTERM
    second, code = ended(tmp_path, signal.SIGINT, 60)
    assert code not in (0, 128 + signal.SIGTERM)
    third, code = ended(tmp_path, signal.SIGHUP, 60)
    assert code == 128 + signal.SIGHUP
    assert first + second + third == list(range(len(first) + len(second) + len(third)))
    assert tacit.read_ledger(tmp_path).steps == len(first) + len(second) + len(third)


@pytest.mark.parametrize("kills", [1, pytest.param(40, marks=pytest.mark.slow)])
def test_a_kill_over_counts_and_never_under_counts(tmp_path, kills):
    released = 0
    for number in range(kills):
        steps, code = ended(tmp_path, signal.SIGKILL, 31 + number)
        assert code == -signal.SIGKILL
        released += len(steps)
        charged = tacit.read_ledger(tmp_path).steps
        assert released <= charged <= released + 50 * (number + 1)


def test_a_checkpoint_is_replaced_whole_or_not_at_all(checkpoint, monkeypatch):
    old = Checkpoint(1, {"w": torch.ones(3)}, NOTHING, "plan")
    old.write(checkpoint)

    def full(*_):
        raise OSError(28, "No space left on device")

    new = Checkpoint(2, {"w": torch.zeros(3)}, NOTHING, "plan")
    for call in ("write", "fdatasync", "replace", "fsync"):
        with monkeypatch.context() as patched:
            patched.setattr(os, call, full)
            with pytest.raises(OSError):
                new.write(checkpoint)
        assert read_checkpoint(checkpoint).step == 1


def test_the_bytes_reach_the_disk_before_the_name(checkpoint, monkeypatch):
    calls = []
    checkpoint.parent.mkdir()
    for call in ("fdatasync", "replace", "fsync"):
        original = getattr(os, call)
        monkeypatch.setattr(os, call, lambda *a, call=call, original=original: (calls.append(call), original(*a))[1])
    Checkpoint(1, None, NOTHING, "plan").write(checkpoint)
    assert calls == ["fsync", "fdatasync", "replace", "fsync"]  # the folder's own name comes first


def test_a_damaged_or_hostile_checkpoint_is_refused(checkpoint):
    Checkpoint(1, {"w": torch.ones(3)}, NOTHING, "plan").write(checkpoint)
    whole = checkpoint.read_bytes()
    for damaged in (b"", whole[:40], b"\x80\x04." + whole, whole[:-4]):
        checkpoint.write_bytes(damaged)
        with pytest.raises(InputError, match="readable"):
            read_checkpoint(checkpoint)
    with pytest.raises(InputError, match="readable"):
        read_checkpoint(checkpoint.parent / "nothing")


def test_no_key_is_in_a_checkpoint(method, data, plan, checkpoint, monkeypatch):
    keys = []
    original = tacit.Randomness._start
    monkeypatch.setattr(tacit.Randomness, "_start", lambda self, key: (keys.append(key), original(self, key))[1])
    stopped(method, data, plan, checkpoint, 9)
    assert keys
    for key in keys:
        assert key not in checkpoint.read_bytes()
        assert key.hex().encode() not in checkpoint.read_bytes()
    with pytest.raises(InputError, match="Randomness"):
        Checkpoint(1, tacit.Randomness(), NOTHING, "plan").write(checkpoint)


@dataclass(frozen=True)
class Inner:
    values: tuple
    name: str


@dataclass(frozen=True)
class Outer:
    inner: Inner
    weights: dict
    number: float
    nothing: None = None


def test_nested_states_survive():
    shared = torch.arange(3)
    tree = Outer(Inner((1, 2.5), "a"), {"w": shared, 0: [shared, True], "half": torch.ones(2).half()}, 0.1 + 0.2)
    tensors = {}
    again = put_together(json.loads(json.dumps(take_apart(tree, tensors))), tensors, tree)
    assert again.inner == tree.inner
    assert again.number == tree.number
    assert again.weights[0][1] is True
    assert torch.equal(again.weights["w"], shared)
    assert again.weights["half"].dtype == torch.float16


@pytest.mark.parametrize(
    ("json", "like"),
    [("x", torch.zeros(2)), (1.0, {"w": torch.zeros(2)}), ({"tensor": "0"}, {"w": 1}), (None, torch.zeros(2))],
)
def test_content_of_another_kind_is_refused(json, like):
    with pytest.raises(InputError, match="belongs to another model"):
        put_together(json, {"0": torch.zeros(2)}, like)


@pytest.mark.parametrize("kept", ["x", [], [1], [{"w": 1}], [{"other": torch.zeros(1, 2)}], [{}, {}]])
def test_draws_of_another_model_are_refused(method, data, plan, checkpoint, kept):
    tacit.train(method, data, plan, checkpoint=checkpoint)
    heat = {"total": 0.0, "steps": 0}
    example = {"method": "", "state": method.init(), "kept": [], "heat": heat}
    example |= {"chains": 1, "keep_last": 1, "keep_every": 1}
    found = read_checkpoint(checkpoint, like=example)
    replace(found, content={**found.content, "kept": kept}).write(checkpoint)
    with pytest.raises(InputError, match="no draws of this one"):
        tacit.train(method, data, plan, checkpoint=checkpoint, resume=True)


def test_a_users_own_loop_goes_on(model, data, plan, checkpoint):
    """Story 1 with a checkpoint: the user saves state_dicts, Tacit adds the ledger's head."""
    parts = plan.sampling, plan.clipping, plan.noise
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def loop(stop):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        with tacit.PrivateGradient(model, classify, *parts, ledger=plan.ledger) as private:
            step, content = private.load_checkpoint(checkpoint)
            if content is not None:
                model.load_state_dict(content["model"])
                optimizer.load_state_dict(content["optimizer"])
            for batch in private.samples(data, steps=30, first=step):
                optimizer.zero_grad()
                private.backward(batch)
                optimizer.step()
                if batch.step == stop:
                    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                    private.save_checkpoint(checkpoint, content, step=batch.step + 1)
                    return optimizer.state_dict(), private.ledger
            return optimizer.state_dict(), private.ledger

    loop(stop=11)
    model.load_state_dict(before)
    optimizer, ledger = loop(stop=None)
    assert optimizer["state"][0]["step"] == 30
    assert ledger.steps == ledger.planned_steps == 30


@pytest.mark.parametrize("kind", ["probes", "members"])
def test_evidence_goes_on_with_the_run(method, data, plan, checkpoint, kind):
    """All steps are covered, but for those of probes between their last look and the stop: 8 and 9."""
    gathers = {"probes": tacit.EvidencePlan(probes=data, probe_every=7), "members": tacit.EvidencePlan(members=True)}
    plan = replace(plan, dataset_size=40)
    stopped(method, data, plan, checkpoint, 9, evidence=gathers[kind])
    run = tacit.train(method, data, plan, checkpoint=checkpoint, resume=True, evidence=gathers[kind])
    found = tacit.evidence.load_evidence(evidence_path(plan.ledger, kind))
    assert run.ledger.steps == 30
    assert found.steps == (28 if kind == "probes" else 30)
    assert min(stretch.first for stretch in found.stretches) == 0
    assert max(stretch.last for stretch in found.stretches) == len(found.shares) - 1


def test_an_individual_filter_does_not_go_on(method, data, plan, checkpoint):
    """What each record has spent is private, so no checkpoint holds it."""
    own = {"individual_filter": tacit.training.IndividualFilter(5.0, 1e-5)}
    stopped(method, data, plan, checkpoint, 9, **own)
    with pytest.raises(InputError, match="individual filter cannot go on"):
        tacit.train(method, data, plan, checkpoint=checkpoint, resume=True, **own)


def test_text_in_place_of_a_number_is_refused():
    """Of a method's state, re-sealed: it would be added to later."""
    held = put_together(take_apart({"step": 3, "name": "x"}, {}), {}, {"step": 0, "name": ""})
    assert held == {"step": 3, "name": "x"}
    with pytest.raises(InputError, match="another model"):
        put_together(take_apart({"step": "record"}, {}), {}, {"step": 0})
