"""The certified privacy loss distribution accountant: delta of an epsilon, epsilon of a delta, the whole curve.

Where no engine resolves a ledger (noise, rates, steps or delta beyond what floating point or memory allow), the answer
is a bound that needs none, and says so: ``without_engine``.
"""

import math
from collections.abc import Sequence

import numpy as np

from tacit.accountants.pld.closed_form import closed_form, closed_form_epsilon, has_closed_form
from tacit.accountants.pld.engines import curve_bounds, epsilon_bounds
from tacit.accountants.pld.events import Bracket, PoissonGaussian, Steps, merge
from tacit.accountants.pld.search import total_variation
from tacit.accountants.pld.without_engine import delta_at_most, epsilon_at_most, resolved
from tacit.errors import InputError
from tacit.types import Floats


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
    lower, upper = delta_curve(events, np.array([epsilon], dtype=np.float64))
    return Bracket(float(lower[0]), float(upper[0]))


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
    if total_variation(steps) <= delta:
        return Bracket(0.0, 0.0)
    found = resolved(lambda: _epsilon(steps, delta))
    return Bracket(0.0, epsilon_at_most(steps, delta), resolved=False) if found is None else found


def _epsilon(steps: Steps, delta: float) -> Bracket:
    if has_closed_form(steps):
        return closed_form_epsilon(steps, delta)
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
    found = resolved(lambda: _curve(steps, wanted))
    if found is None:
        return np.zeros(len(wanted)), np.array([delta_at_most(steps, float(epsilon)) for epsilon in wanted])
    return found


def _curve(steps: Steps, epsilons: Floats) -> tuple[Floats, Floats]:
    if has_closed_form(steps):
        return closed_form(steps, epsilons)
    remove = curve_bounds(steps, "remove", epsilons, np.zeros(len(epsilons)))
    add = curve_bounds(steps, "add", epsilons, remove[0])
    lower, upper = np.maximum(remove[0], add[0]), np.maximum(remove[1], add[1])
    # delta falls: each bound serves its neighbours, too
    order = np.argsort(epsilons, kind="stable")
    lower[order] = np.maximum.accumulate(lower[order][::-1])[::-1]
    upper[order] = np.minimum.accumulate(upper[order])
    return lower, upper


def _check_epsilon(epsilon: float) -> None:
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise InputError(f"epsilon must be a finite number of at least 0, found {epsilon!r}")
