"""What one draw from a posterior costs (Wang, Fienberg and Smola 2015; "one posterior sample").

Their theorem 1 says 4B for |log-likelihood| <= B and neighbours that replace a record: 2B from the record and 2B from
the normaliser. Adding or removing one moves half as much, and only the *range* R <= 2B of the log-likelihood matters:
epsilon = power * R. The privacy loss moreover lies in an interval of length epsilon ("bounded range"), which two-sided
pure privacy would not give: its moments are a quarter of those of the worst epsilon-private mechanism.
"""

from dataclasses import replace

import numpy as np

from tacit.ledger import Charge, Ledger, PosteriorSample, SamplingEvent
from tacit.types import Floats


def posterior_sample_log_moments(epsilon: float, orders: Floats) -> Floats:
    """(a - 1) times the Renyi divergence of order a: at most min(a epsilon^2 / 8, epsilon), in both directions.

    With L the privacy loss and K(s) = log E_Q exp(sL): K(0) = K(1) = 0, and K'' is the variance of a variable in an
    interval of length epsilon, at most epsilon^2/4. So K(s) - s(s-1) epsilon^2/8 is concave with zeros at 0 and 1,
    hence not positive beyond 1; and (a - 1) D_a = K(a). (Cesar and Rogers 2021 reach the same through zCDP.)

    Example:
        >>> posterior_sample_log_moments(1.0, np.array([2.0, 64.0])).tolist()
        [0.25, 63.0]
    """
    a = np.asarray(orders, dtype=float)
    return np.asarray((a - 1) * np.minimum(a * epsilon**2 / 8, epsilon))


def pure_epsilon(ledger: Ledger) -> float | None:
    """The sum of all epsilons, which holds at every delta, if the ledger has nothing but posterior samples."""
    total = 0.0
    for event, count in ledger.merged().items():
        if not isinstance(event, PosteriorSample):
            return None
        total += count * event.epsilon
    return total


def taken_as_exact(ledger: Ledger) -> tuple[Ledger, bool]:
    """The ledger as if all posterior samples were exact, and whether that had to be pretended of any."""
    charges = tuple(Charge(_exact(charge.event), charge.steps) for charge in ledger.charges)
    return replace(ledger, charges=charges), charges != ledger.charges


def _exact(event: SamplingEvent) -> SamplingEvent:
    return replace(event, exact=True) if isinstance(event, PosteriorSample) else event
