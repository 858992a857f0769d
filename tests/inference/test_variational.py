"""Variational inference on models whose posterior is known."""

import pytest
import torch
from torch import nn
from torch.distributions import Laplace, MultivariateNormal, Normal, kl_divergence
from torch.nn.functional import softplus

import tacit
from tacit.errors import InputError, RefusedError
from tacit.posteriors.gaussian import flatten

N, NOISE = 50, 0.5
FAMILIES = [tacit.inference.MeanField(), tacit.inference.FullRank()]


def linear_data():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(N, 3, generator=generator, dtype=torch.float64)
    x[:, 1] += 0.8 * x[:, 0]  # correlated, so that mean-field and full-rank differ
    y = x @ torch.tensor([1.0, -2.0, 0.5]).double() + NOISE * torch.randn(N, generator=generator).double()
    return x, y


def losses(model, batch):
    return 0.5 * ((model(batch[0])[:, 0] - batch[1]) / NOISE).square()


def posterior_of(x, y):
    """Mean and precision of Bayesian linear regression with the prior N(0, 1)."""
    precision = x.T @ x / NOISE**2 + torch.eye(3).double()
    return torch.linalg.solve(precision, x.T @ y / NOISE**2), precision


def fit(family, steps, descent, average, data):
    model = nn.Linear(3, 1, bias=False).double()
    method = tacit.VariationalInference(
        model, losses, N, tacit.GaussianPrior(1.0), family, descent, average=average, seed=3
    )
    state = method.init()
    for _ in range(steps):
        state = method.step(state, full_gradient(method, state, data))
    return method.posterior(state)


def full_gradient(method, state, data):
    params = {name: value.detach().requires_grad_() for name, value in method.params(state).items()}
    found = torch.autograd.grad(method.losses(params, data).mean(), list(params.values()))
    return dict(zip(params, found, strict=True))


def errors(posterior, mean, precision):
    """How far the mean is, in standard deviations, and the covariance, relative to them."""
    covariance = torch.linalg.inv(precision)
    scale = covariance.diagonal().sqrt()
    if posterior.stddev is not None:  # the best independent Gaussian has the precision's diagonal
        wanted, found = 1 / precision.diagonal().sqrt(), posterior.stddev["weight"].flatten()
        spread = (found / wanted - 1).abs().max()
    else:
        found = posterior.scale_tril @ posterior.scale_tril.T
        spread = ((found - covariance).abs() / scale.outer(scale)).max()
    return float(((posterior.mean["weight"].flatten() - mean) / scale).abs().max()), float(spread)


@pytest.mark.parametrize("family", FAMILIES, ids=["mean-field", "full-rank"])
def test_it_finds_the_known_posterior(family):
    data = linear_data()
    posterior = fit(family, 1500, tacit.inference.AdamDescent(0.02), 0.997, data)
    off_mean, off_spread = errors(posterior, *posterior_of(*data))
    assert off_mean < 0.2
    assert off_spread < 0.25


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=["mean-field", "full-rank"])
def test_with_patience_it_finds_it_closely(family):
    data = linear_data()
    posterior = fit(family, 40_000, tacit.inference.AdamDescent(tacit.inference.DecreasingStep(0.03)), 0.9999, data)
    off_mean, off_spread = errors(posterior, *posterior_of(*data))
    print(f"{family}: mean {off_mean:.4f} standard deviations off, spread {off_spread:.4f}")
    assert off_mean < 0.03
    assert off_spread < 0.05


