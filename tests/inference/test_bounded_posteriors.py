"""Exact draws have the distribution they claim, up to what thousands of draws can show."""

import numpy as np
import pytest
import torch
from scipy.stats import beta, kstest
from torch import nn

import tacit
from tacit.accountants import Budget, guarantees
from tacit.errors import BudgetError, InputError
from tacit.ledger import LedgerFile, LedgerHeader


def uniforms(seed=0):
    generator = np.random.default_rng(seed)
    return lambda count: generator.uniform(2.0**-54, 1 - 2.0**-54, count)


@pytest.mark.parametrize(("ones", "zeros", "power"), [(3, 5, 1.0), (40, 2, 0.5), (0, 300, 1.0), (200, 220, 0.3)])
def test_a_share_is_drawn_from_the_cut_beta(ones, zeros, power):
    model, source = tacit.inference.BoundedBernoulli(least=0.05, a=2.0, b=1.0), uniforms()
    data = torch.tensor([1.0] * ones + [0.0] * zeros)
    draws = [float(model.draw(data, power, source)["probability"]) for _ in range(600)]
    truth = beta(2 + power * ones, 1 + power * zeros)
    low, high = truth.cdf(0.05), truth.cdf(0.95)
    assert kstest(draws, lambda x: (truth.cdf(x) - low) / (high - low)).pvalue > 1e-3


def test_logistic_weights_are_drawn_from_their_posterior():
    generator = np.random.default_rng(1)
    x = generator.normal(size=(60, 2)) * 3
    y = (x[:, 0] + generator.logistic(size=60) > 0).astype(float)
    model, source = tacit.inference.BoundedLogistic(2, bound=4.0, prior_stddev=2.0), uniforms(2)
    draws = np.array([model.draw((x, y), 0.5, source)["weight"][0].numpy() for _ in range(300)])
    grid = np.linspace(-4, 4, 401)
    w = np.stack(np.meshgrid(grid, grid, indexing="ij"), -1).reshape(-1, 2)
    rows = (2 * y - 1)[:, None] * x / np.maximum(np.abs(x).sum(1, keepdims=True), 1)
    density = np.exp(-0.5 * np.logaddexp(0, -w @ rows.T).sum(1) - (w**2).sum(1) / 8).reshape(401, 401)
    for axis in (0, 1):
        marginal = density.sum(1 - axis).cumsum()
        marginal /= marginal[-1]
        assert kstest(draws[:, axis], lambda v, m=marginal: np.interp(v, grid + 0.01, m)).pvalue > 1e-3


def test_no_record_leaves_the_bound():
    wild = np.array([[1e300, -1e300], [np.nan, np.inf], [5.0, 5.0], [0.1, 0.1]]), np.array([np.nan, 1, 1, 0])
    model = tacit.inference.BoundedLogistic(2, bound=3.0)
    rows = model._signed_rows(wild)
    assert np.abs(rows).sum(1).max() <= 1 + 1e-12
    corners = 3.0 * np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    values = -np.logaddexp(0, -corners @ rows.T)
    assert (values.max(0) - values.min(0)).max() <= model.log_likelihood_range + 1e-12


def opened(path, **header):
    return LedgerFile(path, LedgerHeader(**header), {})


def test_a_sample_is_charged_and_is_a_bound(tmp_path):
    with opened(tmp_path / "l", dataset_size=100) as ledger:
        point = tacit.training.one_posterior_sample(
            tacit.inference.BoundedBernoulli(0.1), torch.ones(100), ledger, epsilon=0.5
        )
        [answer] = guarantees(ledger.ledger, 1e-5, only=["rdp"])
    assert 0.1 <= float(point.vectors["probability"]) <= 0.9
    assert answer.is_bound
    assert answer.epsilon == pytest.approx(0.5, rel=1e-6)


def test_the_power_is_never_above_bayes(tmp_path):
    with opened(tmp_path / "l") as ledger:
        tacit.training.one_posterior_sample(tacit.inference.BoundedBernoulli(0.1), torch.ones(10), ledger, epsilon=50.0)
        [charge] = ledger.ledger.charges
    assert charge.event.power == 1.0
    with opened(tmp_path / "m") as ledger, pytest.raises(InputError, match="either"):
        tacit.training.one_posterior_sample(tacit.inference.BoundedBernoulli(0.1), torch.ones(10), ledger)


def test_a_ledger_of_another_kind_is_refused_before_a_charge(tmp_path):
    model = tacit.inference.BoundedBernoulli(0.1)
    with opened(tmp_path / "l", unit="user") as ledger, pytest.raises(InputError, match="unit user"):
        tacit.training.one_posterior_sample(model, torch.ones(10), ledger, power=1.0)
    with opened(tmp_path / "m") as ledger:
        with pytest.raises(InputError, match="seeded"):
            tacit.training.one_posterior_sample(
                model, torch.ones(10), ledger, power=1.0, randomness=tacit.Randomness.seeded(1)
            )
        assert ledger.ledger.steps == 0
    with opened(tmp_path / "n", neighbours="replace_one") as ledger, pytest.raises(InputError, match="add_remove"):
        tacit.training.one_posterior_sample(model, torch.ones(10), ledger, power=1.0)


def losses(model, batch):
    signs = 2 * batch[1].float() - 1
    return nn.functional.softplus(-signs * model(batch[0])[:, 0])


def hybrid(path, epsilon, budget=None):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 2, generator=generator)
    x = x / x.abs().sum(1, keepdim=True)
    data = x, (x[:, 0] > 0).long()
    plan = tacit.TrainingPlan(
        tacit.PoissonSampling(probability=0.1, expected_size=20), tacit.ClipRecords(1.0), None, 5, path, budget=budget,
    )  # fmt: skip
    model = nn.Linear(2, 1, bias=False)

    def build(model):
        return tacit.SGLD(model, losses, tacit.GaussianPrior(2.0), 1e-4, 200)

    start = tacit.inference.BoundedLogistic(2)
    return model, tacit.training.hybrid(start, data, model, build, data, plan, epsilon=epsilon, keep_last=3)


def test_the_hybrid_sampler_starts_from_a_sample_and_charges_both(tmp_path):
    model, run = hybrid(tmp_path / "l", 0.3)
    kinds = [charge.event.kind for charge in run.ledger.charges]
    assert kinds[0] == "posterior_sample"
    assert set(kinds[1:]) == {"poisson"}
    assert run.ledger.steps == 6
    [answer] = guarantees(run.ledger, 1e-5, only=["rdp"])
    assert answer.is_bound
    assert answer.epsilon > 0.3
    assert len(run.posterior) == 3
    assert not any(torch.equal(draw["weight"], model.weight) for draw in run.posterior)


def test_the_hybrid_sampler_keeps_to_its_budget(tmp_path):
    with pytest.raises(BudgetError):
        hybrid(tmp_path / "l", 0.3, Budget(0.2, 1e-5))
    assert tacit.read_ledger(tmp_path / "l").steps == 0


@pytest.mark.parametrize(
    "bad",
    [
        lambda: tacit.inference.BoundedBernoulli(0.6),
        lambda: tacit.inference.BoundedBernoulli(0.1, a=0.5),
        lambda: tacit.inference.BoundedLogistic(7),
        lambda: tacit.inference.BoundedLogistic(2, bound=0.0),
    ],
)
def test_bad_arguments_are_refused(bad):
    with pytest.raises(InputError):
        bad()
