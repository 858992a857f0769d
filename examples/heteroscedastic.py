"""Regression whose noise grows with x (paper N, C.2): how much is noise, and how much is not knowing better?

``python examples/heteroscedastic.py [--out FOLDER]`` fits the paper's data privately at epsilon 1 (delta 1e-5) by
DP-SGLD on public radial features, and without privacy, prints likelihood and coverage on test data, and draws both
bands. Clip and rate were chosen on data of seeds 0 to 3; report others. The paper's own network and setting is there
too (``--paper``): its band is sensible, at an epsilon that protects nobody.
"""

import argparse
import math
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

import tacit
from tacit.evaluation import coverage, gaussian_nll

TRAIN, TEST, EPSILON, DELTA = 250, 150, 1.0, 1e-5
PROBABILITY, STEPS, CLIP_NORM, RATE, DRAWS = 0.5, 300, 4.0, 0.05, 100  # a tight clip makes the noise look too small
LIKELIHOOD = tacit.HeteroscedasticGaussian(least_stddev=0.1)


def generate(seed: int) -> tuple[Tensor, Tensor]:
    """y ~ GP with a radial kernel of variance 1 plus independent noise of standard deviation 0.3 x + 0.6."""
    generator = torch.Generator().manual_seed(seed)
    x = 6 * torch.rand(TRAIN + TEST, generator=generator, dtype=torch.float64) - 3
    kernel = torch.exp(-0.5 * (x[:, None] - x).square()) + torch.diag((0.3 * x + 0.6).square() + 1e-9)
    y = torch.linalg.cholesky(kernel) @ torch.randn(len(x), generator=generator, dtype=torch.float64)
    return x.float(), y.float()


class RadialFeatures(nn.Module):
    """A linear model of public radial features: centres and width do not depend on the data."""

    def __init__(self, number: int = 9, width: float = 0.9) -> None:
        super().__init__()
        self.register_buffer("centres", torch.linspace(-3, 3, number))
        self.width = width
        self.linear = nn.Linear(number, 2)
        nn.init.zeros_(self.linear.weight)
        nn.init.constant_(self.linear.bias, 0.0)
        nn.init.constant_(self.linear.bias[1], 0.5)  # a standard deviation of about 1: the scale is declared public

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(torch.exp(-0.5 * ((x[:, None] - self.centres) / self.width).square()))


def paper_network() -> nn.Module:
    hidden = [nn.Linear(200, 200), nn.ReLU()]
    return nn.Sequential(nn.Unflatten(0, (-1, 1)), nn.Linear(1, 200), nn.ReLU(), *hidden, nn.Linear(200, 2))


def fit(data: tuple[Tensor, Tensor], ledger: Path) -> tuple[nn.Module, tacit.Draws, float]:
    """DP-SGLD at epsilon 1; the noise is calibrated, so what is sampled is a tempered posterior."""
    noise = tacit.calibrate_noise(EPSILON, DELTA, probability=PROBABILITY, steps=STEPS).noise_multiplier
    model = RadialFeatures()
    method = tacit.SGLD(model, LIKELIHOOD, tacit.GaussianPrior(1.0), RATE / TRAIN, TRAIN, temperature=None)
    plan = tacit.TrainingPlan(
        tacit.PoissonSampling(probability=PROBABILITY, expected_size=PROBABILITY * TRAIN),
        tacit.ClipRecords(CLIP_NORM), tacit.GaussianNoise(multiplier=noise), STEPS, ledger, dataset="regression",
    )  # fmt: skip
    run = tacit.train(method, data, plan, keep_last=DRAWS)
    print(f"effective temperature of the private posterior: {run.effective_temperature:.1f}")
    [guarantee] = tacit.guarantees(run.ledger, DELTA, only=["pld"])
    return model, run.posterior, guarantee.epsilon


def fit_openly(data: tuple[Tensor, Tensor], steps: int = 20_000, rate: float = 0.02) -> tuple[nn.Module, tacit.Draws]:
    """SGLD at temperature 1 on all records, unclipped: the twin without privacy."""
    model = RadialFeatures()
    method = tacit.SGLD(model, LIKELIHOOD, tacit.GaussianPrior(1.0), rate / TRAIN, TRAIN)
    state, kept = method.init(), []
    for step in range(steps):
        params = {name: value.requires_grad_() for name, value in method.params(state).items()}
        mean = method.losses(params, data).mean()
        gradients = torch.autograd.grad(mean, list(params.values()))
        stddev = method.noise_stddev(step, TRAIN) / TRAIN
        noisy = {name: g + stddev * torch.randn_like(g) for name, g in zip(params, gradients, strict=True)}
        state = method.step(state, noisy)
        state = type(state)({name: value.detach() for name, value in state.params.items()}, state.step)
        if step >= steps // 2 and step % (steps // (2 * DRAWS)) == 0:
            kept.append(state.params)
    return model, tacit.Draws.of(kept)


