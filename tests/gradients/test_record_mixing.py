"""Ten layers that mix records are refused, ten that do not are accepted (failure-modes F4)."""

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from tacit.errors import InputError, LossesError, RecordMixingError
from tacit.layers import refuse_layers, replace_batch_norm
from tacit.losses import ModelLosses
from tacit.mechanisms import ClipRecords, GaussianNoise, build_mechanism
from tacit.training.before_the_run import try_out


class Apply(nn.Module):
    """Any function of the batch, with a parameter in front so that there is a gradient to look at."""

    def __init__(self, function):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4, 6))
        self.function = function

    def forward(self, x):
        return self.function(x * self.scale)


class Attend(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=batch_first)

    def forward(self, x):
        return self.attention(x, x, x)[0]


def contrastive(x):
    flat = x.flatten(1)
    return (flat @ flat.T / 100).softmax(1)


MIXING = {
    "BatchNorm1d": nn.BatchNorm1d(4),
    "BatchNorm without statistics": nn.BatchNorm1d(4, track_running_stats=False).eval(),
    "SyncBatchNorm": nn.SyncBatchNorm(4),
    "InstanceNorm that keeps statistics": nn.InstanceNorm1d(4, affine=True, track_running_stats=True),
    "batch mean": Apply(lambda x: x - x.mean(0)),
    "softmax over the batch": Apply(lambda x: x.softmax(0)),
    "running sum": Apply(lambda x: x.cumsum(0)),
    "the record before": Apply(lambda x: x * torch.roll(x, 1, 0)),
    "attention over the batch": Attend(batch_first=False),
    "contrastive": Apply(contrastive),
}
GOOD = {
    "Linear": nn.Linear(6, 3),
    "Conv1d": nn.Conv1d(4, 2, 3),
    "LayerNorm": nn.LayerNorm(6),
    "GroupNorm": nn.GroupNorm(2, 4),
    "InstanceNorm1d": nn.InstanceNorm1d(4, affine=True),
    "BatchNorm in evaluation mode": nn.BatchNorm1d(4).eval(),
    "attention over the sequence": Attend(batch_first=True),
    "GRU": nn.GRU(6, 3, batch_first=True),
    "dropout": nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)),
    "mean over positions": Apply(lambda x: x - x.mean(1, keepdim=True)),
}


def losses(model, x):
    out = model(x)
    out = out[0] if isinstance(out, tuple) else out
    return out.flatten(1).square().sum(1)


def check(model, losses=losses, like=None, **options):
    wrapped = ModelLosses(model, losses)
    shapes = {name: value.shape for name, value in wrapped.params.items()}
    mechanism = build_mechanism(ClipRecords(1.0), GaussianNoise(multiplier=1.0), shapes, slack=1e-5)
    like = torch.zeros(1, 4, 6) if like is None else like
    return try_out(wrapped, {n: p.detach() for n, p in wrapped.params.items()}, like, mechanism, **options)


@pytest.mark.parametrize("name", MIXING)
def test_mixing_layers_are_refused(name):
    with pytest.raises(RecordMixingError):
        check(MIXING[name])


@pytest.mark.parametrize("name", GOOD)
def test_good_layers_are_accepted(name):
    check(GOOD[name])


def test_the_refusal_names_the_layer_and_the_remedy():
    with pytest.raises(RecordMixingError, match=r"layer 1 is BatchNorm1d.*replace_batch_norm"):
        refuse_layers(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))


def test_the_remedy_works_on_a_copy():
    model = nn.Sequential(nn.Conv1d(4, 6, 3), nn.Sequential(nn.BatchNorm1d(6), nn.ReLU()))
    fixed = replace_batch_norm(model)
    refuse_layers(fixed)
    assert isinstance(model[1][0], nn.BatchNorm1d)
    assert isinstance(fixed[1][0], nn.GroupNorm)
    assert fixed(torch.randn(2, 4, 8)).shape == (2, 6, 6)


def picky(model, x):
    if x.min() < 0:
        raise ValueError("negative input")
    return losses(model, x - x.mean(0))


def test_a_model_that_rejects_generated_inputs_can_be_tried_on_a_public_example():
    model = nn.Linear(6, 1)
    check(model, picky)
    with pytest.raises(RecordMixingError, match="whole batch"):
        check(model, picky, torch.rand(5, 4, 6), public=True)
    with pytest.raises(InputError, match="the public example"):
        check(model, lambda model, x: model(x[:, :, :2]), torch.rand(5, 4, 6), public=True)


def test_the_probe_leaves_the_model_and_the_global_random_state_alone():
    model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5))
    state = torch.get_rng_state()
    check(model)
    assert (torch.get_rng_state() == state).all()
    assert all(p.grad is None for p in model.parameters())


def test_weights_that_a_hook_sets_are_refused_with_what_to_use_instead():
    pruned = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    prune.l1_unstructured(pruned[1], "weight", 0.5)
    with pytest.raises(LossesError, match=r"layer 1 has its weights set anew .* by L1Unstructured; .*prune.remove"):
        refuse_layers(pruned)
    prune.remove(pruned[1], "weight")
    refuse_layers(pruned)
