"""The Renyi orders that are looked at, and what Poisson-sampled Gaussian releases cost at each."""

from collections.abc import Sequence

import numpy as np

from tacit.accountants.renyi.moments import log_moments
from tacit.errors import InputError
from tacit.types import Floats

_FINE = np.round(np.arange(1.1, 10.95, 0.1), 1)  # fractional orders matter for few and for loud releases
_FAR = np.unique(np.round(np.geomspace(64, 1024, 20)))  # and large ones for faint releases
_AT_ONCE = 4096  # events
ORDERS: tuple[float, ...] = tuple(float(order) for order in (*_FINE, *range(11, 64), *_FAR))


def poisson_log_moments(rows: Sequence[tuple[float, float, int]], a: Floats) -> Floats:
    """The sum over (probability, noise multiplier, steps) of what the steps cost at each order."""
    total = np.zeros(a.size)
    for start in range(0, len(rows), _AT_ONCE):  # the moments of all of them at once need not fit into memory
        q, z, count = np.asarray(rows[start : start + _AT_ONCE], dtype=float).T
        with np.errstate(over="ignore"):  # an honest infinity
            total += count @ log_moments(q, z, a)
    return total


def checked_orders(orders: Floats) -> Floats:
    if orders.size == 0 or not (np.isfinite(orders).all() and (orders > 1).all()):
        raise InputError("orders must be finite numbers above 1")
    return orders