@pytest.mark.parametrize("family", FAMILIES, ids=["mean-field", "full-rank"])
def test_at_the_optimum_the_expected_gradient_is_zero(family):
    """The gradient of the lower bound, averaged over draws, vanishes where the best Gaussian is known to be."""
    x, y = data = linear_data()
    mean, precision = posterior_of(x, y)
    model = nn.Linear(3, 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(mean[None])
    method = tacit.VariationalInference(model, losses, N, tacit.GaussianPrior(1.0), family)
    spread = best_spread(family, precision)
    total, square = 0.0, 0.0
    for number in range(800):
        noise = {"weight": torch.randn(1, 3, generator=torch.Generator().manual_seed(number)).double()}
        state = type(method.init())(method.init().mean, spread, noise, method.init().moments, {})
        gradient = flatten(method._gradient(state, full_gradient(method, state, data)))
        total, square = total + gradient / 800, square + gradient.square() / 800
    assert ((total / (square / 800).sqrt().clamp(min=1e-300)).abs() < 4.5).all()


def best_spread(family, precision):
    def raw(stddev):
        return stddev.expm1().log()

    if isinstance(family, tacit.inference.MeanField):
        return {"weight": raw(precision.diagonal().rsqrt())[None]}
    lower = torch.linalg.cholesky(torch.linalg.inv(precision))
    return {"scale": lower.tril(-1) + torch.diag(raw(lower.diagonal()))}


PRIORS = {
    "gaussian": (tacit.GaussianPrior(0.3), Normal(torch.zeros(4).double(), 0.3)),
    "laplace": (tacit.inference.LaplacePrior(0.3), Laplace(torch.zeros(4).double(), 0.3)),
}


@pytest.mark.parametrize("name", PRIORS)
def test_the_divergence_gradient_is_that_of_torch(name):
    prior, density = PRIORS[name]
    mean = torch.tensor([0.2, -1.0, 0.0, 0.05]).double().requires_grad_()
    rho = torch.tensor([-1.0, 0.5, -3.0, -2.0]).double().requires_grad_()
    divergence = kl_divergence(Normal(mean, softplus(rho)), density).sum()
    wanted = torch.autograd.grad(divergence, (mean, rho))
    found = tacit.inference.MeanField().divergence_gradient(
        {"w": mean.detach()}, {"w": rho.detach()}, {"w": torch.zeros(4).double()}, prior
    )
    for part, right in zip(found, wanted, strict=True):
        torch.testing.assert_close(part["w"], right, rtol=1e-6, atol=1e-8)


def test_the_full_rank_divergence_gradient_is_that_of_torch():
    mean = torch.tensor([0.2, -1.0, 0.3]).double().requires_grad_()
    raw = torch.tensor([[0.1, 0, 0], [0.4, -1, 0], [-0.3, 0.2, 0.5]]).double().requires_grad_()
    lower = raw.tril(-1) + torch.diag(softplus(raw.diagonal()))
    q = MultivariateNormal(mean, scale_tril=lower)
    p = MultivariateNormal(torch.zeros(3).double(), 0.25 * torch.eye(3).double())
    wanted = torch.autograd.grad(kl_divergence(q, p), (mean, raw))
    found = tacit.inference.FullRank().divergence_gradient(
        {"w": mean.detach()}, {"scale": raw.detach()}, {"w": torch.zeros(3).double()}, tacit.GaussianPrior(0.5)
    )
    torch.testing.assert_close(found[0]["w"], wanted[0])
    torch.testing.assert_close(found[1]["scale"], wanted[1])


def test_a_scale_mixture_pulls_as_its_density_says():
    prior = tacit.inference.ScaleMixturePrior(0.25, 1.0, 0.05)
    w = torch.tensor([-2.0, -0.1, 0.03, 0.5], dtype=torch.float64, requires_grad=True)
    density = 0.25 * Normal(0.0, 1.0).log_prob(w).exp() + 0.75 * Normal(0.0, 0.05).log_prob(w).exp()
    (wanted,) = torch.autograd.grad(-density.log().sum(), w)
    torch.testing.assert_close(prior.gradient({"w": w.detach()})["w"], wanted)


@pytest.mark.parametrize("family", FAMILIES, ids=["mean-field", "full-rank"])
def test_the_pulled_gradient_is_the_chain_rule(family):
    model = nn.Linear(3, 2).double()
    method = tacit.VariationalInference(model, losses, N, family=family)
    state = method.init()
    mean = {name: value.clone().requires_grad_() for name, value in state.mean.items()}
    shape = torch.tril if isinstance(family, tacit.inference.FullRank) else torch.clone
    spread = {name: shape(value + 0.1).requires_grad_() for name, value in state.spread.items()}
    drawn = family.draw(mean, spread, state.noise)
    upstream = {name: torch.randn_like(value) for name, value in drawn.items()}
    total = sum((upstream[name] * value).sum() for name, value in drawn.items())
    wanted = torch.autograd.grad(total, list(spread.values()))
    detached = {name: value.detach() for name, value in spread.items()}
    found = family.pull(detached, state.noise, upstream)
    for part, right in zip(found.values(), wanted, strict=True):
        torch.testing.assert_close(part, right)


def test_one_release_per_step_and_a_gaussian_at_the_end(tmp_path):
    data = torch.randn(40, 3), torch.randn(40)
    method = tacit.bayes_by_backprop(nn.Linear(3, 1), lambda m, b: (m(b[0])[:, 0] - b[1]).square(), dataset_size=40)
    plan = tacit.TrainingPlan(
        tacit.PoissonSampling(probability=0.5, expected_size=20), tacit.ClipRecords(1.0),
        tacit.GaussianNoise(multiplier=1.0), 4, tmp_path / "l",
    )  # fmt: skip
    run = tacit.train(method, data, plan, randomness=tacit.Randomness.seeded(1))
    assert run.ledger.steps == 4
    assert all(len(charge.event.queries) == 1 for charge in run.ledger.charges)
    assert isinstance(run.posterior, tacit.posteriors.GaussianPosterior)
    assert not torch.equal(run.posterior.mean["weight"], method.model.weight)


def test_a_draw_is_the_same_after_a_restart(model):
    method = tacit.bayes_by_backprop(model, losses, dataset_size=10, seed=5)
    gradient = {name: torch.ones_like(p) for name, p in model.named_parameters()}
    on = method.step(method.step(method.init(), gradient), gradient)
    restarted = tacit.bayes_by_backprop(model, losses, dataset_size=10, seed=5)
    again = restarted.step(method.step(method.init(), gradient), gradient)
    assert all(torch.equal(value, method.params(on)[name]) for name, value in restarted.params(again).items())
    other = tacit.bayes_by_backprop(model, losses, dataset_size=10, seed=6)
    assert not torch.equal(flatten(other.params(other.init())), flatten(method.params(method.init())))


def test_a_full_rank_of_a_large_model_is_refused():
    method = tacit.VariationalInference(nn.Linear(100, 100), losses, N, family=tacit.inference.FullRank())
    with pytest.raises(RefusedError, match="MeanField"):
        method.init()


@pytest.mark.parametrize(
    "arguments", [{"dataset_size": 0}, {"initial_stddev": 0.0}, {"temperature": -1.0}, {"average": 1.0}]
)
def test_bad_arguments_are_refused(arguments):
    with pytest.raises(InputError):
        tacit.VariationalInference(nn.Linear(1, 1), losses, **{"dataset_size": 10, **arguments})
