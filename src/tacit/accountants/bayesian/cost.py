"""The privacy cost of one record at one step (Triastcyn and Faltings 2020, theorem 3): moments of its privacy loss.

    A(lambda, q, r) = log sum_k binom(lambda+1, k) q^k (1-q)^(lambda+1-k) exp((k-1) D_k(r))

with D_k(r) the Renyi divergence of order k between two outcomes at distance r: k r^2/2 for the Gaussian, for which this
is the L term of theorem 3. It is the direction "remove"; for outcomes that a reflection exchanges (Gaussian, Laplace,
any symmetric noise) the other direction is never larger (Mironov et al. 2019, theorem 5), so it alone is needed. The R
term printed in the paper is a bound of order q, fifty times too large where it matters; it is here to show just that.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, logsumexp

from tacit.accountants.renyi.moments import log_moments
from tacit.errors import InputError
from tacit.types import Floats

# lambda: every order up to 64, then about every twelfth part more (maths.md 2: faint releases need large ones)
MOMENTS: tuple[int, ...] = (*range(1, 65), *(int(m) for m in np.unique(np.round(np.geomspace(70, 1023, 18)))))

Outcome = Callable[[Floats, int], Floats]
"""The Renyi divergence of order k >= 2 between two outcomes at each distance: any mechanism is plugged in by it."""


def gaussian_outcome(distances: Floats, order: int) -> Floats:
    """D_k of N(0, 1) and N(r, 1): k r^2 / 2."""
    return np.asarray(order * np.square(distances) / 2)


def laplace_outcome(distances: Floats, order: int) -> Floats:
    """D_k of Laplace(0, 1) and Laplace(r, 1) (Gil et al. 2013), in a form that does not overflow.

    Example:
        >>> laplace_outcome(np.array([1.0]), 2).round(6)
        array([0.619124])
    """
    r, k = np.asarray(distances, dtype=float), float(order)
    lead = np.log(k / (2 * k - 1)) + (k - 1) * r
    rest = np.log((k - 1) / (2 * k - 1)) - k * r
    return np.asarray(np.logaddexp(lead, rest) / (k - 1))


def privacy_costs(
    probability: float, distances: ArrayLike, moments: Sequence[int] = MOMENTS, outcome: Outcome = gaussian_outcome
) -> Floats:
    """A(lambda, q, r) for each distance and each moment, as an array [distances, moments].

    Args:
        probability: q, with which a record takes part in the step.
        distances: r, how far the record moves the outcome, in units of the noise.
        moments: lambda, whole numbers of at least 1.
        outcome: the Renyi divergence of the noise; Gaussian by default.

    Example:
        >>> privacy_costs(0.01, [1.0], [4]).round(6)
        array([[0.001875]])
    """
    r = np.atleast_1d(np.asarray(distances, dtype=float))
    orders = _checked(probability, r, moments)
    if outcome is not gaussian_outcome:
        return _by_divergences(probability, r, orders, outcome)
    result = np.zeros((r.size, orders.size))
    apart = r > 0
    result[apart] = log_moments(probability, 1 / r[apart], orders)
    return result


def printed_reverse_cost(probability: float, distances: ArrayLike, moment: int) -> Floats:
    """The R term as theorem 3 prints it: log E[exp((k^2+k) r^2/2)], k ~ Binomial(lambda, q). Used for no number."""
    square = np.square(np.atleast_1d(np.asarray(distances, dtype=float)))[:, None]
    k = np.arange(moment + 1)
    return np.asarray(logsumexp(_log_binomial(moment, probability) + (k * k + k) * square / 2, axis=1))


def holder_cost(costs: ArrayLike, steps: float, weights: ArrayLike | None = None) -> float:
    """c_t(lambda, T) = (1/T) log E_x[exp(T A_t(x))] for a known distribution of records.

    Triastcyn and Faltings, eq. 10.
    """
    values = np.asarray(costs, dtype=float)
    w = np.full(values.shape, 1 / values.size) if weights is None else np.asarray(weights, dtype=float)
    return float(logsumexp(steps * values, b=w)) / steps


def _by_divergences(q: float, r: Floats, orders: Floats, outcome: Outcome) -> Floats:
    most = int(orders.max())
    exponents = np.zeros((r.size, most + 1))  # (k-1) D_k is 0 at k = 0 and 1
    for k in range(2, most + 1):
        exponents[:, k] = (k - 1) * outcome(r, k)
    columns = [logsumexp(_log_binomial(int(a), q) + exponents[:, : int(a) + 1], axis=1) for a in orders]
    return np.asarray(np.maximum(np.stack(columns, axis=1), 0.0))


def _log_binomial(number: int, q: float) -> Floats:
    """log of binom(n, k) q^k (1-q)^(n-k), k = 0 .. n."""
    k = np.arange(number + 1)
    binomial = gammaln(number + 1) - gammaln(k + 1) - gammaln(number - k + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = binomial + np.where(k > 0, k * np.log(q), 0.0) + np.where(k < number, (number - k) * np.log1p(-q), 0.0)
    return np.asarray(terms)


def _checked(probability: float, r: Floats, moments: Sequence[int]) -> Floats:
    if not (math.isfinite(probability) and 0 <= probability <= 1):
        raise InputError(f"probability must lie in [0, 1], found {probability!r}")
    if not (np.isfinite(r).all() and (r >= 0).all()):
        raise InputError("distances must be finite and at least 0")
    values = np.asarray(moments, dtype=float)
    if values.size == 0 or (values < 1).any() or (values != np.round(values)).any():
        raise InputError("moments (lambda) must be whole numbers of at least 1")
    return values + 1
