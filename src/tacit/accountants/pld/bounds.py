"""The certified privacy loss distribution accountant: delta of an epsilon, epsilon of a delta, the whole curve."""

import math
from collections.abc import Sequence

import numpy as np

from tacit.accountants.pld.closed_form import gaussian_delta, one_step_add, one_step_remove
from tacit.accountants.pld.engines import curve_bounds, delta_bounds, epsilon_bounds
from tacit.accountants.pld.events import Bracket, Floats, PoissonGaussian, Steps, merge
from tacit.accountants.pld.search import crossing
from tacit.accountants.pld.shape import tolerance
from tacit.errors import InputError


def delta_bracket(events: Sequence[PoissonGaussian], epsilon: float) -> Bracket:
    """delta(epsilon) of the whole ledger, for adding or removing one record, whichever is larger.

    Args:
        events: the steps, in any order.
        epsilon: at least 0.

    Returns:
        A bracket that holds the truth, with alias, truncation, quadrature and rounding errors included.

    Example:
        >>> found = delta_bracket([PoissonGaussian(0.01, 1.0, 100)], 0.5)
        >>> 0 < found.lower <= found.upper < 1
        True
    """
    _check_epsilon(epsilon)
    steps = merge(events)
    if _has_closed_form(steps):
        lower, upper = _closed_form(steps, np.array([float(epsilon)]))
        return Bracket(float(lower[0]), float(upper[0]))
    found = delta_bounds(steps, "remove", epsilon)
    other = delta_bounds(steps, "add", epsilon, found.lower)
    return Bracket(max(found.lower, other.lower), max(found.upper, other.upper))


def epsilon_bracket(events: Sequence[PoissonGaussian], delta: float) -> Bracket:
    """The smallest epsilon >= 0 for which the whole ledger is (epsilon, delta)-DP under add/remove of one record.

    Returns:
        A bracket that holds the truth; ``upper`` is the number to report, 0 for a ledger without steps.

    Example:
        >>> found = epsilon_bracket([PoissonGaussian(256 / 60000, 1.3, 3516)], 1e-5)
        >>> round(found.upper, 4)
        0.8645
    """
    if not (math.isfinite(delta) and 0 < delta < 1):
        raise InputError(f"delta must lie strictly between 0 and 1, found {delta!r}")
    steps = merge(events)
    if _has_closed_form(steps):
        return _closed_form_epsilon(steps, delta)
    found = epsilon_bounds(steps, "remove", delta)
    # adding is rarely the worse direction; then one bound at the other's epsilon settles it
    other = epsilon_bounds(steps, "add", delta, found.lower)
    return Bracket(max(found.lower, other.lower), max(found.upper, other.upper))


def delta_curve(events: Sequence[PoissonGaussian], epsilons: Floats) -> tuple[Floats, Floats]:
    """Lower and upper bounds of delta at each epsilon, in the order given; the same nodes serve many epsilons."""
    wanted = np.atleast_1d(np.asarray(epsilons, dtype=np.float64))
    for epsilon in wanted:
        _check_epsilon(float(epsilon))
    steps = merge(events)
    if _has_closed_form(steps):
        return _closed_form(steps, wanted)
    remove = curve_bounds(steps, "remove", wanted, np.zeros(len(wanted)))
    add = curve_bounds(steps, "add", wanted, remove[0])
    lower, upper = np.maximum(remove[0], add[0]), np.maximum(remove[1], add[1])
    # delta falls: each bound serves its neighbours, too
    order = np.argsort(wanted, kind="stable")
    lower[order] = np.maximum.accumulate(lower[order][::-1])[::-1]
    upper[order] = np.minimum.accumulate(upper[order])
    return lower, upper


def _check_epsilon(epsilon: float) -> None:
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise InputError(f"epsilon must be a finite number of at least 0, found {epsilon!r}")


def _has_closed_form(steps: Steps) -> bool:
    """Only plain Gaussians, or one single subsampled step."""
    return steps.total == 0 or (steps.total == 1 and steps.gaussian_square == 0)


def _closed_form(steps: Steps, epsilons: Floats) -> tuple[Floats, Floats]:
    if steps.total == 1:
        q, m = float(steps.probabilities[0]), float(steps.noise_multipliers[0])
        remove, add = one_step_remove(epsilons, q, m), one_step_add(epsilons, q, m)
        return np.maximum(remove[0], add[0]), np.maximum(remove[1], add[1])
    if steps.gaussian_square > 0:
        return gaussian_delta(epsilons, math.sqrt(steps.gaussian_square))
    return np.zeros(len(epsilons)), np.zeros(len(epsilons))


def _closed_form_epsilon(steps: Steps, delta: float) -> Bracket:
    """Both ends by a root search; the upper end is doubled until delta is reached."""

    def lower(epsilon: float) -> float:
        return float(_closed_form(steps, np.array([epsilon]))[0][0])

    def upper(epsilon: float) -> float:
        return float(_closed_form(steps, np.array([epsilon]))[1][0])

    if upper(0.0) <= delta:
        return Bracket(0.0, 0.0)
    high = 1e-3
    while upper(high) > delta:
        high *= 2
    start, high = crossing(upper, delta, 0.0, high, 0.0)
    if lower(0.0) <= delta:
        return Bracket(0.0, high)
    return Bracket(crossing(lower, delta, 0.0, high, 1e-3 * tolerance(start))[0], high)
