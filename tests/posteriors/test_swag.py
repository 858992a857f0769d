import pytest
import torch
from torch import nn

import tacit
from tacit.errors import InputError


@pytest.fixture
def iterates():
    """400 correlated iterates of 3 + 2 weights."""
    mix = torch.randn(5, 5)
    values = torch.randn(400, 5) @ mix + 1
    return tacit.Draws({"weight": values[:, :3], "bias": values[:, 3:]})


def flat(draws):
    return torch.cat([draws.vectors["weight"], draws.vectors["bias"]], 1)


def test_its_draws_have_the_mean_and_half_diagonal_half_low_rank_covariance(iterates):
    swag = tacit.posteriors.SWAG.of(iterates, rank=400)
    drawn = flat(swag.sample(6000))
    covariance = torch.cov(flat(iterates).T)
    wanted = (covariance + torch.diag(covariance.diag())) / 2
    torch.testing.assert_close(drawn.mean(0), flat(iterates).mean(0), rtol=0, atol=0.1)
    assert torch.linalg.norm(torch.cov(drawn.T) - wanted) / torch.linalg.norm(wanted) < 0.05


def test_it_predicts_and_survives_a_file(iterates, tmp_path):
    swag = tacit.posteriors.SWAG.of(iterates, rank=10, draws=7, seed=3)
    swag.save(tmp_path / "swag.safetensors")
    again = tacit.load_posterior(tmp_path / "swag.safetensors")
    assert isinstance(again, tacit.posteriors.SWAG)
    assert len(again) == 7
    for one, other in zip(swag, again, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)
    few = tacit.posteriors.SWAG.of(tacit.Draws({"weight": torch.randn(20, 2, 3), "bias": torch.randn(20, 2)}), rank=5)
    assert tacit.predict(nn.Linear(3, 2), few, torch.randn(4, 3)).mutual_information.min() > 0


@pytest.mark.parametrize("rank", [0, 1, 401])
def test_a_rank_beyond_the_iterates_is_refused(iterates, rank):
    with pytest.raises(InputError, match="rank"):
        tacit.posteriors.SWAG.of(iterates, rank=rank)


def test_posteriors_are_combined_draw_by_draw(iterates, tmp_path):
    point = tacit.posteriors.Point({name: value[0] for name, value in iterates.vectors.items()})
    assert tacit.posteriors.combine([point, point, point]).chains == 3
    together = tacit.posteriors.combine([iterates, point])
    assert (len(together), together.chains) == (401, 1)
    with pytest.raises(InputError, match="at least one"):
        tacit.posteriors.combine([])


def test_chains_survive_a_file(tmp_path):
    draws = tacit.Draws({"w": torch.randn(12, 2)}, chains=3)
    draws.save(tmp_path / "draws.safetensors")
    assert tacit.load_posterior(tmp_path / "draws.safetensors").chains == 3
    assert torch.equal(draws.by_chain["w"][1], draws.vectors["w"][4:8])
    with pytest.raises(InputError, match="equal length"):
        tacit.Draws({"w": torch.randn(12, 2)}, chains=5)
