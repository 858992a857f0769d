"""Noise, steps or sampling rate for a target (epsilon, delta): always the safe side, never over the target."""

import math
from dataclasses import dataclass

from tacit.accountants.guarantee import check_delta
from tacit.accountants.registry import get_accountant
from tacit.accountants.search import most_within, smallest_within
from tacit.accountants.statement import Accountant
from tacit.errors import InputError
from tacit.ledger import Charge, GaussianSumQuery, Ledger, PoissonSample


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
    epsilon: float, delta: float, *, probability: float, steps: int, accountant: str | Accountant = "pld"
) -> Calibration:
    """The smallest noise multiplier (to 1e-7) at which ``steps`` Poisson samples cost at most (epsilon, delta).

    Example:
        >>> found = calibrate_noise(1.0, 1e-5, probability=0.01, steps=10_000, accountant="rdp")
        >>> found.epsilon <= 1.0
        True
    """
    ask = _Question(epsilon, delta, get_accountant(accountant))
    _check_probability(probability)
    _check_steps(steps)
    noise = smallest_within(lambda z: ask(probability, z, steps), epsilon, "noise_multiplier", start=1.0)
    return ask.answer(probability, noise, steps)


def calibrate_probability(
    epsilon: float, delta: float, *, noise_multiplier: float, steps: int, accountant: str | Accountant = "pld"
) -> Calibration:
    """The largest sampling probability (to 1e-7) within (epsilon, delta)."""
    ask = _Question(epsilon, delta, get_accountant(accountant))
    _check_noise(noise_multiplier)
    _check_steps(steps)
    if ask(1.0, noise_multiplier, steps) <= epsilon:
        return ask.answer(1.0, noise_multiplier, steps)
    # one over the probability behaves like noise: more of it costs less
    inverse = smallest_within(lambda v: ask(1 / v, noise_multiplier, steps), epsilon, "probability", start=100.0)
    return ask.answer(1 / inverse, noise_multiplier, steps)


def calibrate_steps(
    epsilon: float, delta: float, *, probability: float, noise_multiplier: float, accountant: str | Accountant = "pld"
) -> Calibration:
    """The largest number of steps within (epsilon, delta)."""
    ask = _Question(epsilon, delta, get_accountant(accountant))
    _check_probability(probability)
    _check_noise(noise_multiplier)
    if ask(probability, noise_multiplier, 1) > epsilon:
        raise InputError(f"epsilon {epsilon:g} does not pay for a single step; add noise or lower the probability")
    most = most_within(lambda steps: ask(probability, noise_multiplier, steps) <= epsilon)
    return ask.answer(probability, noise_multiplier, most)


@dataclass(frozen=True, slots=True)
class _Question:
    """epsilon of a homogeneous run, as one accountant sees it."""

    epsilon: float
    delta: float
    accountant: Accountant

    def __post_init__(self) -> None:
        check_delta(self.delta)
        if not (isinstance(self.epsilon, int | float) and math.isfinite(self.epsilon) and self.epsilon > 0):
            raise InputError(f"epsilon must be a finite number above 0, found {self.epsilon!r}")

    def __call__(self, probability: float, noise_multiplier: float, steps: int) -> float:
        event = PoissonSample(probability, (GaussianSumQuery(1.0, noise_multiplier),))
        return self.accountant.guarantee(Ledger.planned([Charge(event, steps)]), delta=self.delta).epsilon

    def answer(self, probability: float, noise_multiplier: float, steps: int) -> Calibration:
        cost = self(probability, noise_multiplier, steps)
        return Calibration(noise_multiplier, probability, steps, cost, self.delta, self.accountant.name)


def _check_probability(value: float) -> None:
    if not (isinstance(value, int | float) and 0 < value <= 1):
        raise InputError(f"probability must lie in (0, 1], found {value!r}")


def _check_noise(value: float) -> None:
    if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
        raise InputError(f"noise_multiplier must be a finite number above 0, found {value!r}")


def _check_steps(value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"steps must be a whole number of at least 1, found {value!r}")
