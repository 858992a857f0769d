from dataclasses import replace

import pytest
import torch
from conftest import classify
from torch import nn

import tacit
from tacit.errors import BudgetError, InputError
from tacit.training.chains import Chains, Keeping


@pytest.fixture
def plan(tmp_path):
    sampling = tacit.PoissonSampling(probability=0.5, expected_size=20)
    return tacit.TrainingPlan(
        sampling, tacit.ClipRecords(1.0), tacit.GaussianNoise(multiplier=1.0), 12, tmp_path / "ledger.jsonl"
    )


def test_every_chain_is_charged_in_one_run(model, data, plan):
    run = tacit.train(tacit.SGD(model, classify, 0.1), data, plan, chains=3, keep_last=4)
    assert run.ledger.steps == run.ledger.planned_steps == plan.charged_steps(chains=3) == 36
    assert run.ledger.runs == 1
    assert run.posterior.chains == 3
    assert run.posterior.by_chain["0.weight"].shape == (3, 4, 4, 5)


def test_chains_in_passes_are_charged_as_whole_passes(model, data, plan):
    passes = replace(plan, sampling=tacit.BallsInBinsSampling(bins=10, expected_size=4))
    run = tacit.train(tacit.SGD(model, classify, 0.1), data, passes, chains=2)
    assert run.ledger.steps == passes.charged_steps(chains=2) == 30


def test_a_budget_for_one_chain_is_not_enough_for_two(model, data, plan):
    budget = tacit.Budget(3.0, 1e-5)
    noise = tacit.calibrate_noise(3.0, 1e-5, probability=0.5, steps=plan.charged_steps()).noise_multiplier
    plan = replace(plan, noise=tacit.GaussianNoise(multiplier=noise), budget=budget, block=6)
    with pytest.raises(BudgetError):
        tacit.train(tacit.SGD(model, classify, 0.1), data, plan, chains=2)
    assert tacit.read_ledger(plan.ledger).steps == 12


def test_chains_of_a_seeded_method_differ(data, plan):
    """Noise on top is made of the seed and the step: every chain needs a seed of its own."""
    seen = {}

    def noting(model, batch):
        return classify(model, batch)

    model = nn.Linear(5, 3)
    method = tacit.SGLD(model, noting, tacit.GaussianPrior(1.0), 1e-4, 40, noise="planned")
    quiet = replace(plan, noise=tacit.GaussianNoise(multiplier=1e-6))
    draws = tacit.train(method, data, quiet, chains=2, keep_last=12).posterior.by_chain["weight"]
    seen = (draws[0] - draws[1]).flatten(1).norm(dim=1)
    assert (seen > 1e-3).all()


def test_deep_ensembles_begin_at_their_own_weights(data, plan):
    def build():
        return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))

    members = [build() for _ in range(4)]
    starts = [dict(member.named_parameters()) for member in members]
    method = tacit.SGD(members[0], classify, 1e-9)
    run = tacit.train(method, data, plan, chains=4, starts=starts)
    for draw, start in zip(run.posterior, starts, strict=True):
        torch.testing.assert_close(draw["0.weight"], start["0.weight"].detach())
    assert run.ledger.steps == 48
    assert members[1][0].weight.grad is None


@pytest.mark.parametrize("starts", [[], [{}, {}], [{"weight": torch.zeros(3, 5)}, {"weight": torch.zeros(3, 5)}]])
def test_starts_that_do_not_fit_are_refused(data, plan, starts):
    with pytest.raises(InputError, match="starts"):
        tacit.train(tacit.SGD(nn.Linear(5, 3), classify, 0.1), data, plan, chains=2, starts=starts)
    assert not plan.ledger.exists()


@pytest.mark.parametrize("chains", [0, -1, 1.5, True])
def test_a_number_of_chains_is_a_count(model, data, plan, chains):
    with pytest.raises(InputError, match="chains"):
        tacit.train(tacit.SGD(model, classify, 0.1), data, plan, chains=chains)
    with pytest.raises(InputError, match="chains"):
        plan.charged_steps(chains)


