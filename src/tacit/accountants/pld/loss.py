"""The privacy loss of one step as a function of the noise, and how far floating point may miss it."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from tacit.types import Floats

UNIT = 2.0**-53  # half the distance from 1 to the next float
_LARGE = 700.0  # e^700 is still a float


@dataclass(frozen=True, slots=True)
class Loss:
    """rho(x) = log(1 - q + q exp((2x-1)/(2 m^2))), the log ratio of (1-q) N(0, m^2) + q N(1, m^2) to N(0, m^2).

    Args:
        value: rho.
        share: s = m^2 rho'(x) in (0, 1), the posterior probability that the record took part; rho is convex in x.
        scale: rho is exact to within 12 UNIT times this.
    """

    value: Floats
    share: Floats
    scale: Floats


def loss_at(x: Floats, probability: Floats, noise_multiplier: Floats) -> Loss:
    """rho and rho' at the points x; the arguments broadcast."""
    q, square = probability, noise_multiplier**2
    exponent = (x - 0.5) / square
    value = _log_ratio(exponent, q)
    share = expit(exponent + logit(q))
    # errors of the exponent enter with weight s, of the logarithm with |rho|; near q = 1 the argument of the
    # logarithm is a sum of two rounded terms, which costs an absolute unit
    scale = share * (np.abs(exponent) + 1 / square + 1) + np.abs(value) + (q > 0.5)
    return Loss(value, share, scale)


def _log_ratio(exponent: Floats, q: Floats) -> Floats:
    """log(1 - q + q e^t), in the form that keeps most digits for each q and t; q e^t may be tiny at a large t."""
    small = np.minimum(exponent, _LARGE)
    moderate = np.where(q > 0.5, np.log((1 - q) + q * np.exp(small)), np.log1p(np.minimum(q, 0.5) * np.expm1(small)))
    large = exponent + np.log(q) + np.log1p((1 - q) / q * np.exp(-np.maximum(exponent, _LARGE)))
    result: Floats = np.where(exponent > _LARGE, large, moderate)
    return result
