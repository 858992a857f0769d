import pytest
import torch

import tacit
from tacit.errors import InputError


def chains(shift=0.0, correlation=0.0, count=4, draws=500):
    values = torch.randn(count, draws, 2, generator=torch.Generator().manual_seed(1))
    for step in range(1, draws):
        values[:, step] = correlation * values[:, step - 1] + (1 - correlation**2) ** 0.5 * values[:, step]
    values = values + shift * torch.arange(count)[:, None, None]
    return tacit.Draws({"w": values.reshape(-1, 2), "b": values.reshape(-1, 2)[:, 0]}, chains=count)


def test_independent_draws_have_mixed():
    found = tacit.evaluation.convergence(chains())
    assert found.worst_rhat < 1.01
    assert found.ess_bulk["w"].shape == (2,)
    assert found.ess_bulk["b"].shape == ()
    assert 1500 < found.least_ess < 2600
    assert "have mixed" in str(found)


def test_chains_around_different_means_have_not():
    found = tacit.evaluation.convergence(chains(shift=1.0))
    assert found.worst_rhat > 1.2
    assert "have not mixed" in str(found)


def test_correlated_draws_are_worth_fewer():
    """An AR(1) chain's mean is worth (1 - rho) / (1 + rho) of its draws: 2000 / 9 at rho = 0.8."""
    found = tacit.evaluation.convergence(chains(correlation=0.8))
    assert float(found.ess_bulk["w"].mean()) == pytest.approx(2000 / 9, rel=0.35)


def test_too_few_draws_are_refused():
    with pytest.raises(InputError, match="at least 4 draws"):
        tacit.evaluation.convergence(chains(draws=3))


def test_one_chain_is_told_apart_from_chains_that_have_not_mixed():
    one = tacit.evaluation.convergence(
        tacit.Draws({"w": torch.randn(40, 2, generator=torch.Generator().manual_seed(1))})
    )
    assert str(one).startswith("R-hat not measured: it compares several chains; effective draws at least")
