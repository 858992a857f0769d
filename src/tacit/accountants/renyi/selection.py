"""A hyper-parameter search: charge each trial as a run of its own, or draw the number of trials and release one.

Papernot and Steinke 2022 ("Hyperparameter tuning with Renyi differential privacy", theorem 2): draw K from a truncated
negative binomial of parameters eta > -1 and gamma, run K trials with settings chosen at random and independently of the
data, release only the best. If one trial has the Renyi divergences e(.), the whole search has at order a

    e(a) + (1 + eta) (1 - 1/b) e(b) + (1 + eta) log(1/gamma) / b + log E[K] / (a - 1)      for every order b >= 1.
"""

import math
from collections.abc import Sequence

import numpy as np

from tacit.accountants.guarantee import Guarantee, check_ledger, refuse_adaptive, statement
from tacit.accountants.renyi.conversion import rdp_bound
from tacit.accountants.renyi.divergences import ORDERS, renyi_curve
from tacit.accountants.search import root
from tacit.errors import InputError
from tacit.ledger import Ledger
from tacit.types import Floats


def expected_trials(gamma: float, eta: float = 1.0) -> float:
    """E[K]; eta = 1 is the geometric distribution, eta = 0 the logarithmic one.

    Example:
        >>> round(expected_trials(0.1), 9)
        10.0
    """
    if abs(eta) < 1e-9:
        return (1 / gamma - 1) / math.log(1 / gamma)
    return eta * (1 - gamma) / (gamma * -math.expm1(eta * math.log(gamma)))


def gamma_for_trials(trials: float, eta: float = 1.0) -> float:
    """The gamma whose expected number of trials is ``trials``."""
    if not (math.isfinite(trials) and trials > 1):
        raise InputError(f"trials must be a finite number above 1, found {trials!r}")
    if not (math.isfinite(eta) and eta > -1):
        raise InputError(f"eta must be a finite number above -1, found {eta!r}")
    return root(lambda g: math.log(expected_trials(g, eta) / trials), 1e-12, 1 - 1e-9)


def selection_rdp(rdp: Floats, orders: Sequence[float], gamma: float, eta: float = 1.0) -> Floats:
    """The Renyi curve of the whole search from that of one trial."""
    a = np.asarray(orders, dtype=float)
    extra = (1 + eta) * ((1 - 1 / a) * rdp + math.log(1 / gamma) / a)
    return np.asarray(rdp + extra.min() + math.log(expected_trials(gamma, eta)) / (a - 1))


def selection_guarantee(trial: Ledger, *, delta: float, trials: float, eta: float = 1.0) -> Guarantee:
    """What a search costs that draws its number of trials (``trials`` expected) and releases only the best.

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
