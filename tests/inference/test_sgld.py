import math

import pytest
import torch
from torch import nn

import tacit
from tacit.errors import InputError
from tacit.inference import sgd_from_sgld, sgld_from_sgd, sgld_noise_multiplier
from tacit.mechanisms import SLACK

N = 50


def gaussian_losses(model, batch):
    """Negative log-likelihood of a Gaussian mean with unit variance."""
    return 0.5 * (batch - model.weight).square().sum((1, 2))


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_it_samples_a_known_gaussian_posterior(tmp_path, temperature):
    """The noise that the mechanism adds is the Langevin noise: posterior N(mean, temperature / (n + 1/prior^2))."""
    torch.manual_seed(1)
    data = torch.randn(N, 1, 2) + torch.tensor([1.0, -2.0])
    model = nn.Linear(2, 1, bias=False)
    step = 0.004
    method = tacit.SGLD(model, gaussian_losses, tacit.GaussianPrior(1.0), step, N, temperature)
    plan = tacit.TrainingPlan(
        tacit.PoissonSampling(probability=1.0, expected_size=N), tacit.ClipRecords(1e3), None, 2500, tmp_path / "l"
    )
    run = tacit.train(method, data, plan, keep_last=2300, randomness=tacit.Randomness.seeded(3))
    draws = run.posterior.vectors["weight"].flatten(1)
    precision = N + 1.0
    discretised = temperature / precision / (1 - step * precision / 2)  # exact stationary variance of the chain
    torch.testing.assert_close(draws.mean(0), data.sum(0)[0] / precision, rtol=0, atol=0.03)
    torch.testing.assert_close(draws.var(0), torch.full((2,), discretised), rtol=0.15, atol=0)


def test_the_ledger_holds_the_langevin_noise(tmp_path):
    model = nn.Linear(2, 1, bias=False)
    method = tacit.SGLD(model, gaussian_losses, step_size=tacit.inference.DecreasingStep(5e-3), dataset_size=N)
    sampling = tacit.PoissonSampling(probability=0.2, expected_size=10)
    plan = tacit.TrainingPlan(sampling, tacit.ClipRecords(1.5), None, 3, tmp_path / "l")
    run = tacit.train(method, torch.randn(N, 1, 2), plan)
    for step, charge in enumerate(run.ledger.charges):
        eta = 5e-3 * (step + 1) ** (-1 / 3)
        wanted = sgld_noise_multiplier(eta, batch_size=10, dataset_size=N, clip_norm=1.5)
        assert charge.event.noise_multiplier == pytest.approx(wanted / (1 + SLACK))


def test_theorem_1_both_ways():
    eta, clip = sgld_from_sgd(0.25, 1.3, batch_size=256, dataset_size=60_000, temperature=0.5)
    rate, multiplier = sgd_from_sgld(eta, batch_size=256, dataset_size=60_000, clip_norm=clip, temperature=0.5)
    assert (rate, multiplier) == pytest.approx((0.25, 1.3))


def test_the_effective_temperature_of_its_own_noise_is_its_temperature():
    method = tacit.SGLD(nn.Linear(1, 1), gaussian_losses, step_size=1e-4, dataset_size=1000, temperature=0.7)
    assert method.effective_temperature(method.noise_stddev(0, 32.0), 32.0) == pytest.approx(0.7)


def test_noise_from_plan_and_temperature_is_refused(tmp_path):
    method = tacit.SGLD(nn.Linear(2, 1, bias=False), gaussian_losses, dataset_size=N)
    sampling = tacit.PoissonSampling(probability=0.2, expected_size=10)
    plan = tacit.TrainingPlan(sampling, tacit.ClipRecords(1.0), tacit.GaussianNoise(multiplier=1.0), 3, tmp_path / "l")
    with pytest.raises(InputError, match="given twice"):
        tacit.train(method, torch.randn(N, 1, 2), plan)
    assert not (tmp_path / "l").exists()


@pytest.mark.parametrize(
    "arguments", [{"dataset_size": 0}, {"step_size": 0.0}, {"step_size": math.nan}, {"temperature": -1.0}]
)
def test_bad_arguments_are_refused(arguments):
    with pytest.raises(InputError):
        tacit.SGLD(nn.Linear(1, 1), gaussian_losses, **{"dataset_size": 10, **arguments})
