"""The path that reads a verified plan off autograd's graph: taken where it is right, left where it is not."""

import pytest
import torch
from conftest import classify
from torch import nn

from tacit.gradients import by_graph, clipped_sum
from tacit.gradients.plans import plans_of
from tacit.losses import ModelLosses
from tacit.mechanisms import ClipLayers, ClipRecords, GaussianNoise, build_mechanism

pytestmark = pytest.mark.skipif(by_graph._kernels() is None, reason="no compiler")


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


def batch(records=24, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(records, 5, generator=generator), torch.randint(0, 3, (records,), generator=generator)


def summed(losses, data, clipping=None, strategy="auto"):
    shapes = {name: value.shape for name, value in losses.params.items()}
    mechanism = build_mechanism(clipping or ClipRecords(0.3), GaussianNoise(multiplier=1.0), shapes, slack=1e-4)
    return clipped_sum(losses, losses.params, data, mechanism, chunk=1000, strategy=strategy)


def assert_same(one, other, tolerance=1e-6):
    torch.testing.assert_close(one.squared_norms, other.squared_norms, rtol=1e-5, atol=1e-12)
    for name, value in other.sums.items():
        torch.testing.assert_close(one.sums[name].double(), value.double(), rtol=1e-5, atol=tolerance)


@pytest.fixture
def taken(monkeypatch):
    """The sums that were formed on this path."""
    found, form = [], by_graph._clip_and_sum

    def form_and_note(*arguments):
        found.append(form(*arguments))
        return found[-1]

    monkeypatch.setattr(by_graph, "_clip_and_sum", form_and_note)
    return found


def test_it_is_taken_once_the_plan_is_verified_and_equals_vmap(taken):
    losses = ModelLosses(network(), classify)
    for step in range(4):
        data = batch(24 + step, seed=step)
        assert_same(summed(losses, data), summed(losses, data, strategy="vmap"))
    assert len(taken) >= 2


def test_nothing_is_left_on_the_model(taken):
    model = network()
    losses = ModelLosses(model, classify)
    for _ in range(3):
        summed(losses, batch())
    assert taken
    assert all(p.grad is None for p in model.parameters())
    assert not any(m._forward_hooks or m._backward_hooks for m in model.modules())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30, -3e38])
def test_a_record_without_a_finite_norm_is_left_out(taken, value):
    losses = ModelLosses(network(), classify)
    for _ in range(2):
        summed(losses, batch())
    x, y = batch()
    bad = x.clone()
    bad[5] = value
    keep = torch.arange(len(x)) != 5
    found, wanted = summed(losses, (bad, y)), summed(losses, (x[keep], y[keep]), strategy="vmap")
    assert taken
    for name, total in wanted.sums.items():
        torch.testing.assert_close(found.sums[name].double(), total, rtol=1e-5, atol=1e-6)


def test_another_graph_goes_the_usual_way(taken):
    model = network()
    double = {"on": False}

    def losses_of(model, data):
        hidden = model(data[0])
        if double["on"]:
            hidden = hidden + model(2 * data[0])  # every layer is now used twice
        return nn.functional.cross_entropy(hidden, data[1], reduction="none")

    losses = ModelLosses(model, losses_of)
    for _ in range(3):
        summed(losses, batch())
    before = len(taken)
    double["on"] = True
    assert_same(summed(losses, batch()), summed(losses, batch(), strategy="vmap"))
    assert len(taken) == before > 0


def test_mixed_rows_are_never_trusted(taken):
    model = network()

    def losses_of(model, data):
        return nn.functional.cross_entropy(model(data[0].flip(0)), data[1].flip(0), reduction="none").flip(0)

    losses = ModelLosses(model, losses_of)
    for _ in range(3):
        assert_same(summed(losses, batch()), summed(losses, batch(), strategy="vmap"))
    assert not taken


def test_a_parameter_that_is_changed_during_the_forward_pass_is_noticed(taken):
    model = network()
    change = {"on": False}

    def losses_of(model, data):
        values = classify(model, data)
        if change["on"]:
            with torch.no_grad():
                model[0].bias.add_(1.0)
        return values

    losses = ModelLosses(model, losses_of)
    for _ in range(3):
        summed(losses, batch())
    before, change["on"] = len(taken), True
    summed(losses, batch())
    assert len(taken) == before > 0


@pytest.mark.parametrize("kind", ["layers", "double", "wide"])
def test_what_it_does_not_cover_goes_the_usual_way(taken, kind):
    model = network().double() if kind == "double" else network()
    model = nn.Sequential(nn.Linear(5, 3000), nn.ReLU(), nn.Linear(3000, 3)) if kind == "wide" else model
    x, y = batch(256)
    data = (x.double(), y) if kind == "double" else (x, y)
    losses, clipping = ModelLosses(model, classify), ClipLayers(0.3) if kind == "layers" else None
    for _ in range(3):
        assert_same(summed(losses, data, clipping), summed(losses, data, clipping, strategy="vmap"))
    assert not taken
    assert not plans_of(losses).graph


def test_no_record_exceeds_the_clip():
    losses = ModelLosses(network(), classify)
    for _ in range(2):
        summed(losses, batch())
    for index in range(6):
        x, y = batch(seed=9)
        found = summed(losses, (1e3 * x[index : index + 1], y[index : index + 1]), ClipRecords(0.3))
        assert sum(float(value.double().square().sum()) for value in found.sums.values()) ** 0.5 <= 0.3
