"""Models with chance inside: every record has masks of its own, and its clipped gradient is the one of those masks."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, dropout

import tacit
from tacit.gradients import clipped_sum
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


@pytest.mark.parametrize("kept", [range(RECORDS), range(1, RECORDS), [3, 7, 8]])
def test_a_records_masks_do_not_depend_on_the_others(case, kept):
    wrapped, params, batch, mechanism = case
    chance = tacit.Randomness.seeded(5).record_chance(np.arange(RECORDS))
    norms = [
        clipped_sum(
            wrapped, params, tuple(part[list(some)] for part in batch), mechanism, chunk=5, chance=chance.take(some),
            strategy="fast",
        ).squared_norms
        for some in (np.arange(RECORDS), np.array(kept))
    ]  # fmt: skip
    torch.testing.assert_close(norms[0][list(kept)], norms[1], rtol=1e-6, atol=0.0)


def test_masks_are_those_of_dropout():
    model = nn.Sequential(nn.Dropout(0.25), nn.Linear(4000, 1, bias=False))
    wrapped = ModelLosses(model, lambda model, x: model(x)[:, 0])
    mechanism = build_mechanism(
        tacit.ClipRecords(1e6), tacit.GaussianNoise(multiplier=1.0), {"1.weight": torch.Size([1, 4000])}, slack=1e-5
    )
    total = clipped_sum(wrapped, wrapped.params, torch.ones(30, 4000), mechanism, chunk=30).sums["1.weight"]
    assert set(((total * 0.75) % 1).round(decimals=4).flatten().tolist()) <= {0.0, 1.0}  # kept entries are 1 / .75
    assert abs(float(total.mean()) / 30 - 1) < 0.01
    assert len(total.unique()) > 10


@pytest.mark.parametrize("strategy", ["fast", "record"])
def test_equal_records_have_masks_of_their_own(strategy):
    model = nn.Sequential(nn.Linear(6, 30), nn.Dropout(0.5), nn.Linear(30, 3))
    wrapped = ModelLosses(model, losses)
    params = {name: p.detach() for name, p in wrapped.params.items()}
    shapes = {name: p.shape for name, p in params.items()}
    mechanism = build_mechanism(tacit.ClipRecords(1e6), tacit.GaussianNoise(multiplier=1.0), shapes, slack=1e-5)
    batch = torch.ones(RECORDS, 6), torch.zeros(RECORDS, dtype=torch.long)
    norms = clipped_sum(wrapped, params, batch, mechanism, chunk=RECORDS, strategy=strategy).squared_norms.sum(1)
    assert len(norms.unique()) == RECORDS
