"""Counts through ``tacit train``: a rate by Poisson's likelihood, and intervals that hold and stay at or above 0."""

import numpy as np
import pytest
import torch
from scipy.stats import poisson

from tacit.errors import InputError
from tacit.likelihoods import Counts
from tacit.randomness import Randomness
from tacit.runs import Problem, RunFacts, RunFolder, train_table
from tacit.tables import Number, Schema, Table, encode, recipes

SCHEMA = Schema((Number("x", -1, 1), Number("visits", 0, 30, count=True)), records=3000, target="visits")


@pytest.mark.parametrize("factors", [None, 4.0])
def test_rates_are_learned_and_intervals_hold(tmp_path, monkeypatch, factors):
    monkeypatch.setitem(recipes.STEPS, "regression", 150)
    chance = np.random.default_rng(0)
    x = chance.uniform(-1, 1, 4000)
    rates = np.exp(0.5 + 0.8 * x) * (1 if factors is None else chance.gamma(factors, 1 / factors, 4000))
    table = Table({"x": x, "visits": chance.poisson(rates) * 1.0})
    private, public = (encode(Table({n: c[part] for n, c in table.columns.items()}), SCHEMA, "visits")
                       for part in (slice(3000), slice(3000, None)))  # fmt: skip
    facts = RunFacts(Problem(SCHEMA, "visits", 2.0, 1e-5))
    trained = train_table(facts, private, RunFolder(tmp_path / "run"), checkpoints=False,
                          randomness=Randomness.seeded(1))  # fmt: skip
    said = trained.predictor.numbers(public.inputs)
    seen, quantiles = table.columns["visits"][3000:], said.quantiles.numpy()
    off = said.mean.numpy() / np.exp(0.5 + 0.8 * x[3000:]) - 1
    assert np.abs(off).mean() < (0.05 if factors is None else 0.2)
    assert quantiles.min() >= 0
    assert (quantiles == np.round(quantiles)).all()
    assert 0.93 < ((quantiles[:, 0] <= seen) & (seen <= quantiles[:, -1])).mean() < 0.995


def test_a_count_starts_at_0():
    with pytest.raises(InputError, match="needs low = 0"):
        Number("visits", 1, 30, count=True)


def test_the_law_of_counts_is_nearly_poissons():
    half, rates = 10.0, torch.tensor([0.05, 0.3, 1.0, 4.0, 12.0], dtype=torch.float64)
    for count in range(20):
        found = Counts(half).cdf(torch.tensor(count / half - 1), rates / half - 1, rates)
        assert found.numpy() == pytest.approx(poisson.cdf(count, rates.numpy()), abs=0.02)
    assert Counts(half).cdf(torch.tensor(-1.01), rates / half - 1, rates).max() == 0
