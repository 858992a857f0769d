import pytest
import torch

from tacit.errors import InputError
from tacit.posteriors import GaussianPosterior, load_posterior
from tacit.posteriors.gaussian import flatten

MEAN = {"b.weight": torch.tensor([[1.0, -2.0]]), "a": torch.tensor([0.5])}  # not in alphabetical order
LOWER = torch.tensor([[1.0, 0, 0], [0.5, 0.2, 0], [-0.3, 0.1, 2.0]])
KINDS = {
    "mean-field": {"stddev": {"b.weight": torch.tensor([[0.1, 2.0]]), "a": torch.tensor([1.0])}},
    "full-rank": {"scale_tril": LOWER},
}


@pytest.mark.parametrize("kind", KINDS)
def test_draws_have_its_mean_and_covariance(kind):
    posterior = GaussianPosterior(MEAN, **KINDS[kind])
    flat = torch.stack([flatten(draw) for draw in posterior.sample(4000)])
    lower = torch.diag(flatten(posterior.stddev)) if posterior.stddev else LOWER
    covariance = lower @ lower.T
    scale = covariance.diagonal().sqrt()
    assert ((flat.mean(0) - flatten(MEAN)).abs() / scale).max() < 0.07
    assert ((flat.T.cov() - covariance).abs() / scale.outer(scale)).max() < 0.08


@pytest.mark.parametrize("kind", KINDS)
def test_it_survives_a_file_with_its_draws(tmp_path, kind):
    posterior = GaussianPosterior(MEAN, **KINDS[kind], draws=3, seed=4)
    posterior.save(tmp_path / "g.safetensors")
    loaded = load_posterior(tmp_path / "g.safetensors")
    assert isinstance(loaded, GaussianPosterior)
    assert len(loaded) == 3
    for one, other in zip(posterior, loaded, strict=True):
        assert list(one) == list(other)
        assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_every_pass_yields_the_same_draws_and_seeds_differ():
    posterior = GaussianPosterior(MEAN, **KINDS["mean-field"], draws=2)
    first, second = ([draw["a"] for draw in posterior] for _ in range(2))
    assert first == second
    assert first[0] != first[1]
    assert posterior.sample(1, seed=9).vectors["a"][0] != first[0]


@pytest.mark.parametrize(
    "spread",
    [{}, {**KINDS["mean-field"], **KINDS["full-rank"]}, {"stddev": {"a": MEAN["a"]}}, {"scale_tril": LOWER[:2]}],
)
def test_a_spread_that_does_not_fit_is_refused(spread):
    with pytest.raises(InputError):
        GaussianPosterior(MEAN, **spread)
