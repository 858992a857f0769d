"""A record's gradient is bit for bit the same whatever the others are, how many, and where it lies among them."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from tacit.gradients import clipped_sum
from tacit.losses import ModelLosses
from tacit.mechanisms import ClipRecords, GaussianNoise, build_mechanism
from tacit.randomness import Randomness
from tacit.training.before_the_run import rounds_by_place

pytestmark = pytest.mark.skipif(rounds_by_place(), reason="products were formed before tacit was imported")


class Recurrent(nn.Module):
    def __init__(self, cells):
        super().__init__()
        self.cells = cells

    def forward(self, x):
        return self.cells(x)[0][:, -1]


class Then(nn.Module):
    """A function of a layer's outputs and of a parameter."""

    def __init__(self, outputs, function):
        super().__init__()
        self.layer, self.function = nn.Linear(7, outputs), function
        self.power = nn.Parameter(torch.rand(outputs) + 0.5)

    def forward(self, x):
        return self.function(self.layer(x), self.power)


class Experts(nn.Module):
    """Each position goes to the expert of its largest feature."""

    def __init__(self):
        super().__init__()
        self.first, self.weights = nn.Linear(8, 8), nn.Parameter(torch.randn(3, 8, 20))

    def forward(self, x):
        z = torch.tanh(self.first(x)).flatten(0, 1)
        order = z[:, :3].argmax(1).sort()
        ends = torch.histc(order.values.float(), 3, 0, 2).cumsum(0).to(torch.int32)
        return nn.functional.grouped_mm(z[order.indices], self.weights, offs=ends)[None]


MODELS = {
    "special functions": (lambda: Then(3, lambda z, p: torch.special.expit(z) + torch.special.exp2(z)), (7,)),
    "powers of a parameter": (lambda: Then(11, lambda z, p: z.abs().add(0.1) ** p), (7,)),
    "odd widths": (lambda: nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3)), (6,)),
    "one output": (lambda: nn.Linear(33, 1), (33,)),
    "one probability": (lambda: nn.Sequential(nn.Linear(7, 1), nn.Sigmoid()), (7,)),
    "gates": (lambda: nn.Sequential(nn.Linear(7, 11), nn.Sigmoid(), nn.Linear(11, 13), nn.SiLU(), nn.Softmax(1)), (7,)),
    "wide": (lambda: nn.Sequential(nn.Linear(100, 130), nn.GELU(), nn.Linear(130, 10)), (100,)),
    "positions": (lambda: nn.Sequential(nn.Linear(10, 7), nn.Tanh(), nn.Linear(7, 3)), (5, 10)),
    "many positions": (lambda: nn.Sequential(nn.Linear(20, 8), nn.Tanh(), nn.Linear(8, 30)), (13, 20)),
    "dropout": (lambda: nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3)), (6,)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(3, 5, 3), nn.GroupNorm(1, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                              nn.Linear(45, 3)), (3, 9, 9)),
    "depthwise": (lambda: nn.Sequential(nn.Conv2d(6, 12, 3, groups=6), nn.ELU(), nn.ConvTranspose2d(12, 4, 3)),
                  (6, 7, 7)),
    "pointwise": (lambda: nn.Sequential(nn.Conv2d(8, 16, 1), nn.ReLU(), nn.Conv2d(16, 4, 1, stride=2)), (8, 5, 5)),
    "attention": (lambda: nn.TransformerEncoderLayer(6, 2, 10, dropout=0.1, batch_first=True), (5, 6)),
    "lstm": (lambda: Recurrent(nn.LSTM(5, 7, batch_first=True)), (6, 5)),
    "experts": (Experts, (13, 8)),
    "gru": (lambda: Recurrent(nn.GRU(9, 11, 2, batch_first=True)), (7, 9)),
}  # fmt: skip
SAMPLES = ([5], [5, 7], [*range(6, 40), 5], range(70), range(1, 70), range(48), range(1, 49), range(17), range(3, 34))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_company_and_place_change_no_bit(name, threads):
    make, shape = MODELS[name]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        torch.manual_seed(3)
        losses = ModelLosses(make().train(), lambda model, x: model(x).flatten(1).square().sum(1))
        x = torch.randn(70, *shape)
        chance = Randomness.seeded(1).record_chance(np.arange(70))
        shapes = {n: p.shape for n, p in losses.params.items()}
        mechanism = build_mechanism(ClipRecords(1e9), GaussianNoise(multiplier=1.0), shapes, slack=1e-5)
        wanted = {}
        for some, chunk in zip(SAMPLES, itertools.cycle([4096, 48]), strict=False):
            rows = np.array([*some])
            found = clipped_sum(
                losses, losses.params, x[rows], mechanism, chunk=chunk, chance=chance.take(rows), strategy="fast"
            )
            for place, row in enumerate(rows):
                assert torch.equal(wanted.setdefault(row, found.squared_norms[place]), found.squared_norms[place]), row
    finally:
        torch.set_num_threads(before)
