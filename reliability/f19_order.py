"""F19: the order of summation, the last bits, and what strict numerics promise about them."""

import itertools
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from scipy.stats import chi2, kstest
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import tacit
from reliability.figures import Figure, tries
from tacit.accountants.renyi.discrete import discrete_log_moments
from tacit.gradients import clipped_sum
from tacit.losses import ModelLosses
from tacit.mechanisms import GaussianSumMechanism, Grid, Numerics, build_mechanism

CLIP, GOAL, ALPHA = 0.8, 1e-12, 1e-6
HOSTILE = (0.0, 1e-45, 1e4, 3e38, math.inf, -math.inf, math.nan)
Data = tuple[Tensor, Tensor]


def losses(model: nn.Module, batch: Data) -> Tensor:
    return cross_entropy(model(batch[0]), batch[1], reduction="none")


def problem(seed: int, kind: torch.dtype, records: int = 24) -> tuple[nn.Module, Data]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).to(kind)
    return model, (torch.randn(records, 6, dtype=kind) * 10 ** (seed % 4 - 1), torch.randint(0, 3, (records,)))


def mechanism(losses: ModelLosses, numerics: Numerics) -> GaussianSumMechanism:
    shapes = {name: value.shape for name, value in losses.params.items()}
    noise = tacit.GaussianNoise(multiplier=1.0)
    return build_mechanism(tacit.ClipRecords(CLIP), noise, shapes, slack=1e-5, numerics=numerics)


def summed(model: nn.Module, data: Data, numerics: Numerics, chunk: int) -> dict[str, Tensor]:
    of = ModelLosses(model, losses)
    return clipped_sum(of, of.params, data, mechanism(of, numerics), chunk=chunk).sums


def permuted(data: Data) -> Data:
    order = torch.randperm(len(data[0]))
    return data[0][order], data[1][order]


def prove(effort: float) -> Iterator[Figure]:
    count = tries(1000, effort, 3)
    yield _permuted_floats(count)
    yield _permuted_strictly(count)
    yield _one_record(count)
    yield _replayed(tries(100, effort, 1))
    yield _sampler(tries(5_000_000, effort, 20_000))
    yield _accounting(tries(20_000, effort, 50))


def _permuted_floats(count: int) -> Figure:
    worst = 0.0
    for seed in range(count):
        model, data = problem(seed, torch.float64)
        one, other = summed(model, data, "float64", 256), summed(model, permuted(data), "float64", 1 + seed % 9)
        scale = max(float(value.abs().max()) for value in one.values())
        worst = max(worst, *(float((one[name] - other[name]).abs().max()) / scale for name in one))
    lost = int(worst > GOAL)
    return Figure("F19", "permuted and chunked float64 sums", count, lost, f"largest difference {worst:.1e}", "1e-12")


def _permuted_strictly(count: int) -> Figure:
    lost = 0
    for seed in range(count):
        model, data = problem(seed, torch.float32 if seed % 2 else torch.float64, 12)
        one, other = summed(model, data, "strict", 256), summed(model, permuted(data), "strict", 1 + seed % 5)
        lost += any(not torch.equal(one[name], other[name]) for name in one)
    return Figure("F19", "strict sums, permuted: any bit different", count, lost, goal="exactly equal")


