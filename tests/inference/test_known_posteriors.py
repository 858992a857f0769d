"""Every sampler against posteriors that are known: linear regression in closed form, logistic regression by quadrature.

A model with one column of weights per chain is many independent chains in one run: the loss is their sum.
"""

from dataclasses import replace

import pytest
import torch
from torch import nn

import tacit

N, D = 60, 3
PRIOR = tacit.GaussianPrior(1.0)


def linear_data():
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(N, D, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 0.6, 0.3])
    return x, x @ torch.tensor([1.0, -0.5, 0.8]).double() + torch.randn(N, generator=generator, dtype=torch.float64)


def logistic_data():
    generator = torch.Generator().manual_seed(6)
    x = torch.randn(N, D, generator=generator, dtype=torch.float64)
    return x, (torch.rand(N, generator=generator) < torch.sigmoid(x @ torch.tensor([1.5, -1.0, 0.5]).double())).double()


def squares(model, batch):
    return 0.5 * (model(batch[0]) - batch[1][:, None]).square().sum(1)


def log_losses(model, batch):
    logits = model(batch[0])
    return (nn.functional.softplus(logits) - batch[1][:, None] * logits).sum(1)


def linear_posterior():
    x, y = linear_data()
    precision = x.T @ x + torch.eye(D)
    return torch.linalg.solve(precision, x.T @ y), torch.linalg.inv(precision)


def logistic_posterior(points=61, reach=5.5):
    """Mean and covariance by quadrature on a grid of +-5.5 Laplace deviations around the mode."""
    x, y = logistic_data()
    w = torch.zeros(D, dtype=torch.float64)
    for _ in range(30):
        p = torch.sigmoid(x @ w)
        hessian = (x * (p * (1 - p))[:, None]).T @ x + torch.eye(D)
        w = w - torch.linalg.solve(hessian, x.T @ (p - y) + w)
    axis = torch.linspace(-reach, reach, points, dtype=torch.float64)
    grid = torch.cartesian_prod(*[axis] * D) @ torch.linalg.cholesky(torch.linalg.inv(hessian)).T + w
    density = -0.5 * grid.square().sum(1)
    for record, label in zip(x, y, strict=True):
        logit = grid @ record
        density -= nn.functional.softplus(logit) - label * logit
    weight = density.softmax(0)
    mean = weight @ grid
    return mean, ((grid - mean) * weight[:, None]).T @ (grid - mean)


POSTERIORS = {
    "linear": (squares, linear_data, linear_posterior),
    "logistic": (log_losses, logistic_data, logistic_posterior),
}
CYCLE = tacit.inference.CyclicalStep(0.008, 50, exploration=0.5)
SAMPLERS = {
    "sgld": lambda model, losses: tacit.SGLD(model, losses, PRIOR, 0.001, N),
    "sghmc": lambda model, losses: tacit.inference.SGHMC(model, losses, PRIOR, 0.001, N, friction=0.15),
    "sgnht": lambda model, losses: tacit.inference.SGNHT(model, losses, PRIOR, 0.001, N, diffusion=0.15),
    "psgld": lambda model, losses: tacit.inference.PSGLD(
        model, losses, PRIOR, 0.0008, N, damping=0.25, adapt_steps=200
    ),
    "cyclical": lambda model, losses: tacit.SGLD(model, losses, PRIOR, CYCLE, N),
}


def chains_of(name, posterior, chains):
    losses, data, reference = POSTERIORS[posterior]
    model = nn.Linear(D, chains, bias=False).double()
    nn.init.zeros_(model.weight)
    return SAMPLERS[name](model, losses), data(), reference()


def errors(draws, reference):
    """The worst error of a mean, in posterior deviations, and the relative error of the covariance."""
    mean, covariance = reference
    flat = draws.reshape(-1, D)
    off = (flat.mean(0) - mean) / covariance.diag().sqrt()
    spread = torch.linalg.norm(torch.cov(flat.T) - covariance) / torch.linalg.norm(covariance)
    return float(off.abs().max()), float(spread)


