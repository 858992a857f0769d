"""What every inference method must do, run on a small example of each; a method without one fails the first test."""

import copy

import pytest
import torch
from torch import nn

import tacit
from tacit import inference
from tacit.inference import (
    PSGLD,
    SGD,
    SGHMC,
    SGLD,
    SGNHT,
    AdamDescent,
    FlatPrior,
    FullRank,
    MakesPosterior,
    MCDropout,
    MeanField,
    PlainDescent,
    VariationalInference,
    bayes_by_backprop,
)
from tacit.ledger import Head
from tacit.posteriors import GaussianPosterior
from tacit.training import Checkpoint, read_checkpoint
from tacit.training.checkpoints import take_apart


def variational(family):
    return lambda model, losses: VariationalInference(
        model, losses, 10_000, FlatPrior(), family, AdamDescent(0.05), average=0.95
    )


METHODS = {
    "sgd": lambda model, losses: SGD(model, losses, learning_rate=0.1),
    "sgld": lambda model, losses: SGLD(model, losses, step_size=0.01, dataset_size=10),
    "sghmc": lambda model, losses: SGHMC(model, losses, step_size=0.01, dataset_size=10, friction=0.3),
    "sgnht": lambda model, losses: SGNHT(
        model, losses, step_size=0.01, dataset_size=10, temperature=1e-6, diffusion=0.3
    ),
    "psgld": lambda model, losses: PSGLD(
        model, losses, step_size=0.005, dataset_size=10, temperature=1e-8, damping=0.5
    ),
    "mean-field variational inference": variational(MeanField()),
    "full-rank variational inference": variational(FullRank()),
    "bayes by backprop": lambda model, losses: bayes_by_backprop(model, losses, dataset_size=10_000, learning_rate=0.1),
    "mc dropout": lambda model, losses: MCDropout(nn.Sequential(nn.Dropout(0.0), model), losses, PlainDescent(0.1)),
}


def test_every_method_has_an_example():
    public = (getattr(inference, name) for name in inference.__all__)
    methods = {one for one in public if isinstance(one, type) and hasattr(one, "noise_stddev") and hasattr(one, "step")}
    here = {type(make(nn.Linear(2, 1), lambda model, batch: model(batch))) for make in METHODS.values()}
    assert here == methods - {inference.InferenceMethod}


@pytest.fixture(params=METHODS.values(), ids=METHODS)
def method(request):
    torch.manual_seed(0)
    model = nn.Linear(2, 1, bias=False)
    return request.param(model, lambda model, batch: 0.5 * (model(batch[0])[:, 0] - batch[1]).square())


def gradients(method, state, batch):
    params = {name: value.detach().requires_grad_() for name, value in method.params(state).items()}
    values = method.losses(params, batch)
    assert values.shape == (len(batch[0]),)
    found = torch.autograd.grad(values.mean(), list(params.values()))
    return dict(zip(params, found, strict=True))


def centre(method, state):
    """Where the method thinks the weights are; what it draws lies around it."""
    posterior = method.posterior(state) if isinstance(method, MakesPosterior) else None
    return posterior.mean if isinstance(posterior, GaussianPosterior) else method.params(state)


BATCH = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([2.0, -1.0])


def test_without_noise_it_finds_the_minimum(method):
    state = method.init()
    for _ in range(400):
        state = method.step(state, gradients(method, state, BATCH))
    (weight,) = centre(method, state).values()
    torch.testing.assert_close(weight.flatten()[:2], torch.tensor([2.0, -1.0]), rtol=0.02, atol=0.02)


def test_the_users_model_is_not_moved(method):
    before = copy.deepcopy(method.losses.model.state_dict())
    state = method.init()
    method.step(state, gradients(method, state, BATCH))
    for name, value in method.losses.model.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_step_changes_no_earlier_state(method):
    state = method.init()
    kept = {name: value.clone() for name, value in method.params(state).items()}
    method.step(state, gradients(method, state, BATCH))
    assert all(torch.equal(value, kept[name]) for name, value in method.params(state).items())


def test_the_noise_asked_for_is_on_the_sum(method):
    asked = method.noise_stddev(0, 10.0)
    assert asked is None or asked > 0


