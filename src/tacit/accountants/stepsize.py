"""Step sizes of private SGLD (Li et al. 2019): the theorems' formulas, and the exact largest ones beside them.

With the paper's step size eta, sampling probability q = B/N and Lipschitz constant L, the Langevin noise is Gaussian
noise of multiplier z = q sqrt(N / eta) / L on the sum, so the largest step is the smallest noise an accountant allows.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tacit.accountants.calibrate import calibrate_noise
from tacit.accountants.gaussian import gaussian_mu
from tacit.accountants.guarantee import Accountant, check_delta
from tacit.accountants.registry import get_accountant
from tacit.accountants.search import smallest_within
from tacit.errors import InputError, check_positive
from tacit.ledger import Charge, GaussianSumQuery, Ledger, PoissonSample

_BUCKETS = 300


@dataclass(frozen=True, slots=True)
class SGLDTask:
    """What a bound on the step size depends on."""

    epsilon: float
    delta: float
    dataset_size: int
    steps: int
    lipschitz: float = 1.0

    def __post_init__(self) -> None:
        check_delta(self.delta)
        for name in ("epsilon", "dataset_size", "steps", "lipschitz"):
            check_positive(name, getattr(self, name))

    @property
    def _common(self) -> float:
        return self.epsilon**2 * self.dataset_size / self.lipschitz**2


def wang_bound(task: SGLDTask, log_term: Literal["2.5T/delta", "T/delta"] = "2.5T/delta") -> float:
    """Wang et al. as Li et al. 2019 prints it; the quoted 1.54e-6 has log(T/delta)."""
    factor = {"2.5T/delta": 2.5, "T/delta": 1.0}[log_term]
    logs = math.log(factor * task.steps / task.delta) * math.log(2 / task.delta)
    return task._common / (128 * task.steps * logs)


def theorem_3_bound(task: SGLDTask, t: int = 1, c2: float = 1.0) -> float:
    """Li et al. 2019, theorem 3, condition 3, at step t of a t^(-1/3) schedule. The constant is not given there."""
    return float(task._common / (t ** (1 / 3) * c2**2 * task.steps ** (2 / 3) * math.log(1 / task.delta)))


def theorem_4_bound(task: SGLDTask, c: float = 1.0) -> float:
    """Li et al. 2019, theorem 4, for a fixed step size. The constant is not given there."""
    return task._common / (c**2 * task.steps * math.log(1 / task.delta))


def theorem_conditions(dataset_size: int, lipschitz: float, batch_size: int) -> tuple[float, float]:
    """(lower, upper) limits of eta in theorem 3, conditions 1 and 2: q^2 N / (256 L^2) < eta <= N / L^2."""
    upper = dataset_size / lipschitz**2
    return (batch_size / dataset_size) ** 2 * upper / 256, upper


def gaussian_limit(task: SGLDTask) -> tuple[float, float, float]:
    """(mu, fixed step, first step of t^(-1/3)) in the limit mu^2 = L^2 sum(eta) / N: an optimistic reference."""
    mu = gaussian_mu(task.epsilon, task.delta)
    total = mu**2 * task.dataset_size / task.lipschitz**2
    return mu, total / task.steps, total / float((np.arange(1, task.steps + 1) ** (-1 / 3)).sum())


def max_fixed_step(task: SGLDTask, batch_size: int, accountant: str | Accountant = "pld") -> float:
    """The largest fixed step size whose whole run costs at most (epsilon, delta)."""
    q = _probability(task, batch_size)
    found = calibrate_noise(task.epsilon, task.delta, probability=q, steps=task.steps, accountant=accountant)
    return _step_size(task, q, found.noise_multiplier)


def max_decreasing_step(
    task: SGLDTask, batch_size: int, accountant: str | Accountant = "rdp", buckets: int = _BUCKETS
) -> float:
    """The largest eta_1 of a schedule eta_1 t^(-1/3) within (epsilon, delta).

    The schedule is a ledger of as many events as steps. Here steps share the least noise of their bucket, which can
    only make the answer smaller.
    """
    q, reader = _probability(task, batch_size), get_accountant(accountant)
    starts = np.unique(np.geomspace(1, task.steps, buckets).astype(int))
    counts = np.diff(np.append(starts, task.steps + 1))

    def cost(first: float) -> float:
        charges = [
            Charge(PoissonSample(q, (GaussianSumQuery(1.0, first * float(t) ** (1 / 6)),)), int(n))
            for t, n in zip(starts, counts, strict=True)
        ]
        return reader.guarantee(Ledger.planned(charges), delta=task.delta).epsilon

    return _step_size(task, q, smallest_within(cost, task.epsilon, "step size", start=1.0))


def _step_size(task: SGLDTask, q: float, noise_multiplier: float) -> float:
    return task.dataset_size * (q / (task.lipschitz * noise_multiplier)) ** 2 * (1 - 1e-12)  # rounded to the safe side


def _probability(task: SGLDTask, batch_size: int) -> float:
    if not (isinstance(batch_size, int) and 1 <= batch_size <= task.dataset_size):
        raise InputError(f"batch_size must lie between 1 and the data set's {task.dataset_size}, found {batch_size!r}")
    return batch_size / task.dataset_size