def test_chains_survive_a_stop(model, data, plan, tmp_path):
    def stop(step):
        if step == 16:
            raise KeyboardInterrupt

    method = tacit.SGD(model, classify, 0.1)
    arguments = {"chains": 3, "keep_last": 4, "checkpoint": tmp_path / "checkpoint"}
    with pytest.raises(KeyboardInterrupt):
        tacit.train(method, data, plan, on_step=stop, **arguments)
    run = tacit.train(method, data, plan, resume=True, **arguments)
    assert run.ledger.steps == 36
    assert run.posterior.by_chain["0.weight"].shape == (3, 4, 4, 5)
    assert run.state.step == 12


def test_only_the_sampling_phase_of_a_cycle_is_kept(data, plan):
    cycle = tacit.inference.CyclicalStep(1e-5, length=6, exploration=0.5)
    method = tacit.SGLD(nn.Linear(5, 3), classify, step_size=cycle, dataset_size=40, temperature=None)
    iterates = []
    original = tacit.SGLD.step

    def noting(self, state, gradient):
        iterates.append(original(self, state, gradient))
        return iterates[-1]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tacit.SGLD, "step", noting)
        run = tacit.train(method, data, plan, keep_last=6, keep=cycle.samples)
    wanted = [iterates[step].params["weight"] for step in (3, 4, 5, 9, 10, 11)]
    assert torch.equal(run.posterior.vectors["weight"], torch.stack(wanted))
    with pytest.raises(InputError, match="cannot keep 7"):
        tacit.train(method, data, plan, keep_last=7, keep=cycle.samples)


SAMPLERS = {
    "sgld": lambda m: tacit.SGLD(m, classify, step_size=1e-3, dataset_size=40, temperature=None),
    "sgld, planned": lambda m: tacit.SGLD(m, classify, step_size=1e-3, dataset_size=40, noise="planned"),
    "sghmc": lambda m: tacit.inference.SGHMC(m, classify, step_size=1e-3, dataset_size=40, temperature=None),
    "sgnht": lambda m: tacit.inference.SGNHT(m, classify, step_size=1e-3, dataset_size=40, noise="planned"),
    "psgld": lambda m: tacit.inference.PSGLD(m, classify, step_size=1e-3, dataset_size=40, noise="planned"),
}


@pytest.mark.parametrize("build", SAMPLERS.values(), ids=SAMPLERS)
def test_a_run_states_the_mean_temperature_of_its_last_half(data, plan, build, monkeypatch):
    method, found = build(nn.Linear(5, 3)), []
    original = type(method).step_temperature
    monkeypatch.setattr(
        type(method), "step_temperature", lambda self, *states: found.append(original(self, *states)) or found[-1]
    )
    run = tacit.train(method, data, plan)
    assert len(found) == plan.steps / 2
    assert run.effective_temperature == pytest.approx(sum(found) / len(found))
    assert f"effective temperature: {run.effective_temperature:.4g}, measured" in run.summary


def test_a_method_that_samples_nothing_has_no_temperature(data, plan):
    run = tacit.train(tacit.SGD(nn.Linear(5, 3), classify, 0.1), data, plan)
    assert run.effective_temperature is None
    assert "temperature" not in run.summary


def test_a_checkpoint_keeps_what_was_measured_of_the_temperature():
    method = SAMPLERS["sgld"](nn.Linear(5, 3))
    first, second = (Chains(method, 4, Keeping(last=4)) for _ in range(2))
    for _ in range(2):
        first.advance({"weight": torch.randn(3, 5), "bias": torch.randn(3)})
    second.restore(first.step, first.content)
    assert second.temperature == first.temperature > 0
    with pytest.raises(InputError, match="heat"):
        second.restore(2, first.content | {"heat": {"total": float("nan"), "steps": 2}})


def test_a_sampler_that_follows_the_noise_needs_a_fixed_clip(data, plan):
    method = tacit.SGLD(nn.Linear(5, 3), classify, dataset_size=40, noise="planned")
    adaptive = replace(plan, clipping=tacit.AdaptiveClip(initial=0.3))
    with pytest.raises(InputError, match="fixed clip norm"):
        tacit.train(method, data, adaptive)
