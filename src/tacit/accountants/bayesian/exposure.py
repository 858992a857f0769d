"""Exposure: how often each record stood at which distance, over a whole ledger.

All that the Bayesian and individual accountants need of a record is the sum over steps of functions f(q, r_t). With
u = r^2 on a grid and each step shared out linearly between its two neighbours, that sum is a matrix product:

    sum_t f(q, r_t) ~ weights @ f(grid).

For the privacy cost A(lambda, q, r), the logarithm of a sum of exponentials of u, f is convex in u: the chord lies
above it, so the product is an upper bound. For the other functions the error is of second order in the grid's spacing.
Steps that no evidence covers count at the worst case, share 1.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.accountants.bayesian.cost import MOMENTS, privacy_costs
from tacit.accountants.guarantee import refuse_event
from tacit.errors import InputError, RefusedError
from tacit.evidence import Evidence
from tacit.ledger import Ledger, PoissonSample
from tacit.types import Floats

_CELLS = 240  # of the grid, even in r: distances are resolved to 0.4 % of the largest
_AGREE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The steps of one sampling probability: weights [records, grid] of each distance of the grid."""

    probability: float
    grid: Floats
    weights: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Exposure:
    """How often each record stood at which distance.

    Args:
        parts: one for each distinct sampling probability.
        worst: the worst case alone, as a single record that is at the clip in every step.
    """

    parts: tuple[Part, ...]
    worst: tuple[Part, ...]

    @property
    def records(self) -> int:
        return len(self.parts[0].weights)

    def total(self, value: Callable[[float, Floats], Floats]) -> Floats:
        """sum_t f(q, r_t) for each record; ``value(q, distances)`` gives [distances, columns]."""
        return sum_parts(self.parts, value)

    def total_worst(self, value: Callable[[float, Floats], Floats]) -> Floats:
        return np.asarray(sum_parts(self.worst, value)[0])

    def costs(self, moments: tuple[int, ...] = MOMENTS) -> tuple[Floats, Floats]:
        """V(lambda) = sum_t A(lambda, q_t, r_t) of each record, [records, moments], and of the worst case."""

        def cost(q: float, r: Floats) -> Floats:
            return privacy_costs(q, r, moments)

        worst = self.total_worst(cost)
        return np.minimum(self.total(cost), worst), worst

    def mu(self) -> Floats:
        """The Gaussian-DP parameter of each record by the central limit: a measure of size, not a guarantee."""
        return np.sqrt(self.total(lambda q, r: _clt(q, r)[:, None])[:, 0])

    def take(self, rows: NDArray[np.int64]) -> "Exposure":
        return Exposure(tuple(Part(p.probability, p.grid, p.weights[rows]) for p in self.parts), self.worst)


def sum_parts(parts: tuple[Part, ...], value: Callable[[float, Floats], Floats]) -> Floats:
    return np.asarray(sum(part.weights @ value(part.probability, part.grid) for part in parts))


def constant_exposure(probability: float, distances: ArrayLike, steps: int) -> Exposure:
    """Records that stand at the same distance in every step; the largest is the worst case. Exact for few distances."""
    r = np.asarray(distances, dtype=float)
    grid = np.unique(r)
    if len(grid) > _CELLS or grid[0] < grid[-1] / 1000:
        grid = grid[-1] * np.linspace(0, 1, _CELLS + 1)
    weights, worst = np.zeros((r.size, grid.size)), np.zeros((1, grid.size))
    _share_out(weights, grid, r, steps)
    worst[0, -1] = steps
    return Exposure((Part(probability, grid, weights),), (Part(probability, grid, worst),))


def check_evidence(evidence: object) -> None:
    """Refuse what is no evidence: without it nothing is known of single records."""
    if not isinstance(evidence, Evidence):
        raise RefusedError("this number needs evidence of records: train with probes, or give the evidence of the run")


def exposure_of(ledger: Ledger, evidence: Evidence, name: str) -> Exposure:
    """Join a ledger and its evidence; what the evidence does not cover is charged at the worst case."""
    charged = _charged(ledger, name)
    covered = dict.fromkeys(charged, 0)
    for item in evidence.stretches:
        key = _find(charged, item.probability, item.noise_multiplier)
        covered[key] += item.steps
        if covered[key] > charged[key]:
            raise InputError(f"the evidence speaks of more steps than the ledger charged at q {key[0]:g}, z {key[1]:g}")
    parts, worst = [], []
    for q in sorted({q for q, _ in charged}):
        far = max(1 / z for p, z in charged if p == q)
        grid = far * np.linspace(0, 1, _CELLS + 1)
        weights = np.zeros((evidence.records, _CELLS + 1))
        for item, shares in evidence.between():
            if _same(item.probability, q):
                _share_out(weights, grid, shares.astype(float) / item.noise_multiplier, item.steps)
        whole = np.zeros((1, _CELLS + 1))
        for (p, z), steps in charged.items():
            if p == q:
                _share_out(weights, grid, np.full(evidence.records, 1 / z), steps - covered[p, z])
                _share_out(whole, grid, np.array([1 / z]), steps)
        parts.append(Part(q, grid, weights))
        worst.append(Part(q, grid, whole))
    return Exposure(tuple(parts), tuple(worst))


def uncovered_steps(ledger: Ledger, evidence: Evidence) -> int:
    return ledger.steps - evidence.steps


def _charged(ledger: Ledger, name: str) -> dict[tuple[float, float], int]:
    charged: dict[tuple[float, float], int] = {}
    for event, steps in ledger.merged().items():
        match event:
            case PoissonSample(probability=q, noise_multiplier=z):
                charged[q, z] = charged.get((q, z), 0) + steps
            case _:
                raise refuse_event(name, event)
    if not charged:
        raise RefusedError(f"{name} has nothing to say about a ledger without steps")
    return charged


def _find(charged: dict[tuple[float, float], int], q: float, z: float) -> tuple[float, float]:
    for p, noise in charged:
        if _same(p, q) and _same(noise, z):
            return p, noise
    raise InputError(f"the evidence speaks of steps at q {q:g}, z {z:g}, which the ledger never charged")


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_AGREE)


def _share_out(weights: Floats, grid: Floats, distances: Floats, steps: int) -> None:
    """Add ``steps`` steps to each record, divided between the grid points around its r^2."""
    if steps == 0:
        return
    if len(grid) == 1:
        weights[:, 0] += steps
        return
    square, r = grid**2, np.minimum(distances, grid[-1])
    right = np.clip(np.searchsorted(grid, r, side="left"), 1, len(grid) - 1)
    share = (r**2 - square[right - 1]) / (square[right] - square[right - 1])
    rows = np.arange(len(weights))
    weights[rows, right] += steps * share
    weights[rows, right - 1] += steps * (1 - share)


def _clt(q: float, r: Floats) -> Floats:
    square = np.square(r)
    return square if q >= 1 else q * q * np.expm1(np.minimum(square, 50.0))