def report(what, name, mean, covariance):
    """Shown with ``pytest -s``: the numbers that documents state."""
    print(f"\n{what}, {name}: mean {mean:.4f} posterior deviations, covariance {covariance:.4f} relative")


def sample(method, data, burn, steps, noise=None):
    """Draws by exact gradients; with ``noise``, a generator, the noise that the method asks for is added to them."""
    x, y = data
    inverse_link = torch.sigmoid if method.user_losses is log_losses else lambda logit: logit
    state, draws = method.init(), []
    for step in range(burn + steps):
        w = method.params(state)["weight"]
        gradient = (inverse_link(w @ x.T) - y) @ x / N
        if noise is not None:
            stddev = method.noise_stddev(step, float(N)) / N
            gradient = gradient + stddev * torch.randn(w.shape, generator=noise, dtype=w.dtype)
        state = method.step(state, {"weight": gradient})
        if step >= burn and (method.step_size is not CYCLE or CYCLE.samples(step)):
            draws.append(method.params(state)["weight"])
    return torch.stack(draws), state


def without_privacy(method):
    """The plain sampler: the plan adds no noise, so all of it is the method's own."""
    return replace(method, noise="planned").with_mean_noise({"weight": 0.0})


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("name", SAMPLERS)
def test_without_privacy_it_samples_the_posterior(name, posterior):
    method, data, reference = chains_of(name, posterior, 512)
    draws, _ = sample(without_privacy(method), data, burn=1000, steps=500)
    mean, covariance = errors(draws, reference)
    assert mean < 0.1
    assert covariance < 0.1


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("name", SAMPLERS)
def test_with_the_noise_that_it_asks_for_it_samples_the_posterior(name, posterior):
    method, data, reference = chains_of(name, posterior, 512)
    draws, _ = sample(method, data, burn=1000, steps=500, noise=torch.Generator().manual_seed(2))
    mean, covariance = errors(draws, reference)
    assert mean < 0.1
    assert covariance < 0.1


def through_the_mechanism(name, posterior, folder, chains, steps, keep, noise=None):
    """Full batch, q = 1, a clip that never bites: what the engine adds is the sampler's noise."""
    method, data, reference = chains_of(name, posterior, chains)
    if noise is not None:
        method = replace(method, noise="planned")
    sampling = tacit.PoissonSampling(probability=1.0, expected_size=N)
    plan = tacit.TrainingPlan(sampling, tacit.ClipRecords(1e4), noise, steps, folder / "ledger.jsonl", block=100)
    which = CYCLE.samples if name == "cyclical" else None
    draws = tacit.train(
        method, data, plan, keep_last=keep, keep=which, randomness=tacit.Randomness.seeded(4)
    ).posterior.vectors["weight"]
    return errors(draws, reference)


@pytest.mark.parametrize("name", ["sghmc", "sgnht"])
def test_the_mechanisms_noise_is_the_samplers(name, tmp_path):
    mean, covariance = through_the_mechanism(name, "linear", tmp_path, chains=128, steps=700, keep=350)
    assert mean < 0.1
    assert covariance < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("name", SAMPLERS)
def test_the_mechanisms_noise_is_the_samplers_precisely(name, posterior, tmp_path):
    """Chance alone moves a mean by about 0.012: SGLD, the slowest, forgets in 360 steps, so there are 7000 draws."""
    keep = 750 if name == "cyclical" else 1500  # half of a cycle explores
    mean, covariance = through_the_mechanism(name, posterior, tmp_path, chains=2048, steps=3000, keep=keep)
    report(f"{posterior}, through the mechanism", name, mean, covariance)
    assert mean < 0.05
    assert covariance < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("stddev", [3.0, 30.0, 60.0])