def test_its_state_survives_a_checkpoint_bit_by_bit(method, tmp_path):
    """Ten steps, a file, ten more steps: the same as twenty, with the same gradients."""
    generator = torch.Generator().manual_seed(7)
    shapes = {name: value.shape for name, value in method.params(method.init()).items()}
    noise = [{name: torch.randn(shape, generator=generator) for name, shape in shapes.items()} for _ in range(20)]

    def go_on(state, steps):
        for number in steps:
            found = gradients(method, state, BATCH)
            state = method.step(state, {name: found[name] + 0.1 * noise[number][name] for name in found})
        return state

    half = go_on(method.init(), range(10))
    Checkpoint(10, half, Head(0, "0" * 64), "").write(tmp_path / "checkpoint")
    again = read_checkpoint(tmp_path / "checkpoint", like=method.init()).content
    assert same(again, half)
    assert same(go_on(again, range(10, 20)), go_on(half, range(10, 20)))


def same(one, other):
    """Equal states: by the bits of tensors, by value otherwise."""
    tensors = {}, {}
    parts = [take_apart(state, found) for state, found in zip((one, other), tensors, strict=True)]
    return (
        type(one) is type(other)
        and parts[0] == parts[1]
        and all(torch.equal(tensors[0][name], tensors[1][name]) for name in tensors[0])
    )


@pytest.fixture
def plan(method, tmp_path):
    noise = None if method.noise_stddev(0, 2.0) is not None else tacit.GaussianNoise(multiplier=1.0)
    sampling = tacit.PoissonSampling(probability=1.0, expected_size=2)
    return tacit.TrainingPlan(sampling, tacit.ClipRecords(1.0), noise, 12, tmp_path / "ledger.jsonl", block=4)


def stop_after(step):
    def stop(number):
        if number == step:
            raise KeyboardInterrupt

    return stop


def test_a_stopped_run_goes_on_and_every_release_is_charged_once(method, plan, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    with pytest.raises(KeyboardInterrupt):
        tacit.train(method, BATCH, plan, checkpoint=checkpoint, on_step=stop_after(5))
    assert tacit.read_ledger(plan.ledger).steps == 6
    seen = []
    run = tacit.train(method, BATCH, plan, checkpoint=checkpoint, resume=True, on_step=seen.append)
    assert seen == list(range(6, 12))
    assert run.ledger.steps == run.ledger.planned_steps == 12
    assert run.ledger.runs == 1


def test_after_a_kill_no_release_is_forgotten(method, plan, tmp_path, monkeypatch):
    """What a kill leaves: the charged block of 4, the checkpoint of step 5, and nothing that was to follow."""

    def kill(step):
        if step == 6:
            monkeypatch.setattr("tacit.ledger.LedgerFile.settle", lambda *_: None)
            monkeypatch.setattr(Checkpoint, "write", lambda *_: None)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tacit.train(method, BATCH, plan, checkpoint=tmp_path / "checkpoint", checkpoint_every=5, on_step=kill)
    monkeypatch.undo()
    assert tacit.read_ledger(plan.ledger).steps == 8
    seen = []
    run = tacit.train(method, BATCH, plan, checkpoint=tmp_path / "checkpoint", resume=True, on_step=seen.append)
    assert seen == list(range(5, 12))
    assert run.ledger.steps == 8 + 7  # 7 releases before the kill, 7 after it


def test_a_state_alone_decides_what_comes_next(method):
    """What a checkpoint keeps is enough: the same state and gradient give the same next state, in another object."""
    state = method.step(method.init(), gradients(method, method.init(), BATCH))
    again = copy.deepcopy(state)
    gradient = gradients(method, state, BATCH)
    one, other = method.params(method.step(state, gradient)), method.params(method.step(again, gradient))
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_a_posterior_of_its_own_has_draws(method):
    if isinstance(method, MakesPosterior):
        posterior = method.posterior(method.init())
        draw = next(iter(posterior))
        assert len(posterior) > 1
        assert {name: v.shape for name, v in draw.items()} == {n: p.shape for n, p in method.losses.params.items()}
