"""The best of a random number of trials (Papernot and Steinke 2022, "Hyperparameter tuning with Renyi DP").

Draw K, run K trials, release the best and nothing else. With f(x) = E[x^K] and q the chance that a trial ends at or
below an output y, the density of the search at y is that of a trial times f'(q). Of neighbours (q' for the other),

    exp((a-1) D_a) = sum_y trial^a trial'^(1-a) f'(q)^a f'(q')^(1-a) <= exp((a-1) e(a)) max f'(q)^a f'(q')^(1-a).

e(.) are one trial's Renyi divergences, the larger of both directions. What is left is the maximum over pairs (q, q')
that a trial allows.

Truncated negative binomial (theorem 2): f'(q) <= E[K], and f'(q)/f'(q') is a power 1 + eta of a ratio of two events'
chances that are at least gamma, which Renyi divergence at any order b >= 1 bounds:

    e(a) + (1 + eta) (1 - 1/b) e(b) + (1 + eta) log(1/gamma) / b + log E[K] / (a - 1).

Poisson of mean m (theorem 6): f'(q)^a f'(q')^(1-a) = m exp(m ((a-1) p' - a p)) with p = 1 - q, at most
m exp((a-1) m delta) if a trial is (log(1 + 1/(a-1)), delta)-private. It says no trial at all with chance e^-m; here
there is one then. f' grows by c = e^-m, and since (x, y) -> x^a y^(1-a) is convex and homogeneous, hence subadditive,
(f'(q) + c)^a (f'(q') + c)^(1-a) is at most what it was plus c:

    e(a) + log(m exp((a-1) m delta) + e^-m) / (a - 1).
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from tacit.accountants.pld import PoissonGaussian, delta_curve
from tacit.accountants.renyi.moments import ORDERS, poisson_log_moments
from tacit.accountants.search import root
from tacit.errors import InputError
from tacit.ledger import NegativeBinomialTrials, PoissonTrials, Tuned
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


def selection_rdp(
    rdp: Floats, orders: Sequence[float] | Floats, gamma: float, eta: float, other: tuple[Floats, Floats] | None = None
) -> Floats:
    """The Renyi curve of a search by the truncated negative binomial from that of one trial.

    Args:
        other: divergences of a trial and their orders b; by default those of the curve itself.
    """
    a = np.asarray(orders, dtype=float)
    found, b = (rdp, a) if other is None else other
    extra = (1 + eta) * ((1 - 1 / b) * found + math.log(1 / gamma) / b)
    return np.asarray(rdp + extra.min() + math.log(expected_trials(gamma, eta)) / (a - 1))


def poisson_selection_rdp(rdp: Floats, orders: Floats, mean: float, deltas: Floats) -> Floats:
    """The Renyi curve of a search whose number of trials is Poisson, or one; deltas are those at log(1 + 1/(a-1))."""
    more = orders - 1
    return np.asarray(rdp + np.logaddexp(math.log(mean) + more * mean * deltas, -mean) / more)


@lru_cache(maxsize=256)
def _tuned(event: Tuned, orders: tuple[float, ...]) -> Floats:
    rows = [(one.probability, one.noise_multiplier, steps) for one, steps in event.trial]
    a = np.array(orders)
    rdp = poisson_log_moments(rows, a) / (a - 1)
    match event.trials:
        case NegativeBinomialTrials(eta=eta, gamma=gamma):
            b = np.array(ORDERS)
            return selection_rdp(rdp, a, gamma, eta, (poisson_log_moments(rows, b) / (b - 1), b))
        case PoissonTrials(mean=mean):
            steps = [PoissonGaussian(q, z, count) for q, z, count in rows]
            return poisson_selection_rdp(rdp, a, mean, delta_curve(steps, np.log1p(1 / (a - 1)))[1])


def tuned_log_moments(event: Tuned, a: Floats) -> Floats:
    """(a - 1) times the Renyi divergence of a whole search at each order."""
    return np.asarray((a - 1) * _tuned(event, tuple(a.tolist())))