def fit_like_the_paper(data: tuple[Tensor, Tensor], ledger: Path) -> tuple[nn.Module, tacit.Draws, float]:
    """Its network, clip 100 and rate 0.00025, full batches, noise at temperature 1/2 (250 epochs are not stated)."""
    model = paper_network()
    method = tacit.SGLD(model, LIKELIHOOD, tacit.GaussianPrior(1.0), 2.5e-4, TRAIN, temperature=0.5)
    sampling = tacit.PoissonSampling(probability=1.0, expected_size=TRAIN)
    plan = tacit.TrainingPlan(sampling, tacit.ClipRecords(100.0), None, 500, ledger, dataset="regression, paper")
    run = tacit.train(method, data, plan, keep_last=DRAWS)
    [guarantee] = tacit.guarantees(run.ledger, DELTA, only=["rdp"])
    return model, run.posterior, guarantee.epsilon


def report(name: str, model: nn.Module, posterior: tacit.Draws, x: Tensor, y: Tensor) -> tacit.RegressionPrediction:
    found = tacit.predict(model, posterior, x, likelihood=LIKELIHOOD)
    low, high = found.interval
    cumulative = torch.special.ndtr((y - found.mean) / found.stddev)
    print(
        f"{name}: NLL {gaussian_nll(found.mean, found.stddev.square(), y):.3f}, "
        f"95 % coverage {((y >= low) & (y <= high)).float().mean():.2f}, calibration {coverage(cumulative).error:.3f}, "
        f"data sd {found.data_uncertainty.sqrt().mean():.2f}, "
        f"posterior sd {found.posterior_uncertainty.sqrt().mean():.2f}"
    )
    return found


def draw(path: Path, x: Tensor, y: Tensor, fits: dict[str, tuple[nn.Module, tacit.Draws]]) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(fits), figsize=(5.5 * len(fits), 4.2), layout="constrained", sharey=True)
    grid = torch.linspace(-3, 3, 200)
    for axes, (name, (model, posterior)) in zip(panels, fits.items(), strict=True):
        found = tacit.predict(model, posterior, grid, likelihood=LIKELIHOOD)
        mean, noise = found.mean.numpy(), found.data_uncertainty.sqrt().numpy()
        known = found.posterior_uncertainty.sqrt().numpy()
        axes.plot(x[TRAIN:], y[TRAIN:], ".", color="0.6", markersize=3, label="test data")
        axes.fill_between(grid, mean - 2 * noise, mean + 2 * noise, color="#c6d5e8", label="noise in the data")
        axes.fill_between(grid, mean - 2 * known, mean + 2 * known, color="#1f5a99", alpha=0.6, label="not knowing")
        axes.plot(grid, mean, color="#c0392b", linewidth=1)
        axes.set(title=name, xlabel="x")
        axes.legend(frameon=False, loc="upper left")
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seed", type=int, default=10)
    arguments.add_argument("--paper", action="store_true")
    arguments.add_argument("--out", type=Path)
    options = arguments.parse_args()
    x, y = generate(options.seed)
    train, test = (x[:TRAIN], y[:TRAIN]), (x[TRAIN:], y[TRAIN:])
    constant = gaussian_nll(train[1].mean(), train[1].var(), test[1])
    print(f"a constant: NLL {constant:.3f}; the true noise alone {_noise_nll(test[0]):.3f}")
    with tempfile.TemporaryDirectory() as folder:
        place = options.out or Path(folder)
        model, posterior, epsilon = fit(train, place / "ledger.jsonl")
        fits = {f"private, epsilon {epsilon:.3g}": (model, posterior), "not private": fit_openly(train)}
        if options.paper:
            model, posterior, epsilon = fit_like_the_paper(train, place / "paper" / "ledger.jsonl")
            fits[f"the paper's setting, epsilon {epsilon:.0f}"] = (model, posterior)
        for name, (model, posterior) in fits.items():
            report(name, model, posterior, *test)
        if options.out is not None:
            draw(options.out / "band.png", x, y, fits)


def _noise_nll(x: Tensor) -> float:
    """The expected likelihood of somebody who knew the curve and the noise."""
    return float((0.5 + (0.3 * x + 0.6).abs().clamp(min=0.1).log() + 0.5 * math.log(2 * math.pi)).mean())


if __name__ == "__main__":
    main()
