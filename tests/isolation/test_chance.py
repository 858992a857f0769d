"""What losses draw by chance: for each row from its own secret, with the distribution that PyTorch gives."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn import functional

import tacit
from tacit.isolation import map_records
from tacit.randomness import RecordChance

ROWS, ENTRIES = 400, 10


def _drawn(draw, seeds):
    chance = RecordChance(bytes(range(16)), np.asarray(seeds, dtype=np.uint64))
    return map_records(draw, torch.zeros(len(seeds), ENTRIES), chance)


def _unit_shape(x):
    return torch.empty(ENTRIES).normal_()[None]


DRAWS = {
    "normal around numbers": (lambda x: torch.normal(1.0, 2.0, x.shape), stats.norm(1, 2)),
    "normal around tensors": (lambda x: torch.normal(x + 1, torch.full_like(x, 2)), stats.norm(1, 2)),
    "normal around a tensor": (lambda x: torch.normal(x + 1, 2.0), stats.norm(1, 2)),
    "normal into rows": (lambda x: torch.empty_like(x).normal_(1, 2), stats.norm(1, 2)),
    "uniform into rows": (lambda x: torch.empty_like(x).uniform_(-1, 3), stats.uniform(-1, 4)),
    "exponential into rows": (lambda x: torch.empty_like(x).exponential_(2), stats.expon(scale=0.5)),
    "whole numbers alike": (lambda x: torch.randint_like(x, 2, 7), stats.randint(2, 7)),
    "whole numbers from 0 alike": (lambda x: torch.randint_like(x, high=5), stats.randint(0, 5)),
    "of a distribution": (lambda x: torch.distributions.Normal(x + 1, 2.0).rsample(), stats.norm(1, 2)),
    "into a tensor that all share": (_unit_shape, stats.norm()),
    "noise of gumbel's": (lambda x: functional.gumbel_softmax(x.new_zeros(1, ENTRIES, 2))[..., 0], stats.uniform()),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_have_their_distribution_and_are_a_rows_own(name):
    draw, wanted = DRAWS[name]
    seeds = np.arange(ROWS) * 7919 + 1
    drawn = _drawn(draw, seeds)
    values = drawn.flatten().double().numpy()
    if hasattr(wanted.dist, "pmf"):
        support = np.arange(*wanted.support()[:1], wanted.support()[1] + 1)
        found = [(values == one).sum() for one in support]
        assert sum(found) == len(values)
        assert stats.chisquare(found).pvalue > 1e-4
    else:
        assert stats.kstest(values, wanted.cdf).pvalue > 1e-4
    assert len(drawn.unique(dim=0)) > ROWS / 2  # rows differ
    assert torch.equal(_drawn(draw, seeds[5:90]), drawn[5:90])  # whoever else is there


@pytest.mark.parametrize("chance", [0.3, torch.tensor([0.3] * ENTRIES)])
def test_chosen_entries_are_as_many_as_asked_for(chance):
    drawn = _drawn(lambda x: torch.empty_like(x).bernoulli_(chance), np.arange(ROWS))
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    assert drawn.mean().item() == pytest.approx(0.3, abs=0.04)


def test_hard_choices_of_gumbels_are_one_of_all_and_have_gradients(tmp_path):
    model = nn.Linear(4, 3)

    def losses(model, batch):
        chosen = functional.gumbel_softmax(model(batch), tau=0.7, hard=True)
        return chosen @ torch.tensor([1.0, 2.0, 4.0])

    drawn = _drawn(lambda x: functional.gumbel_softmax(x, hard=True), np.arange(ROWS))
    assert torch.equal(drawn.sum(1), torch.ones(ROWS))
    assert drawn.mean(0).tolist() == pytest.approx([1 / ENTRIES] * ENTRIES, abs=0.06)
    plan = tacit.PoissonSampling(1.0, 64), tacit.ClipRecords(1.0), tacit.GaussianNoise(multiplier=1e-6)
    with tacit.PrivateGradient(model, losses, *plan, ledger=tmp_path / "ledger.jsonl") as private:
        for sample in private.samples(torch.randn(64, 4), 1):
            private.backward(sample)
        assert private.path == "records together"
    assert model.weight.grad.abs().max() > 1e-3


def test_what_has_no_rule_is_named_with_what_to_do_instead(tmp_path):
    def losses(model, batch):
        return model(batch * torch.poisson(torch.ones_like(batch)))[:, 0]

    plan = tacit.PoissonSampling(1.0, 8), tacit.ClipRecords(1.0), tacit.GaussianNoise(multiplier=1.0)
    with tacit.PrivateGradient(nn.Linear(4, 1), losses, *plan, ledger=tmp_path / "ledger.jsonl") as private:
        for sample in private.samples(torch.randn(8, 4), 1):
            private.backward(sample)
        assert "poisson draws for one record at a time; torch.rand" in private.path
