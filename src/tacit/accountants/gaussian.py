"""The plain Gaussian mechanism of parameter mu (Dong, Roth and Su 2019): delta(epsilon) and its inverse."""

import math
from typing import TypeVar

from scipy.special import log_ndtr

from tacit.accountants.guarantee import check_delta
from tacit.accountants.search import root
from tacit.errors import InputError, check_not_negative
from tacit.types import Floats

FloatOrFloats = TypeVar("FloatOrFloats", float, Floats)


def gaussian_log_terms(mu: float, epsilon: FloatOrFloats) -> tuple[FloatOrFloats, FloatOrFloats]:
    """The logs of Phi(mu/2 - e/mu) and of exp(e) Phi(-mu/2 - e/mu), whose difference is delta (maths.md 4)."""
    middle, half = epsilon / mu, mu / 2
    return log_ndtr(half - middle), epsilon + log_ndtr(-half - middle)


def gaussian_log_delta(mu: float, epsilon: float) -> float:
    """log of delta, in log space so that far tails survive."""
    if mu <= 0:
        return -math.inf
    larger, smaller = (float(term) for term in gaussian_log_terms(mu, epsilon))
    return larger + math.log1p(-math.exp(smaller - larger)) if smaller < larger else -math.inf


def gaussian_delta(mu: float, epsilon: float) -> float:
    """delta at epsilon of a Gaussian release with noise multiplier 1/mu.

    Example:
        >>> round(gaussian_delta(1.0, 1.0), 6)
        0.126937
    """
    _check_mu(mu)
    return math.exp(gaussian_log_delta(mu, epsilon))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon >= 0 at which delta is enough."""
    _check_mu(mu)
    check_delta(delta)
    if math.isinf(mu):
        return math.inf
    goal = math.log(delta)
    if gaussian_log_delta(mu, 0.0) <= goal:
        return 0.0
    high = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + mu  # delta <= Phi(mu/2 - e/mu) there
    while gaussian_log_delta(mu, high) > goal:  # a huge mu, where -e/mu + mu/2 cancels to nothing
        high *= 2
    return root(lambda e: gaussian_log_delta(mu, e) - goal, 0.0, high)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The mu of the Gaussian mechanism whose curve passes through (epsilon, delta)."""
    check_delta(delta)
    check_not_negative("epsilon", epsilon)
    goal = math.log(delta)
    high = 1.0
    while gaussian_log_delta(high, epsilon) < goal:
        high *= 2
    low = high
    while gaussian_log_delta(low, epsilon) >= goal:
        low /= 2
    return root(lambda mu: max(gaussian_log_delta(mu, epsilon), -1e9) - goal, low, high)


def _check_mu(mu: float) -> None:
    if math.isnan(mu) or mu < 0:
        raise InputError(f"mu must be a number of at least 0, found {mu!r}")