def test_dynamics_follow_the_plans_noise(name, stddev, tmp_path):
    """Less noise than any sampler asks for (SGHMC 17, SGLD 45), in between, and more: the temperature stays 1.

    Chance alone moves a mean by about 0.02.
    """
    noise, keep = tacit.GaussianNoise(stddev=stddev), 750 if name == "cyclical" else 1500
    mean, covariance = through_the_mechanism(name, "linear", tmp_path, 1024, 3500, keep, noise=noise)
    report(f"planned noise {stddev}", name, mean, covariance)
    assert mean < 0.07
    assert covariance < 0.07


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("posterior", POSTERIORS)
def test_the_precise_errors(name, posterior):
    method, data, reference = chains_of(name, posterior, 4096)
    draws, _ = sample(method, data, burn=1500, steps=1500, noise=torch.Generator().manual_seed(2))
    mean, covariance = errors(draws, reference)
    report(posterior, name, mean, covariance)
    assert mean < 0.03
    assert covariance < 0.03


def test_the_chains_variance_is_the_one_that_its_file_states():
    """A large step, where the discretisation shows: 1 / (1 - eta k / 2), 1 / (1 - eta k / (4 - 2 alpha)), and 1."""
    k, eta, alpha, chains = 40.0, 0.02, 0.3, 4096
    model = nn.Linear(1, chains, bias=False).double()
    common = (model, squares, tacit.inference.FlatPrior(), eta, 1)
    wanted = {
        tacit.SGLD(*common): 1 / (1 - eta * k / 2),
        tacit.inference.SGHMC(*common, friction=alpha): 1 / (1 - eta * k / (4 - 2 * alpha)),
        tacit.inference.SGNHT(*common, diffusion=alpha): 1.0,
    }
    for method, factor in wanted.items():
        generator, state, found = torch.Generator().manual_seed(1), method.init(), []
        for step in range(400):
            w = method.params(state)["weight"]
            noise = method.noise_stddev(step, 1.0) * torch.randn(w.shape, generator=generator, dtype=w.dtype)
            state = method.step(state, {"weight": k * w + noise})
            found.append(float(method.params(state)["weight"].var()) * k)
        assert sum(found[200:]) / 200 == pytest.approx(factor, rel=0.03)


def test_a_thermostat_finds_the_noise_that_nobody_told_it():
    """Noise of twice the asked variance, as sampling might add: friction doubles, the posterior stays."""
    method, data, reference = chains_of("sgnht", "linear", 512)
    hotter = replace(method, diffusion=2 * method.diffusion)
    state, draws = method.init(), []
    generator = torch.Generator().manual_seed(3)
    for step in range(1200):
        w = method.params(state)["weight"]
        noise = hotter.noise_stddev(step, float(N)) / N * torch.randn(w.shape, generator=generator, dtype=w.dtype)
        state = method.step(state, {"weight": (w @ data[0].T - data[1]) @ data[0] / N + noise})
        draws.append(method.params(state)["weight"])
    assert state.friction == pytest.approx(2 * method.diffusion, rel=0.1)
    assert errors(torch.stack(draws[700:]), reference)[1] < 0.1


def test_a_preconditioner_that_goes_on_moving_is_nearly_right():
    """Without freezing it, its Gamma term is missing: the error stays small while it forgets slowly."""
    method, data, reference = chains_of("psgld", "linear", 512)
    method = replace(method, adapt_steps=None, decay=0.999)
    draws, _ = sample(method, data, burn=1000, steps=500, noise=torch.Generator().manual_seed(2))
    mean, covariance = errors(draws, reference)
    assert mean < 0.1
    assert covariance < 0.15


