"""The Renyi filter: what may be stated when noise, rate or stop were chosen after seeing earlier outputs.

Fix one order alpha before the first output. If the Renyi divergences of the releases, each chosen from what was
released before it, never add up to more than B, then the whole interaction is (alpha, B)-Renyi private, in both
directions (Feldman and Zrnic 2021, "Individual privacy accounting via a Renyi filter"; filters go back to Rogers et al.
2016; interleaved passes are covered by Haney et al. 2023). The order may not follow the outputs: the smallest epsilon
over many orders would need delta shared among them. Here it is a function of the declared budget and of the first
event, both known before any output, so that anyone can recompute it from the ledger.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tacit.accountants.failures import without_failures
from tacit.accountants.guarantee import check_delta
from tacit.accountants.renyi.conversion import conversion_cost
from tacit.accountants.renyi.divergences import renyi_curve
from tacit.accountants.renyi.moments import ORDERS
from tacit.errors import InputError, RefusedError
from tacit.ledger import Charge, Ledger, LedgerHeader

SLACK = 1e-9  # relative room for rounding in the sum of divergences


@dataclass(frozen=True, slots=True)
class RenyiFilter:
    """One order, and how much divergence at that order the budget allows."""

    order: float
    allowed: float

    @classmethod
    def opened(cls, epsilon: float, delta: float, first: Charge, ledger: Ledger) -> "RenyiFilter":
        """The order at which the first event could be repeated most often within (epsilon, delta)."""
        check_delta(delta)
        allowed = epsilon - conversion_cost(ORDERS, delta)
        single = renyi_curve(replace(ledger, charges=(Charge(first.event, 1),)))
        repeats = np.where(allowed > 0, allowed, 0.0) / np.maximum(single, np.finfo(float).tiny)
        best = int(np.argmax(repeats))
        if repeats[best] <= 0:
            raise InputError(f"epsilon {epsilon:g} at delta {delta:g} is too small for any Renyi order")
        return cls(ORDERS[best], float(allowed[best]))

    def spent(self, ledger: Ledger) -> float:
        """The divergence of all charges at this order."""
        return float(renyi_curve(ledger, (self.order,))[0]) if ledger.steps else 0.0

    def admits(self, divergence: float) -> bool:
        """Whether releases that cost this much altogether, at this order, are within the budget."""
        return divergence * (1 + SLACK) <= self.allowed

    def epsilon(self, delta: float) -> float:
        """(alpha, allowed)-Renyi privacy, read at some delta."""
        return max(0.0, self.allowed + float(conversion_cost((self.order,), delta)[0]))

    @property
    def sentence(self) -> str:
        return f"adaptive schedule: stated for the whole budget, by a Renyi filter of order {self.order:g}"


def filter_of(ledger: Ledger) -> RenyiFilter:
    """The filter that a ledger's declared budget and first event open; refused without a budget or beyond it."""
    header = ledger.header
    if header.epsilon is None or header.delta is None:
        raise RefusedError("an adaptive schedule can be stated only at a budget, and this ledger declares none")
    sure, left = without_failures(ledger, header.delta)
    opened = RenyiFilter.opened(header.epsilon, left, sure.charges[0], sure)
    if not opened.admits(opened.spent(sure)):
        raise RefusedError(f"the charges exceed the budget epsilon {header.epsilon:g} that the ledger declares")
    return opened


def cost_by_filter(charges: Sequence[Charge], epsilon: float, delta: float) -> float:
    """How much of epsilon an adaptive ledger spends on these charges if it is opened with them, by its own filter.

    Example:
        >>> from tacit.ledger import GaussianSumQuery, PoissonSample
        >>> step = Charge(PoissonSample(0.05, (GaussianSumQuery(1.0, 4.0),)), 300)
        >>> 0.9 < cost_by_filter([step], 1.0, 1e-6) < 1.1
        True
    """
    header = LedgerHeader(epsilon=epsilon, delta=delta, schedule="adaptive")
    sure, left = without_failures(Ledger(header, tuple(charges)), delta)
    opened = RenyiFilter.opened(epsilon, left, sure.charges[0], sure)
    return epsilon * opened.spent(sure) * (1 + 2 * SLACK) / opened.allowed
