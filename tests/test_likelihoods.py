"""Likelihoods against torch's distributions, their gradients through the engine, and the predictions they read."""

import math

import pytest
import torch
from torch import distributions, nn

import tacit
from tacit.errors import InputError
from tacit.gradients import clipped_sum
from tacit.losses import ModelLosses
from tacit.mechanisms import build_mechanism
from tacit.posteriors import Draws, Point, predict

INPUTS = torch.randn(9, 4, generator=torch.Generator().manual_seed(1))
NUMBERS = torch.linspace(-2, 2, 9)
COUNTS = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 7])


def linear(outputs):
    torch.manual_seed(0)
    return nn.Linear(4, outputs)


def with_noise():
    model = linear(1)
    model.register_parameter("log_stddev", nn.Parameter(torch.tensor(0.3)))
    return model


CASES = {
    "categorical": (tacit.likelihoods.Categorical(), linear(3), COUNTS % 3,
                    lambda out, _: distributions.Categorical(logits=out)),
    "bernoulli": (tacit.likelihoods.Bernoulli(), linear(1), COUNTS % 2,
                  lambda out, _: distributions.Bernoulli(logits=out[:, 0])),
    "gaussian": (tacit.likelihoods.Gaussian(0.7), linear(1), NUMBERS,
                 lambda out, _: distributions.Normal(out[:, 0], 0.7)),
    "learned": (tacit.likelihoods.LearnedGaussian(), with_noise(), NUMBERS,
                lambda out, m: distributions.Normal(out[:, 0], m.log_stddev.exp())),
    "heteroscedastic": (tacit.likelihoods.HeteroscedasticGaussian(0.01), linear(2), NUMBERS,
                        lambda out, _: distributions.Normal(
        out[:, 0], nn.functional.softplus(out[:, 1]) + 0.01)),
    "poisson": (tacit.likelihoods.Poisson(), linear(1), COUNTS, lambda out, _: distributions.Poisson(out[:, 0].exp())),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_losses_are_negative_log_likelihoods(name):
    likelihood, model, targets, truth = CASES[name]
    wanted = -truth(model(INPUTS), model).log_prob(targets.float())
    torch.testing.assert_close(likelihood(model, (INPUTS, targets)), wanted)


@pytest.mark.parametrize("name", CASES)
def test_the_fast_path_agrees_with_vmap(name):
    likelihood, model, targets, _ = CASES[name]
    losses = ModelLosses(model, likelihood)
    params = {key: p.detach() for key, p in losses.params.items()}
    noise = tacit.GaussianNoise(multiplier=1.0)
    mechanism = build_mechanism(tacit.ClipRecords(0.5), noise, {n: p.shape for n, p in params.items()}, slack=1e-5)
    found = [
        clipped_sum(losses, params, (INPUTS, targets), mechanism, chunk=9, strategy=strategy).sums
        for strategy in ("auto", "vmap")
    ]
    for key in params:
        torch.testing.assert_close(found[0][key].double(), found[1][key].double(), rtol=1e-4, atol=1e-6)


def numbers(*pairs):
    """A model that ignores its input, and draws of its (mean, raw spread)."""
    model = nn.Linear(1, len(pairs[0]))
    zero = torch.zeros(len(pairs[0]), 1)
    return model, Draws.of([{"weight": zero, "bias": torch.tensor(pair)} for pair in pairs])


def softplus(x):
    return math.log1p(math.exp(x))


def test_uncertainty_is_taken_apart_as_in_paper_n():
    model, posterior = numbers([1.0, 0.5], [3.0, 1.0], [2.0, -1.0])
    prediction = predict(
        model, posterior, torch.zeros(2, 1), likelihood=tacit.likelihoods.HeteroscedasticGaussian(1e-9)
    )
    variances = [softplus(raw) ** 2 for raw in (0.5, 1.0, -1.0)]
    torch.testing.assert_close(prediction.mean, torch.full((2,), 2.0).double())
    torch.testing.assert_close(prediction.data_uncertainty, torch.full((2,), sum(variances) / 3).double())
    torch.testing.assert_close(prediction.posterior_uncertainty, torch.ones(2).double())  # variance of 1, 3, 2
    torch.testing.assert_close(prediction.stddev.square(), prediction.data_uncertainty + 1)


def test_quantiles_of_a_mixture_are_exact():
    model, posterior = numbers([-1.0], [4.0])
    levels = (0.01, 0.3, 0.5, 0.9)
    prediction = predict(model, posterior, torch.zeros(1, 1), likelihood=tacit.likelihoods.Gaussian(0.5), levels=levels)
    normal = distributions.Normal(torch.tensor([-1.0, 4.0]).double()[:, None], 0.5)
    reached = normal.cdf(prediction.quantiles).mean(0)
    torch.testing.assert_close(reached, torch.tensor(levels, dtype=torch.float64), rtol=1e-9, atol=1e-9)


def test_counts_have_whole_quantiles():
    model, posterior = numbers([0.0], [2.0])
    prediction = predict(
        model, posterior, torch.zeros(1, 1), likelihood=tacit.likelihoods.Poisson(), levels=(0.05, 0.5, 0.99)
    )
    rates = torch.tensor([0.0, 2.0]).double().exp()
    mass = torch.stack([distributions.Poisson(rates).log_prob(torch.tensor(float(k))).exp() for k in range(60)]).mean(1)
    wanted = [int((mass.cumsum(0) < level).sum()) for level in (0.05, 0.5, 0.99)]
    assert prediction.quantiles[0].tolist() == wanted
    torch.testing.assert_close(prediction.data_uncertainty, rates.mean()[None], rtol=1e-6, atol=0)


def test_the_interval_covers_what_it_says():
    """Data from the model itself: the 95 % interval of the known answer holds 95 % of it."""
    torch.manual_seed(3)
    model = nn.Linear(1, 1)
    point = Point({"weight": torch.tensor([[2.0]]), "bias": torch.tensor([1.0])})
    x = torch.randn(4000, 1)
    y = 2 * x[:, 0] + 1 + 0.3 * torch.randn(4000)
    low, high = predict(model, point, x, likelihood=tacit.likelihoods.Gaussian(0.3)).interval
    assert float(((y > low) & (y < high)).float().mean()) == pytest.approx(0.95, abs=0.012)


def test_a_learned_noise_is_read_from_the_draw():
    model = with_noise()
    point = Point({name: p.detach() for name, p in model.named_parameters()})
    prediction = predict(model, point, INPUTS, likelihood=tacit.likelihoods.LearnedGaussian(), batch_size=4)
    torch.testing.assert_close(prediction.data_uncertainty, torch.full((9,), math.exp(0.6)).double())
    assert prediction.posterior_uncertainty.tolist() == [0.0] * 9


def test_private_regression_learns_its_noise(tmp_path):
    """A clip that cuts off the tails would make the noise look smaller, so it is wide here."""
    torch.manual_seed(0)
    x = torch.rand(2000, 1) * 2 - 1
    data = x, 0.7 * x[:, 0] + 0.2 * torch.randn(2000)
    model = nn.Linear(1, 1)
    model.register_parameter("log_stddev", nn.Parameter(torch.zeros(1)))
    method = tacit.VariationalInference(
        model, tacit.likelihoods.LearnedGaussian(), 2000, descent=tacit.inference.AdamDescent(0.05), average=0.97
    )
    plan = tacit.TrainingPlan(
        tacit.PoissonSampling(probability=0.1, expected_size=200), tacit.ClipRecords(8.0),
        tacit.GaussianNoise(multiplier=1.0), 120, tmp_path / "l", physical_batch=400,
    )  # fmt: skip
    run = tacit.train(method, data, plan, randomness=tacit.Randomness.seeded(2))
    prediction = predict(model, run.posterior, torch.tensor([[1.0]]), likelihood=tacit.likelihoods.LearnedGaussian())
    assert float(prediction.mean) == pytest.approx(0.7, abs=0.15)
    assert float(prediction.data_uncertainty.sqrt()) == pytest.approx(0.2, rel=0.3)


@pytest.mark.parametrize(
    ("likelihood", "outputs", "message"),
    [
        (tacit.likelihoods.Gaussian(1.0), 2, "one output"),
        (tacit.likelihoods.HeteroscedasticGaussian(), 1, "inputs, 2"),
        (tacit.likelihoods.Poisson(), 3, "one output"),
        (tacit.likelihoods.LearnedGaussian(), 1, "log_stddev"),
    ],
)
def test_outputs_that_do_not_fit_are_refused(likelihood, outputs, message):
    model = linear(outputs)
    with pytest.raises(InputError, match=message):
        likelihood(model, (INPUTS, NUMBERS))
    point = Point({name: p.detach() for name, p in model.named_parameters()})
    with pytest.raises(InputError, match=message):
        predict(model, point, INPUTS, likelihood=likelihood)


@pytest.mark.parametrize("levels", [(), (0.0, 0.5), (0.9, 0.1)])
def test_levels_that_mean_nothing_are_refused(levels):
    model, posterior = numbers([1.0])
    with pytest.raises(InputError, match="levels"):
        predict(model, posterior, torch.zeros(1, 1), likelihood=tacit.likelihoods.Gaussian(1.0), levels=levels)