@pytest.mark.parametrize("q", [0.02, 0.3, 1.0])
@pytest.mark.parametrize("name", ["sgld", "sghmc", "sgnht", "psgld"])
def test_the_moves_of_a_chain_measure_its_temperature(name, q):
    """trace(Cov H) / d of the draws, to which drawing records adds up to as much again as the asked noise.

    Every chain draws its own records; the noise that is asked for is added to their sum.
    """
    method, (x, y), (_, covariance) = chains_of(name, "linear", 256)
    generator, state, draws, moves = torch.Generator().manual_seed(8), method.init(), [], []
    for step in range(1200):
        w = method.params(state)["weight"]
        drawn = (torch.rand(len(w), N, generator=generator) < q).double()
        noise = method.noise_stddev(step, q * N) * torch.randn(w.shape, generator=generator, dtype=w.dtype)
        before, state = state, method.step(state, {"weight": (drawn * (w @ x.T - y) @ x + noise) / (q * N)})
        if step >= 600:
            draws.append(method.params(state)["weight"])
            moves.append(method.step_temperature(before, state))
    found = float(torch.trace(torch.cov(torch.stack(draws).reshape(-1, D).T) @ torch.linalg.inv(covariance))) / D
    print(f"\n{name}, q {q}: measured {found:.3f}, stated {sum(moves) / len(moves):.3f}")
    assert sum(moves) / len(moves) == pytest.approx(found, rel=0.1)
    assert found > 1.3 or q > 0.02 or name == "sgnht"


SIZE, WIDTH = 2000, 5


def logistic_problem():
    """Of the check that found a stated 1 and a measured 2.6: rows of norm at most 1, and the curvature at the mode."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(SIZE, WIDTH, generator=generator, dtype=torch.float64)
    x /= x.norm(dim=1, keepdim=True).clamp(min=1)
    chance = torch.sigmoid(x @ torch.tensor([1.0, -1.0, 0.5, 0.0, 2.0]).double())
    y = (torch.rand(SIZE, generator=generator) < chance).double()
    w = torch.zeros(WIDTH, dtype=torch.float64)
    for _ in range(20):
        p = torch.sigmoid(x @ w)
        hessian = (x * (p * (1 - p))[:, None]).T @ x + torch.eye(WIDTH)
        w = w - torch.linalg.solve(hessian, x.T @ (p - y) + w)
    return x, y, hessian


@pytest.mark.slow
@pytest.mark.parametrize("q", [0.02, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("name", ["sgld", "sghmc", "sgnht", "psgld", "sgld, planned"])
def test_a_run_states_the_temperature_that_its_draws_have(name, q, tmp_path):
    """Over two chains: what one of 5,000 draws has is off by 5 % by chance (psgld, five seeds)."""
    found, stated = zip(*[_temperatures(name, q, seed, tmp_path / f"{seed}.jsonl") for seed in (1, 2)], strict=True)
    print(f"\n{name}, q {q}: measured {found}, stated {stated}")
    assert sum(stated) == pytest.approx(sum(found), rel=0.1)


def _temperatures(name, q, seed, ledger):
    """What the draws of a run have, and what the run states."""
    x, y, hessian = logistic_problem()
    model = nn.Linear(WIDTH, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    common = (model, log_losses, PRIOR)
    method = {
        "sgld": lambda: tacit.SGLD(*common, 5e-4, SIZE),
        "sghmc": lambda: tacit.inference.SGHMC(*common, 1.5e-4, SIZE, friction=0.3),
        "sgnht": lambda: tacit.inference.SGNHT(*common, 1.5e-4, SIZE, diffusion=0.3),
        "psgld": lambda: tacit.inference.PSGLD(*common, 2.5e-5, SIZE, damping=0.05, adapt_steps=300),
        "sgld, planned": lambda: tacit.SGLD(*common, 5e-4, SIZE, noise="planned"),
    }[name]()
    noise = tacit.GaussianNoise(stddev=5 * q) if name == "sgld, planned" else None
    sampling = tacit.PoissonSampling(probability=q, expected_size=q * SIZE)
    plan = tacit.TrainingPlan(sampling, tacit.ClipRecords(1.0), noise, 6000, ledger, block=1000)
    run = tacit.train(method, (x, y), plan, keep_last=5000, randomness=tacit.Randomness.seeded(seed))
    found = float(torch.trace(torch.cov(run.posterior.vectors["weight"].flatten(1).T) @ hessian)) / WIDTH
    return found, run.effective_temperature
