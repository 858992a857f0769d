"""Upper bounds of log E[exp V] from a sample of V: how an expectation over a population is had from some records.

``betting`` is sound for every distribution on (-inf, log_bound]: it fails with probability at most gamma, because the
capital of a gambler who bets that the mean is smaller than it is cannot grow (Waudby-Smith and Ramdas 2024; Ville).
``student_t`` is the paper's (Triastcyn and Faltings 2020, eq. 14, with the T that it lost in print): it presumes a
shape that skewed norms do not have, and underestimates them most of the time
(docs/explanation/bayesian-privacy.md). ``binary`` is its section 4.3.1: whoever is above the
largest value seen is charged the worst case.

No estimator without assumptions can gain more over the worst case than a factor m / log(1/gamma) of the expectation.
"""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp, stdtrit

from tacit.accountants.bayesian.percentiles import flat_prior_upper
from tacit.accountants.search import root
from tacit.errors import InputError, check_inside
from tacit.types import Floats

EstimatorName = Literal["betting", "student_t", "binary"]
Estimator = Callable[[Floats, float, float], float]

_BETS: Floats = 1 - np.concatenate(
    [[1e-6, 1e-4, 1e-3, 1e-2], np.linspace(0.03, 0.97, 24), [0.99, 0.997, 0.999, 0.9997]]
)  # fixed beforehand: a bet may not look at the data
_DISTINCT = 2048
_FLOOR = 1e-12


def betting(values: ArrayLike, log_bound: float, gamma: float) -> float:
    """log E[exp V] <= this but for a chance gamma, for any distribution with V <= log_bound.

    With Z = exp(V - log_bound) in [0, 1], the bound on E[Z] is the mu at which
    K(mu) = mean_j prod_i (1 + b_j (mu - Z_i)/(1 - mu)) reaches 1/gamma.

    Example:
        >>> round(betting([-690.0] * 1000, 10.0, 1e-6), 4)
        5.8341
    """
    v = _checked(values, gamma)
    if v.max() > log_bound + 1e-9 * max(1.0, abs(log_bound)):
        raise InputError(f"a value {v.max():g} exceeds the bound {log_bound:g} on which the estimate rests")
    return log_bound + math.log(mean_upper(np.exp(np.minimum(v - log_bound, 0.0)), gamma))


def mean_upper(values: ArrayLike, gamma: float) -> float:
    """An upper bound of the mean of a variable in [0, 1], but for a chance gamma."""
    z, counts = _distinct(np.asarray(values, dtype=float))
    target = -math.log(gamma)

    def excess(mu: float) -> float:
        capital = np.log1p(_BETS[:, None] * ((mu - z) / (1 - mu))) @ counts
        return float(logsumexp(capital) - math.log(len(_BETS))) - target

    low, high = max(float(z @ counts) / counts.sum(), 1e-300), 1 - 1e-12
    if excess(high) < 0:
        return 1.0
    return min(1.0, root(excess, low, high) * (1 + 1e-11))


def student_t(values: ArrayLike, log_bound: float, gamma: float) -> float:
    """The paper's estimator: log(M + t_(m-1)(1 - gamma) S / sqrt(m-1)), never above the worst case. A heuristic."""
    v = _checked(values, gamma)
    if len(v) < 2:
        return log_bound
    top = float(v.max())
    scaled = np.exp(v - top)
    quantile = -float(stdtrit(len(v) - 1, gamma))  # t_(m-1)(1 - gamma), which is symmetric
    spread = quantile * float(scaled.std()) / math.sqrt(len(v) - 1)
    return min(log_bound, top + math.log(float(scaled.mean()) + spread))


def binary(values: ArrayLike, log_bound: float, gamma: float) -> float:
    """At most the largest value seen, but for a share of the population that is charged the worst case.

    Triastcyn and Faltings 2020, 4.3.1.
    """
    v = _checked(values, gamma)
    share, top = flat_prior_upper(0, len(v), gamma), float(v.max())
    return min(log_bound, float(np.logaddexp(math.log1p(-share) + top, math.log(share) + log_bound)))


ESTIMATORS: dict[EstimatorName, Estimator] = {"betting": betting, "student_t": student_t, "binary": binary}


def _distinct(z: Floats) -> tuple[Floats, Floats]:
    """Equal values counted together; very many are rounded up by at most 0.1 % first: that can only raise the bound."""
    distinct, counts = np.unique(z, return_counts=True)
    if len(distinct) > _DISTINCT:
        steps = np.ceil(np.log(np.maximum(distinct, _FLOOR)) / 1e-3)
        rounded = np.minimum(np.exp(steps * 1e-3), 1.0)
        distinct, place = np.unique(rounded, return_inverse=True)
        counts = np.bincount(place, weights=counts)
    return distinct, counts.astype(float)


def _checked(values: ArrayLike, gamma: float) -> Floats:
    v = np.asarray(values, dtype=float).ravel()
    if v.size == 0 or np.isnan(v).any():
        raise InputError("an estimate needs at least one value, and no NaN")
    check_inside("gamma", gamma)
    return v