def _one_record(count: int) -> Figure:
    """The sum moves by the whole numbers of that record alone, and these are no longer than the clip norm, exactly."""
    lost, longest = 0, Grid.of(CLIP).longest
    for seed in range(count):
        model, (inputs, labels) = problem(seed, torch.float32, 9)
        if seed % 2:
            inputs[-1] = HOSTILE[seed // 2 % len(HOSTILE)]
        with_it, without = (summed(model, (inputs[:n], labels[:n]), "strict", 256) for n in (9, 8))
        alone = summed(model, (inputs[-1:], labels[-1:]), "strict", 256)
        moved = {name: with_it[name] - without[name] for name in alone}
        exact = sum(int(value) ** 2 for part in moved.values() for value in part.flatten())
        lost += exact > longest or any(not torch.equal(moved[name], alone[name]) for name in alone)
    return Figure("F19", "strict sums with one record more: longer than the clip, or another bit moved", count, lost)


def _replayed(count: int) -> Figure:
    lost = 0
    for seed in range(count):
        model, (inputs, labels) = problem(seed, torch.float32, 10)
        inputs[-1] = HOSTILE[seed % len(HOSTILE)]
        lost += _ledger(model, (inputs, labels), seed) != _ledger(model, (inputs[:9], labels[:9]), seed)
    return Figure("F19", "ledgers of strict runs on neighbours, byte for byte", count, lost, goal="identical")


def _ledger(model: nn.Module, data: Data, seed: int) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.jsonl"
        noise, sampling = tacit.GaussianNoise(multiplier=1.0), tacit.PoissonSampling(0.5, 5)
        plan = tacit.TrainingPlan(sampling, tacit.ClipRecords(CLIP), noise, 2, path, numerics="strict")
        tacit.train(tacit.SGD(model, losses, 0.1), data, plan, randomness=tacit.Randomness.seeded(seed))
        return path.read_bytes()


def _sampler(count: int) -> Figure:
    """Secure draws against the exact distribution at small sigmas, and against the normal at the size that is used."""
    source, chances = tacit.Randomness(), []
    for sigma in (1, 2, 5):
        draws = source.discrete_normals(sigma, count // 4)
        x = np.arange(-9 * sigma, 9 * sigma + 1)
        expected = np.exp(-(x**2) / (2 * sigma**2))
        expected *= len(draws) / expected.sum()
        common = expected > 20
        found = np.bincount(draws + 40 * sigma, minlength=80 * sigma)[x + 40 * sigma]
        chances.append(chi2.sf(((found - expected)[common] ** 2 / expected[common]).sum(), common.sum() - 1))
    sigma = math.ceil(1.1 * 2**30)
    chances.append(kstest(source.discrete_normals(sigma, count // 4) / sigma, "norm").pvalue)
    lost = int(sum(chance < ALPHA for chance in chances))
    return Figure("F19", "draws of the discrete Gaussian", count, lost, f"smallest p {min(chances):.2g}", "p >= 1e-6")


def _accounting(count: int) -> Figure:
    """The Renyi divergence of sampled discrete Gaussians, summed over the grid, against the bound that is charged."""
    chance, lost, closest = np.random.default_rng(1), 0, math.inf
    for _ in range(count):
        q, sigma, shift = chance.choice([1e-3, 0.03, 0.3, 0.9, 1.0]), chance.uniform(0.4, 8), int(chance.integers(1, 5))
        order = float(chance.choice([2, 3, 5, 8, chance.uniform(1.01, 9)]))
        bound = float(discrete_log_moments(q, sigma / shift, np.array([order]))[0])
        exact = max(_log_moments(q, sigma, shift, order))
        lost += exact > bound * (1 + 1e-9) + 1e-12
        closest = min(closest, 1 - exact / bound)
    return Figure("F19", "sampled discrete Gaussians whose divergence passes the bound", count, lost,
                  f"closest {max(0.0, closest):.0e} below")  # fmt: skip


def _log_moments(q: float, sigma: float, shift: int, order: float) -> tuple[float, float]:
    reach = int(40 * sigma + 2 * order * shift) + 10
    x = np.arange(-reach, reach + 1)
    log_p = -(x**2) / (2 * sigma**2)
    log_q = -((x - shift) ** 2) / (2 * sigma**2)
    total = np.logaddexp.reduce(log_p)
    mixed = log_q if q == 1 else np.logaddexp(np.log1p(-q) + log_p, np.log(q) + log_q)
    pairs = itertools.permutations((mixed - total, log_p - total))
    first, second = (float(np.logaddexp.reduce(order * a + (1 - order) * b)) for a, b in pairs)
    return first, second
