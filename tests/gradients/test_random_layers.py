"""Models with chance inside: every record has masks of its own, and its clipped gradient is the one of those masks."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, dropout

import tacit
from tacit.gradients import clipped_sum
from tacit.gradients.plans import plans_of
from tacit.losses import ModelLosses
from tacit.mechanisms import build_mechanism

RECORDS, CLIP = 12, 0.3


def losses(model, batch):
    return cross_entropy(model(batch[0]), batch[1], reduction="none")


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.second(dropout(self.first(x).relu(), 0.5, self.training))


MODELS = {
    "mlp": nn.Sequential(nn.Dropout(0.2), nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)),
    "few units": nn.Sequential(nn.Linear(6, 2), nn.Dropout(0.5), nn.Linear(2, 3)),
    "convolution": nn.Sequential(
        nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 3), nn.Dropout1d(0.5), nn.Flatten(), nn.Linear(16, 3)
    ),
    "functional": Functional(),
}


@pytest.fixture(params=MODELS)
def case(request):
    model = MODELS[request.param].train()
    wrapped = ModelLosses(model, losses)
    params = {name: p.detach().clone() for name, p in wrapped.params.items()}
    shapes = {name: p.shape for name, p in params.items()}
    noise = tacit.GaussianNoise(multiplier=1.0)
    mechanism = build_mechanism(tacit.ClipRecords(CLIP), noise, shapes, slack=1e-5)
    return wrapped, params, (torch.randn(RECORDS, 6), torch.randint(0, 3, (RECORDS,))), mechanism


def by_hand(wrapped, params, batch):
    """Clip every record's gradient from one forward pass of the batch, with the masks that are drawn in it."""
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    total = {name: torch.zeros_like(value) for name, value in params.items()}
    for value in wrapped(leaves, batch):
        found = torch.autograd.grad(value, list(leaves.values()), retain_graph=True)
        factor = min(1.0, CLIP / float(torch.cat([part.flatten() for part in found]).norm()))
        for name, part in zip(leaves, found, strict=True):
            total[name] += factor * part
    return total


@pytest.mark.parametrize("strategy", ["ghost", "vmap"])
def test_the_clipped_sum_is_that_of_the_same_masks(case, strategy):
    wrapped, params, batch, mechanism = case
    clipped_sum(wrapped, params, batch, mechanism, chunk=RECORDS, strategy=strategy)  # the plan is verified here
    torch.manual_seed(5)
    wanted = by_hand(wrapped, params, batch)
    torch.manual_seed(5)
    found = clipped_sum(wrapped, params, batch, mechanism, chunk=RECORDS, strategy=strategy).sums
    for name, value in wanted.items():
        torch.testing.assert_close(found[name].float(), value, rtol=1e-4, atol=1e-6)


def test_the_fast_path_is_never_given_up_for_chance(case):
    wrapped, params, batch, mechanism = case
    for seed in range(20):
        torch.manual_seed(seed)
        plans_of(wrapped).layouts.clear()
        clipped_sum(wrapped, params, batch, mechanism, chunk=RECORDS, strategy="ghost")
    assert not plans_of(wrapped).uncovered


@pytest.mark.parametrize("strategy", ["ghost", "vmap"])
def test_equal_records_have_masks_of_their_own(strategy):
    model = nn.Sequential(nn.Linear(6, 30), nn.Dropout(0.5), nn.Linear(30, 3))
    wrapped = ModelLosses(model, losses)
    params = {name: p.detach() for name, p in wrapped.params.items()}
    shapes = {name: p.shape for name, p in params.items()}
    mechanism = build_mechanism(tacit.ClipRecords(1e6), tacit.GaussianNoise(multiplier=1.0), shapes, slack=1e-5)
    batch = torch.ones(RECORDS, 6), torch.zeros(RECORDS, dtype=torch.long)
    norms = clipped_sum(wrapped, params, batch, mechanism, chunk=RECORDS, strategy=strategy).squared_norms.sum(1)
    assert len(norms.unique()) == RECORDS


def test_a_detached_statistic_of_the_batch_is_still_found_beside_dropout_that_is_off():
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3)).eval()

    def centred(model, batch):
        return losses(model, (batch[0] - batch[0].mean(0).detach(), batch[1]))

    wrapped = ModelLosses(model, centred)
    params = {name: p.detach() for name, p in wrapped.params.items()}
    shapes = {name: p.shape for name, p in params.items()}
    mechanism = build_mechanism(tacit.ClipRecords(1.0), tacit.GaussianNoise(multiplier=1.0), shapes, slack=1e-5)
    batch = torch.randn(RECORDS, 6), torch.zeros(RECORDS, dtype=torch.long)
    with pytest.raises(Exception, match="depends on the others"):
        clipped_sum(wrapped, params, batch, mechanism, chunk=RECORDS, strategy="ghost")
