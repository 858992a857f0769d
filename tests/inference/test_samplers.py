"""What the samplers have in common: where their noise comes from, and what they refuse."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import tacit
from tacit.errors import InputError

N = 100
SAMPLERS = {
    "sgld": tacit.SGLD,
    "sghmc": tacit.inference.SGHMC,
    "sgnht": tacit.inference.SGNHT,
    "psgld": tacit.inference.PSGLD,
}


def losses(model, batch):
    return model(batch).square().sum(1)


def build(kind, **arguments):
    return kind(nn.Linear(2, 1, bias=False), losses, **{"step_size": 1e-4, "dataset_size": N, **arguments})


@pytest.fixture(params=SAMPLERS.values(), ids=SAMPLERS)
def kind(request):
    return request.param


@pytest.mark.parametrize(
    "arguments",
    [
        {"dataset_size": 0},
        {"step_size": 0.0},
        {"step_size": math.nan},
        {"temperature": -1.0},
        {"temperature": math.inf},
        {"noise": "none"},
        {"seed": 1.5},
        {"seed": True},
    ],
)
def test_bad_arguments_are_refused(kind, arguments):
    with pytest.raises(InputError, match=next(iter(arguments))):
        build(kind, **arguments)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (tacit.inference.SGHMC, {"friction": 0.0}),
        (tacit.inference.SGHMC, {"friction": 1.1}),
        (tacit.inference.SGNHT, {"diffusion": math.nan}),
        (tacit.inference.SGNHT, {"temperature": None}),
        (tacit.inference.PSGLD, {"temperature": None}),
        (tacit.inference.PSGLD, {"damping": 0.0}),
        (tacit.inference.PSGLD, {"decay": 1.0}),
        (tacit.inference.PSGLD, {"adapt_steps": 0}),
    ],
)
def test_bad_arguments_of_their_own_are_refused(kind, arguments):
    with pytest.raises(InputError, match=next(iter(arguments))):
        build(kind, **arguments)


def test_with_planned_noise_none_is_asked_for(kind):
    assert build(kind).noise_stddev(0, 10.0) > 0
    assert build(kind, noise="planned").noise_stddev(0, 10.0) is None


def test_planned_noise_must_be_told(kind):
    method = build(kind, noise="planned")
    with pytest.raises(InputError, match="mean_noise"):
        method.step(method.init(), {"weight": torch.zeros(1, 2)})


def test_the_ledger_holds_the_noise_that_was_asked_for(kind, tmp_path):
    method = build(kind)
    plan = tacit.TrainingPlan(tacit.PoissonSampling(0.2, 20), tacit.ClipRecords(1.5), None, 3, tmp_path / "l")
    run = tacit.train(method, torch.randn(N, 2), plan)
    ((event, steps),) = run.ledger.merged().items()
    assert steps == 3
    assert event.queries[0].noise_stddev == method.noise_stddev(0, 20.0)


@pytest.mark.parametrize(
    ("kind", "factor"),
    [(tacit.SGLD, 1.0), (tacit.inference.SGHMC, 0.1), (tacit.inference.SGNHT, 0.1), (tacit.inference.PSGLD, 0.01)],
)
def test_the_noise_asked_for_is_that_of_its_formula(kind, factor):
    """s = B sqrt(2 temperature x / eta) / n, x being 1, the friction, the diffusion and the damping."""
    wanted = 20 * math.sqrt(2 * 0.7 * factor / 1e-4) / N
    assert build(kind, temperature=0.7).noise_stddev(0, 20.0) == pytest.approx(wanted)


def test_noise_on_top_depends_on_seed_and_step_only(kind):
    method = build(kind, noise="planned").with_mean_noise({"weight": 0.0})
    state, gradient = method.init(), {"weight": torch.zeros(1, 2)}
    moved = method.step(state, gradient).params["weight"]
    assert torch.equal(method.step(state, gradient).params["weight"], moved)
    assert not torch.equal(replace(method, seed=1).step(state, gradient).params["weight"], moved)
    assert not torch.equal(method.step(replace(state, step=1), gradient).params["weight"], moved)


def test_large_noise_shrinks_the_step_and_nothing_is_added():
    """Temperature 1 forces eta = 2 q^2 / (z C)^2; here V = (100 * 3)^2."""
    method = build(tacit.SGLD, noise="planned", step_size=1.0).with_mean_noise({"weight": 3.0})
    state = method.init()
    moved = method.step(state, {"weight": torch.ones(1, 2)})
    eta = 2 / 300.0**2
    torch.testing.assert_close(moved.params["weight"], state.params["weight"] - eta * N)


def test_small_noise_takes_the_stable_step_and_adds_the_rest():
    model = nn.Linear(100, 1000, bias=False)
    method = tacit.SGLD(model, losses, step_size=1e-4, dataset_size=N, noise="planned").with_mean_noise({"weight": 1.0})
    state = method.init()
    added = (method.step(state, {"weight": torch.zeros(1000, 100)}).params["weight"] - state.params["weight"]).var()
    assert float(added) == pytest.approx(2 * 1e-4 - 1e-4**2 * 100.0**2, rel=0.02)


def test_friction_follows_the_plans_noise():
    """beta = eta V / 2 = 0.5 is more than the least friction: it becomes the friction, and nothing is added."""
    method = build(tacit.inference.SGHMC, noise="planned", step_size=1e-4, friction=0.1).with_mean_noise(
        {"weight": 1.0}
    )
    state = replace(method.init(), velocity={"weight": torch.ones(1, 2)})
    moved = method.step(state, {"weight": torch.zeros(1, 2)})
    torch.testing.assert_close(moved.velocity["weight"], torch.full((1, 2), 0.5))


def test_sghmc_without_memory_is_sgld():
    gradient = {"weight": torch.tensor([[0.3, -0.2]])}
    langevin, hamiltonian = build(tacit.SGLD), build(tacit.inference.SGHMC, friction=1.0)
    hamiltonian = replace(hamiltonian, model=langevin.model)
    assert hamiltonian.noise_stddev(0, 20.0) == langevin.noise_stddev(0, 20.0)
    states = [method.init() for method in (langevin, hamiltonian)]
    for _ in range(3):
        states = [method.step(s, gradient) for method, s in zip((langevin, hamiltonian), states, strict=True)]
    torch.testing.assert_close(states[0].params["weight"], states[1].params["weight"])


def test_groups_with_different_noise_each_get_their_own_rest():
    """The step is that of the noisiest group; the others are filled up to the same temperature."""
    model = nn.Sequential(nn.Linear(100, 500, bias=False), nn.Linear(500, 100, bias=False))
    noise = {"0.weight": 2.0, "1.weight": 1.0}
    method = tacit.SGLD(model, losses, step_size=1.0, dataset_size=N, noise="planned").with_mean_noise(noise)
    state = method.init()
    moved = method.step(state, {name: torch.zeros_like(value) for name, value in state.params.items()})
    eta = 2 / 200.0**2
    change = {name: float((moved.params[name] - state.params[name]).var()) for name in state.params}
    assert change["0.weight"] == 0
    assert change["1.weight"] == pytest.approx(2 * eta - eta**2 * 100.0**2, rel=0.03)


def test_a_frozen_preconditioner_stays():
    method = build(tacit.inference.PSGLD, adapt_steps=2)
    state = method.init()
    seen = []
    for step in range(5):
        state = method.step(state, {"weight": torch.full((1, 2), float(step + 1))})
        seen.append(state.squares["weight"])
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(seen[1], seen[4])
