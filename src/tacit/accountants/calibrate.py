"""Noise, steps or sampling rate for a target (epsilon, delta): always the safe side, never over the target."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tacit.accountants.gdp import GDPAccountant
from tacit.accountants.guarantee import Accountant, check_delta
from tacit.accountants.registry import get_accountant
from tacit.accountants.search import most_within, smallest_within
from tacit.errors import InputError, RefusedError, check_count, check_positive, check_share
from tacit.ledger import Charge, GaussianSumQuery, Ledger, PoissonSample

Cost = Callable[[float, float, int], float]  # epsilon of (probability, noise multiplier, steps)
_Value = TypeVar("_Value", int, float)


@dataclass(frozen=True, slots=True)
class Calibration:
    """A setting that meets its target, and the epsilon it costs."""

    noise_multiplier: float
    probability: float
    steps: int
    epsilon: float
    delta: float
    accountant: str


def calibrate_noise(
    epsilon: float,
    delta: float,
    *,
    probability: float,
    steps: int,
    accountant: str | Accountant = "pld",
    beside: Sequence[Charge] = (),
) -> Calibration:
    """The smallest noise multiplier (to 1e-7) at which ``steps`` Poisson samples cost at most (epsilon, delta).

    Args:
        beside: what the same ledger is charged for besides, fixed beforehand too: private statistics, other runs.

    Example:
        >>> found = calibrate_noise(1.0, 1e-5, probability=0.01, steps=10_000, accountant="rdp")
        >>> found.epsilon <= 1.0
        True
    """
    cost_of = _RunCost(epsilon, delta, get_accountant(accountant), tuple(beside))
    check_share("probability", probability)
    check_count("steps", steps)

    def find(cost: Cost, start: float) -> float:
        return smallest_within(lambda z: cost(probability, z, steps), epsilon, "noise_multiplier", start)

    return cost_of.calibration(probability, find(cost_of, _first_guess(cost_of, find, 1.0)), steps)


def calibrate_probability(
    epsilon: float, delta: float, *, noise_multiplier: float, steps: int, accountant: str | Accountant = "pld"
) -> Calibration:
    """The largest sampling probability (to 1e-7) within (epsilon, delta)."""
    cost_of = _RunCost(epsilon, delta, get_accountant(accountant))
    check_positive("noise_multiplier", noise_multiplier)
    check_count("steps", steps)
    if cost_of(1.0, noise_multiplier, steps) <= epsilon:
        return cost_of.calibration(1.0, noise_multiplier, steps)

    def find(cost: Cost, start: float) -> float:  # one over the probability behaves like noise: more costs less
        return smallest_within(lambda v: cost(1 / max(1.0, v), noise_multiplier, steps), epsilon, "probability", start)

    return cost_of.calibration(1 / find(cost_of, _first_guess(cost_of, find, 100.0)), noise_multiplier, steps)


def calibrate_steps(
    epsilon: float, delta: float, *, probability: float, noise_multiplier: float, accountant: str | Accountant = "pld"
) -> Calibration:
    """The largest number of steps within (epsilon, delta)."""
    cost_of = _RunCost(epsilon, delta, get_accountant(accountant))
    check_share("probability", probability)
    check_positive("noise_multiplier", noise_multiplier)

    def find(cost: Cost, start: int) -> int:
        return most_within(lambda steps: cost(probability, noise_multiplier, steps), epsilon, max(1, start))

    most = find(cost_of, _first_guess(cost_of, find, 1))
    if most == 0:
        raise InputError(f"epsilon {epsilon:g} does not pay for a single step; add noise or lower the probability")
    return cost_of.calibration(probability, noise_multiplier, most)


def _first_guess(cost_of: "_RunCost", find: Callable[[Cost, _Value], _Value], start: _Value) -> _Value:
    """Where to begin: at the central limit's answer, which is no bound but near, and found in a millisecond."""
    return find(replace(cost_of, accountant=GDPAccountant()), start)


@dataclass(frozen=True, slots=True)
class _RunCost:
    """epsilon of a homogeneous run, as one accountant sees it."""

    epsilon: float
    delta: float
    accountant: Accountant
    beside: tuple[Charge, ...] = ()

    def __post_init__(self) -> None:
        check_delta(self.delta)
        check_positive("epsilon", self.epsilon)

    def __call__(self, probability: float, noise_multiplier: float, steps: int) -> float:
        event = PoissonSample(probability, (GaussianSumQuery(1.0, noise_multiplier),))
        ledger = Ledger.planned([*self.beside, Charge(event, steps)])
        if isinstance(self.accountant, GDPAccountant):
            return self.accountant.epsilon(ledger, self.delta)  # its distance from the bracket is not asked for here
        try:
            return self.accountant.guarantee(ledger, delta=self.delta).epsilon
        except RefusedError:
            return math.inf  # no number is certified there, so it does not meet the target

    def calibration(self, probability: float, noise_multiplier: float, steps: int) -> Calibration:
        cost = self(probability, noise_multiplier, steps)
        return Calibration(noise_multiplier, probability, steps, cost, self.delta, self.accountant.name)
