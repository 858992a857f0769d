"""Gaussian differential privacy by the central limit: an approximation, and labelled so.

Zhang et al. 2021 says to take the smallest of several numbers; this one must never be part of a minimum, for it is not
an upper bound: 0.8345 where the truth is 0.8645, 36 % low on a ledger of 1000 distinct events (maths.md 1).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy.special import ndtr

from tacit.accountants.gaussian import gaussian_epsilon
from tacit.accountants.guarantee import Guarantee, check_ledger, refuse_adaptive, refuse_event, statement
from tacit.accountants.pld.accountant import ledger_bracket
from tacit.accountants.renyi.conversion import ROUNDING
from tacit.errors import InputError, RefusedError
from tacit.ledger import Ledger, PoissonSample, SamplingEvent


def gdp_mu(
    probability: float, noise_multiplier: float, steps: float, limit: Literal["poisson", "uniform"] = "poisson"
) -> float:
    """mu of the central limit of ``steps`` releases: Poisson sampling, or uniform batches (Bu et al. 2020).

    Example:
        >>> round(gdp_mu(256 / 60000, 1.3, 3515.625), 6)
        0.227274
    """
    match limit:
        case "poisson":
            return math.sqrt(steps * _mu_squared(probability, noise_multiplier))
        case "uniform":
            r = 1 / noise_multiplier
            inner = math.exp(r * r) * float(ndtr(1.5 * r)) + 3 * float(ndtr(-0.5 * r)) - 2
            return math.sqrt(2 * steps * inner) * probability
        case _:
            raise InputError(f"limit must be poisson or uniform, found {limit!r}")


def _mu_squared(q: float, z: float) -> float:
    """One release; without sampling it is exactly Gaussian."""
    if q >= 1:
        return z**-2
    with np.errstate(over="ignore"):
        return float(q * q * np.expm1(z**-2.0))


def ledger_mu(steps: Mapping[SamplingEvent, int], name: str = "gdp") -> float:
    """sqrt of the sum of all squared mu (Zhang et al. 2021, C.1)."""
    total = 0.0
    for event, count in steps.items():
        match event:
            case PoissonSample(probability=q, noise_multiplier=z):
                total += count * _mu_squared(q, z)
            case _:
                raise refuse_event(name, event)
    return math.sqrt(total)


@dataclass(frozen=True, slots=True)
class GDPAccountant:
    """Exact for full batches; otherwise an approximation that says how far it is from the certified bracket."""

    name: ClassVar[str] = "gdp"

    def guarantee(self, ledger: Ledger, *, delta: float) -> Guarantee:
        check_ledger(ledger, delta)
        refuse_adaptive(self.name, ledger)
        epsilon = self.epsilon(ledger, delta)
        exact = all(isinstance(event, PoissonSample) and event.probability == 1 for event in ledger.merged())
        also = () if exact else (_distance(ledger, epsilon, delta),)
        return statement(ledger, accountant=self.name, epsilon=epsilon, delta=delta, is_bound=exact, also=also)

    def epsilon(self, ledger: Ledger, delta: float) -> float:
        """The bare number, for searches that ask for many."""
        return gaussian_epsilon(ledger_mu(ledger.merged(), self.name), delta) * (1 + ROUNDING)


def _distance(ledger: Ledger, epsilon: float, delta: float) -> str:
    try:
        bracket = ledger_bracket(ledger, delta)
    except RefusedError:
        return "central-limit approximation, not a bound, and its distance from one is not known here"
    inside = f"[{bracket.lower:.6g}, {bracket.upper:.6g}]"
    text = f"central-limit approximation, not a bound: the certified bracket is {inside}"
    if epsilon < bracket.lower:
        return f"{text}, so this number is at least {1 - epsilon / bracket.lower:.2%} too low"
    return text
