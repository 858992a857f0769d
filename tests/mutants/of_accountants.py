"""Bugs of the numbers (F2, F13, F24)."""

from dataclasses import replace

import numpy as np

from tacit.accountants import curves, gdp
from tacit.accountants.gdp import GDPAccountant
from tacit.accountants.pld import PoissonGaussian
from tacit.accountants.pld import accountant as pld_accountant
from tacit.accountants.renyi import conversion, moments, rdp
from tacit.ledger import FixedSizeSample, PoissonSample, events
from tests.mutants.mutant import Mutant, swap

REAL_BRACKET = pld_accountant._bracket.__wrapped__
REAL_COST = conversion.conversion_cost
REAL_MOMENTS = moments.log_moments
REAL_GDP = GDPAccountant.guarantee
REAL_RELEASES = pld_accountant.releases


def larger_delta(found, delta):
    return REAL_BRACKET(found, min(0.5, 10 * delta))


def one_step_less(ledger, name="pld"):
    found = REAL_RELEASES(ledger, name)
    return replace(found, events=tuple(replace(one, count=one.count - 1) for one in found.events))


def lower_end(found, delta):
    bracket = REAL_BRACKET(found, delta)
    return replace(bracket, upper=0.97 * bracket.lower, lower=0.9 * bracket.lower)


def wrong_sign(orders, delta, kind="improved"):
    a = np.asarray(orders, dtype=float)
    return REAL_COST(orders, delta, kind) - 2 * np.abs(np.log(a)) / (a - 1) - np.log(1 / delta) / (2 * (a - 1))


def smaller_moments(probability, noise_multiplier, orders):
    return 0.7 * REAL_MOMENTS(probability, noise_multiplier, orders)


def sampled_twice(probability, noise_multiplier, orders):
    return REAL_MOMENTS(np.asarray(probability) ** 2, noise_multiplier, orders)


def called_a_bound(self, ledger, *, delta, evidence=None):
    return replace(REAL_GDP(self, ledger, delta=delta), is_bound=True)


def largest_alone(queries):
    """Groups that are not merged: the noise multiplier of the quietest of them."""
    return max(query.noise_multiplier for query in queries)


def poisson_for_everything(ledger, name="pld"):
    events = tuple(
        PoissonGaussian(event.probability, event.noise_multiplier, steps)
        for event, steps in ledger.merged().items()
        if isinstance(event, PoissonSample | FixedSizeSample)
    )
    return pld_accountant.Releases(events, 0.0)


def adaptive_as_fixed(accountant, ledger):
    """Nothing is refused."""


MUTANTS = [
    Mutant("PLD with ten times the delta", "F24", lambda: [swap(pld_accountant, "_bracket", larger_delta)],
           "audit: accountants"),
    Mutant("PLD forgets a step of every kind", "F24", lambda: [swap(pld_accountant, "releases", one_step_less)],
           "audit: accountants"),
    Mutant("PLD reports less than its lower end", "F24", lambda: [swap(pld_accountant, "_bracket", lower_end)],
           "audit: accountants"),
    Mutant("RDP converted with a wrong sign", "F24", lambda: [
        swap(conversion, "conversion_cost", wrong_sign), swap(rdp, "conversion_cost", wrong_sign)],
        "audit: accountants"),
    Mutant("RDP moments too small", "F24", lambda: [swap(moments, "log_moments", smaller_moments)],
           "audit: accountants"),
    Mutant("RDP amplifies by sampling twice", "F24", lambda: [swap(moments, "log_moments", sampled_twice)],
           "audit: accountants"),
    Mutant("GDP's approximation called a bound", "F24", lambda: [swap(GDPAccountant, "guarantee", called_a_bound)],
           "audit: accountants"),
    Mutant("groups accounted one by one", "F24", lambda: [swap(events, "merged_noise_multiplier", largest_alone)],
           "audit: accountants"),
    Mutant("fixed size accounted as Poisson", "F2", lambda: [
        swap(pld_accountant, "_fixed_size_samples", lambda ledger: ()),
        swap(pld_accountant, "releases", poisson_for_everything)], "test_pld_charges_twice_the_contribution"),
    Mutant("adaptive schedules accounted as fixed", "F13", lambda: [
        swap(module, "refuse_adaptive", adaptive_as_fixed) for module in (curves, gdp, pld_accountant)],
        "test_adaptive_ledgers_are_refused"),
]  # fmt: skip
