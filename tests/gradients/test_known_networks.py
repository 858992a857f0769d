"""Small dense networks: the formula gives what the general way gives, by kernel and by PyTorch."""

import numpy as np
import pytest
import torch
from torch import nn

from tacit.errors import InputError
from tacit.gradients import clipped_sum
from tacit.gradients.known_networks import linear_model
from tacit.kernels import dense
from tacit.likelihoods import Bernoulli, Categorical, Counts, Gaussian, Weighed
from tacit.losses import ModelLosses
from tacit.mechanisms import SLACK, AdaptiveClip, ClipLayers, ClipRecords, GaussianNoise, build_mechanism
from tacit.training.before_the_run import rounds_by_place

AT_ONE = ClipRecords(1.0)
KINDS = {
    "yes or no": (Bernoulli(), 1),
    "classes": (Categorical(), 4),
    "numbers": (Gaussian(0.7), 1),
    "weighed": (Weighed(Bernoulli()), 1),
    "counts": (Counts(2.0), 1),
}


def problem(kind, rows=90, bias=True, seed=0):
    likelihood, outputs = KINDS[kind]
    torch.manual_seed(seed)
    model = nn.Linear(7, outputs, bias=bias)
    targets = torch.randn(rows) if kind in ("numbers", "counts") else torch.randint(0, max(2, outputs), (rows,))
    return ModelLosses(model, likelihood), (3 * torch.randn(rows, 7), targets)


def mechanism_of(losses, clipping=AT_ONE):
    shapes = {name: value.shape for name, value in losses.params.items()}
    return build_mechanism(clipping, GaussianNoise(multiplier=1.0), shapes, slack=SLACK)


def both(losses, batch, clipping=AT_ONE, **more):
    """By the formula, which "auto" takes, and by the general way."""
    mechanism = mechanism_of(losses, clipping)
    assert linear_model(losses, losses.params).arguments(losses.params, batch) is not None
    return [
        clipped_sum(losses, losses.params, batch, mechanism, chunk=64, strategy=how, **more) for how in ("auto", "fast")
    ]


def assert_same(one, other):
    for name, value in one.sums.items():
        torch.testing.assert_close(value, other.sums[name], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(one.squared_norms, other.squared_norms, rtol=1e-5, atol=1e-10, equal_nan=True)


@pytest.fixture(params=["kernel", "PyTorch"])
def how(request, monkeypatch):
    if request.param == "PyTorch":
        monkeypatch.setattr("tacit.gradients.dense_rows.dense_rows", lambda *given: None)
    elif dense.KERNEL.calls() is None:
        pytest.skip("there is no kernel here")


CLIPS = [AT_ONE, ClipRecords(0.3, rule="normalise"), ClipLayers(0.5), AdaptiveClip(initial=0.4, count_noise=9.0)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("clipping", CLIPS)
def test_the_formula_gives_what_the_general_way_gives(kind, bias, clipping, how):
    losses, batch = problem(kind, bias=bias)
    assert_same(*both(losses, batch, clipping))


@pytest.mark.parametrize("kind", KINDS)
def test_users_with_several_rows_and_views(kind):
    losses, (inputs, targets) = problem(kind)
    assert_same(*both(losses, (inputs, targets), sizes=[3] * 20 + [1] * 30))
    views = inputs.view(30, 3, 7), targets.view(30, 3)
    found = [
        clipped_sum(losses, losses.params, views, mechanism_of(losses), chunk=64, views=3, strategy=how)
        for how in ("auto", "fast")
    ]
    assert_same(*found)


def test_a_frozen_bias_is_used_and_not_trained():
    losses, batch = problem("yes or no")
    losses.model.bias.requires_grad_(False)
    found = both(losses, batch)
    assert found[0].sums.keys() == {"weight"}
    assert_same(*found)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_number_or_no_class_contributes_nothing(kind, how):
    losses, (inputs, targets) = problem(kind)
    whole = mechanism_of(losses)
    wanted = clipped_sum(losses, losses.params, (inputs[4:], targets[4:]), whole, chunk=64)
    inputs[0, 3], inputs[1, 0] = torch.nan, torch.inf
    inputs[2] = 1e38  # overflows
    if kind == "classes":
        targets[2], targets[3] = -7, 4
    else:
        targets = targets.float()
        targets[3] = torch.nan
        inputs[2] = torch.inf
    found = clipped_sum(losses, losses.params, (inputs, targets), whole, chunk=64)
    for name, value in found.sums.items():
        torch.testing.assert_close(value, wanted.sums[name], rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(rounds_by_place(), reason="products were formed before tacit was imported")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_record_is_the_same_to_the_last_bit_in_any_company(kind, threads, how):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        losses, (inputs, targets) = problem(kind, rows=300)
        mechanism, seen = mechanism_of(losses), set()
        for company in ([5], [5, 7], range(70), range(1, 290), [*range(6, 290), 5], range(3, 34)):
            places = torch.tensor(list(company))
            found = clipped_sum(losses, losses.params, (inputs[places], targets[places]), mechanism, chunk=128)
            seen.add(found.squared_norms[list(company).index(5)].numpy().tobytes())
        assert len(seen) == 1
    finally:
        torch.set_num_threads(before)


class Mixing(Bernoulli):
    def __call__(self, model, batch):
        return super().__call__(model, batch)


def hooked():
    model = nn.Linear(7, 1)
    model.register_forward_hook(lambda *given: None)
    return model


def patched():
    model = nn.Linear(7, 1)
    model.forward = lambda x: x.sum(1, keepdim=True)
    return model


@pytest.mark.parametrize(
    ("model", "likelihood"),
    [
        (nn.Linear(7, 1), Mixing()),
        (nn.Linear(7, 1), lambda model, batch: Bernoulli()(model, batch)),
        (nn.Linear(7, 1), Categorical()),
        (nn.Linear(7, 2), Bernoulli()),
        (nn.Sequential(nn.Linear(7, 1)), Bernoulli()),
        (nn.utils.parametrizations.weight_norm(nn.Linear(7, 1)), Bernoulli()),
        (nn.Linear(7, 1).double(), Bernoulli()),
        (hooked(), Bernoulli()),
        (patched(), Bernoulli()),
    ],
)
def test_all_else_takes_the_general_way(model, likelihood):
    losses = ModelLosses(model, likelihood)
    model = linear_model(losses, losses.params)
    assert model is None or model.arguments(losses.params, (torch.ones(3, 7), torch.ones(3))) is None


@pytest.mark.parametrize(
    "batch",
    [
        (np.ones((3, 7)), torch.ones(3)),
        (torch.ones(3, 7), torch.ones(3, 1)),
        (torch.ones(3, 7).double(), torch.ones(3)),
        (torch.ones(3, 2, 7), torch.ones(3)),
        {"inputs": torch.ones(3, 7)},
    ],
)
def test_batches_of_another_form_take_the_general_way(batch):
    losses = ModelLosses(nn.Linear(7, 1), Bernoulli())
    assert linear_model(losses, losses.params).arguments(losses.params, batch) is None


@pytest.mark.parametrize("way", ["backward", "backward_pre"])
def test_backward_hooks_of_all_modules_are_refused(way):
    losses, batch = problem("classes")
    hooks = torch.nn.modules.module
    add = {
        "backward": hooks.register_module_full_backward_hook,
        "backward_pre": hooks.register_module_full_backward_pre_hook,
    }
    handle = add[way](lambda *given: None)
    try:
        with pytest.raises(InputError, match="hook of all modules"):
            clipped_sum(losses, losses.params, batch, mechanism_of(losses), chunk=64)
    finally:
        handle.remove()
