"""The Renyi accountant (Triastcyn and Faltings, theorem 3, L term; Mironov et al. 2019)."""

import math
from dataclasses import dataclass
from typing import ClassVar

from tacit.accountants.failures import without_failures
from tacit.accountants.guarantee import Guarantee, check_ledger, refuse_adaptive, statement
from tacit.accountants.renyi.conversion import ROUNDING, Conversion, conversion_cost, epsilon_from_rdp, rdp_bound
from tacit.accountants.renyi.divergences import renyi_curve
from tacit.accountants.renyi.filter import filter_of
from tacit.accountants.renyi.moments import ORDERS
from tacit.accountants.renyi.posterior_sample import pure_epsilon, taken_as_exact
from tacit.accountants.renyi.trials import gamma_for_trials, selection_rdp
from tacit.ledger import Ledger

PRETENDED = "not a bound: a posterior sample came from a sampler that is not exact, and how near it comes is not known"


@dataclass(frozen=True, slots=True)
class RDPAccountant:
    """A rigorous upper bound, quick and additive; looser than PLD by some ten percent.

    For an adaptive schedule (later steps chosen after a look at outputs) it states the Renyi filter's guarantee at the
    declared budget.
    """

    orders: tuple[float, ...] = ORDERS
    conversion: Conversion = "improved"

    name: ClassVar[str] = "rdp"

    def guarantee(self, ledger: Ledger, *, delta: float) -> Guarantee:
        check_ledger(ledger, delta)
        if not ledger.steps:
            return statement(ledger, accountant=self.name, epsilon=0.0, delta=delta, is_bound=True)
        if ledger.header.schedule == "adaptive":
            return self._filter_guarantee(ledger, delta)
        sure, left = without_failures(ledger, delta)
        ledger, pretended = taken_as_exact(sure)
        curve = renyi_curve(ledger, self.orders, self.name)
        epsilon, _ = epsilon_from_rdp(curve, self.orders, left, self.conversion)
        pure = pure_epsilon(ledger)
        epsilon = min(epsilon, self._individual_filter(ledger, left), math.inf if pure is None else pure)
        also = (PRETENDED,) if pretended else ()
        return statement(
            ledger,
            accountant=self.name,
            epsilon=epsilon * (1 + ROUNDING),
            delta=delta,
            is_bound=not pretended,
            also=also,
        )

    def _individual_filter(self, ledger: Ledger, delta: float) -> float:
        """No record's own divergence has passed the filter's, so nobody has lost more (Feldman and Zrnic 2021)."""
        order, divergence = ledger.header.filter_order, ledger.header.filter_divergence
        if order is None or divergence is None:
            return math.inf
        return max(0.0, divergence + float(conversion_cost((order,), delta, self.conversion)[0]))

    def _filter_guarantee(self, ledger: Ledger, delta: float) -> Guarantee:
        opened = filter_of(ledger)
        return statement(
            ledger,
            accountant=self.name,
            epsilon=opened.epsilon(without_failures(ledger, delta)[1]),
            delta=delta,
            is_bound=True,
            also=(opened.sentence,),
        )


def selection_guarantee(trial: Ledger, *, delta: float, trials: float, eta: float = 1.0) -> Guarantee:
    """What a search costs that draws its number of trials (``trials`` expected) and releases only the best.

    ``renyi/trials.py`` has the theorem.

    Args:
        trial: the ledger of the most expensive single trial, scoring included.
    """
    check_ledger(trial, delta)
    refuse_adaptive("private selection", trial)
    gamma = gamma_for_trials(trials, eta)
    curve = selection_rdp(renyi_curve(trial), ORDERS, gamma, eta)
    epsilon = rdp_bound(curve, ORDERS, delta)
    also = (
        f"search: the number of trials was drawn from a truncated negative binomial (eta {eta:g}, mean {trials:g}), "
        "settings were drawn independently of the data, and only the best trial is released",
    )
    return statement(trial, accountant="rdp_selection", epsilon=epsilon, delta=delta, is_bound=True, also=also)
