"""From Renyi to (epsilon, delta): the improved conversion, the classic one, and the moments accountant's."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from tacit.accountants.guarantee import check_delta
from tacit.accountants.renyi.moments import log_moments
from tacit.errors import InputError
from tacit.types import Floats

Conversion = Literal["improved", "classic"]
ROUNDING = 1e-10  # relative, to be added to an epsilon for the rounding of sums and of the conversion


def conversion_cost(orders: ArrayLike, delta: float, conversion: Conversion = "improved") -> Floats:
    """What has to be added to the Renyi divergence of each order to get epsilon.

    improved: log((a-1)/a) - (log delta + log a)/(a-1), Canonne, Kamath and Steinke 2020, proposition 12.
    classic: log(1/delta)/(a-1), Mironov 2017, proposition 3.
    """
    a = np.asarray(orders, dtype=float)
    match conversion:
        case "improved":
            return np.asarray(np.log1p(-1 / a) - (math.log(delta) + np.log(a)) / (a - 1))
        case "classic":
            return np.asarray(-math.log(delta) / (a - 1))
        case _:
            raise InputError(f"conversion must be improved or classic, found {conversion!r}")


def epsilon_from_rdp(
    rdp: ArrayLike, orders: Sequence[float], delta: float, conversion: Conversion = "improved"
) -> tuple[float, float]:
    """The smallest epsilon over the orders, at least 0, and the order that gives it.

    Example:
        >>> epsilon_from_rdp([0.5, 1.0], [2.0, 4.0], 1e-5)[1]
        4.0
    """
    check_delta(delta)
    values = np.asarray(rdp, dtype=float) + conversion_cost(orders, delta, conversion)
    if np.isnan(values).any():
        raise ArithmeticError("a Renyi divergence is not a number; no epsilon is reported")
    best = int(np.argmin(values))
    return max(0.0, float(values[best])), float(orders[best])


def rdp_bound(rdp: ArrayLike, orders: Sequence[float], delta: float) -> float:
    """The smallest epsilon over the orders with its rounding added: a rigorous bound."""
    return epsilon_from_rdp(rdp, orders, delta)[0] * (1 + ROUNDING)


def moments_epsilon(probability: float, noise_multiplier: float, steps: int, delta: float, moment: int) -> float:
    """The moments accountant at one fixed order lambda: no minimum is taken.

    As in Triastcyn and Faltings, figures 1 and 5.
    """
    check_delta(delta)
    cost = steps * float(log_moments(probability, noise_multiplier, moment + 1)[0, 0])
    return (cost - math.log(delta)) / moment
