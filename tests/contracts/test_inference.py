"""What every registered inference method must do, run on all of them."""

import copy

import pytest
import torch
from torch import nn

from tacit.inference import INFERENCE_METHODS, MakesPosterior
from tacit.posteriors import GaussianPosterior


@pytest.fixture(params=INFERENCE_METHODS.values(), ids=INFERENCE_METHODS)
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


def test_noise_is_a_wish_on_the_sum(method):
    wish = method.noise_stddev(0, 10.0)
    assert wish is None or wish > 0


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
