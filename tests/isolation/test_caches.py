"""Caches that follow from shapes are filled by made-up records before the run; what follows from values is refused."""

import pytest
import torch
from torch import nn

import tacit

DATA = torch.randn(40, 4), torch.randint(0, 2, (40,))


class Keeps(nn.Module):
    """Keeps what ``make`` gives for its first inputs, as an attribute and in a dictionary."""

    def __init__(self, make):
        super().__init__()
        self.layer, self.kept, self.by_width, self.make = nn.Linear(4, 2), None, {}, make

    def forward(self, inputs):
        if self.kept is None:
            self.kept = self.make(self, inputs)
        self.by_width.setdefault(inputs.shape[-1], self.kept)
        return self.layer(inputs * self.by_width[inputs.shape[-1]])


def losses(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def train(model, folder):
    plan = tacit.PoissonSampling(0.5, expected_size=20), tacit.ClipRecords(1.0), tacit.GaussianNoise(multiplier=1.0)
    with tacit.PrivateGradient(model, losses, *plan, ledger=folder / "ledger.jsonl") as private:
        for sample in private.samples(DATA, steps=2):
            private.backward(sample)


def test_what_follows_from_shapes_is_filled_in_beforehand(tmp_path):
    model = Keeps(lambda model, inputs: torch.arange(inputs.shape[-1]).float())
    train(model, tmp_path)
    assert torch.equal(model.kept, torch.arange(4.0))
    assert model.by_width == {4: model.kept}


@pytest.mark.parametrize(
    "make",
    [
        lambda model, inputs: inputs.mean(),  # the first batch's
        lambda model, inputs: model.layer.weight.sum(),  # would not follow the weight
    ],
)
def test_what_follows_from_values_or_parameters_is_refused_and_taken_out(make, tmp_path):
    model = Keeps(make)
    with pytest.raises(tacit.TacitError, match=r"model\.(kept|by_width)\S* changed"):
        train(model, tmp_path)
    assert model.kept is None
    assert model.by_width == {}
    assert not (tmp_path / "ledger.jsonl").exists()


def test_a_layer_made_in_the_forward_pass_is_refused(tmp_path):
    class Grows(nn.Linear):
        def forward(self, inputs):
            self.more = nn.Linear(2, 2)
            return self.more(super().forward(inputs))

    with pytest.raises(tacit.TacitError, match=r"model\S* changed"):
        train(Grows(4, 2), tmp_path)
