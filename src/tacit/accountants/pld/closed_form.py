"""Where no integral is needed: one Gaussian mechanism, and one subsampled step."""

import math

import numpy as np

from tacit.accountants.gaussian import gaussian_log_terms
from tacit.accountants.pld.steps import UNIT, Bracket, Steps, tolerance
from tacit.accountants.search import crossing
from tacit.types import Floats

Bounds = tuple[Floats, Floats]


def gaussian_bounds(epsilons: Floats, mu: float, slack: Floats | float = 0.0) -> Bounds:
    """delta of the plain Gaussian mechanism of parameter mu, with its rounding.

    Args:
        slack: how far each epsilon may itself be off.
    """
    middle, half = epsilons / mu, mu / 2
    log_first, log_second = gaussian_log_terms(mu, epsilons)
    first, second = np.exp(log_first), np.exp(log_second)
    value = -first * np.expm1(np.minimum(log_second - log_first, 0.0))
    # |d log Phi(x)/dx| <= |x| + 1, and x is rounded in units of its terms
    terms = half + np.abs(middle)
    error = UNIT * first * (32 + 8 * np.abs(log_first) + 8 * (np.abs(half - middle) + 1) * terms)
    error += UNIT * second * (32 + 8 * np.abs(log_second) + 8 * np.abs(epsilons) + 8 * (terms + 1) * terms)
    error += second * np.asarray(slack)
    return np.clip(value - error, 0.0, 1.0), np.clip(value + error, 0.0, 1.0)


def one_step_remove(epsilons: Floats, q: float, m: float) -> Bounds:
    """delta = q delta_G(log(1 + (e^eps - 1)/q)): the exact amplification of one Gaussian by subsampling."""
    small = np.minimum(epsilons, 30.0)
    moderate = np.log1p(np.expm1(small) / q)
    large = epsilons - math.log(q) + np.log1p(-(1 - q) * np.exp(-np.maximum(epsilons, 30.0)))
    inner = np.where(epsilons > 30.0, large, moderate)
    lower, upper = gaussian_bounds(inner, 1 / m, UNIT * 8 * (inner + 1))
    return q * lower * (1 - 4 * UNIT), q * upper * (1 + 4 * UNIT)


def one_step_add(epsilons: Floats, q: float, m: float) -> Bounds:
    """delta = q e^eps a delta_G(-log a), a = 1 - (1 - e^-eps)/q; no loss exceeds -log(1-q), where a is 0."""
    gap = np.expm1(-epsilons) / q
    share = 1 + gap
    doubt = UNIT * 8 * (1 + np.abs(gap))
    sound = share > 1e6 * doubt
    safe = np.where(sound, share, 1.0)
    lower, upper = gaussian_bounds(-np.log(safe), 1 / m, 2 * doubt / safe + UNIT * 8)
    factor = q * np.exp(np.minimum(epsilons, 700.0))
    low = np.where(sound, factor * (share - doubt) * lower * (1 - 16 * UNIT), 0.0)
    high = np.where(sound, (share + doubt) * upper, np.maximum(share + doubt, 0.0)) * factor * (1 + 16 * UNIT)
    return low, np.clip(high, 0.0, 1.0)


def closed_form(steps: Steps, epsilons: Floats) -> Bounds:
    """delta at each epsilon, for steps with ``has_closed_form``."""
    if steps.total == 1:
        q, m = float(steps.probabilities[0]), float(steps.noise_multipliers[0])
        remove, add = one_step_remove(epsilons, q, m), one_step_add(epsilons, q, m)
        return np.maximum(remove[0], add[0]), np.maximum(remove[1], add[1])
    if steps.gaussian_square > 0:
        return gaussian_bounds(epsilons, math.sqrt(steps.gaussian_square))
    return np.zeros(len(epsilons)), np.zeros(len(epsilons))


def closed_form_epsilon(steps: Steps, delta: float) -> Bracket:
    """Both ends by a root search; the upper end is doubled until delta is reached."""

    def lower(epsilon: float) -> float:
        return float(closed_form(steps, np.array([epsilon]))[0][0])

    def upper(epsilon: float) -> float:
        return float(closed_form(steps, np.array([epsilon]))[1][0])

    if upper(0.0) <= delta:
        return Bracket(0.0, 0.0)
    high = 1e-3
    while upper(high) > delta:
        high *= 2
    start, high = crossing(upper, delta, 0.0, high, 0.0)
    if lower(0.0) <= delta:
        return Bracket(0.0, high)
    return Bracket(crossing(lower, delta, 0.0, high, 1e-3 * tolerance(start))[0], high)
