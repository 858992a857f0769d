"""What discrete Gaussian noise on an integer grid costs (Canonne, Kamath and Steinke 2020), sampled or not.

Let P and Q be the outputs without and with a unit, at a shift of whole steps. For a *whole* order k the sum over the
grid can be shifted by k whole steps, so that E_P[(Q/P)^k] = exp((k^2 - k) / (2 z^2)) holds exactly as for the Gaussian,
for every coordinate and hence for their product, whatever its scales.

- Without sampling their proposition 5 gives a (a - 1) / (2 z^2) for every real order a, in both directions.
- Poisson sampling, direction "remove": the binomial expansion of E_P[((1-q) + q Q/P)^k] for whole k has nothing but
  these moments, so that it equals that of the sampled Gaussian. Mixing over the other units' samples only lowers it.
- Direction "add" is the smaller one: Mironov et al. 2019, theorem 5, asks for an involution of the outputs that swaps
  P and Q, here x -> shift - x, which maps the grid onto itself and keeps its counting measure.
- Between whole orders the log moment is convex and 0 at order 1: the chord is an upper bound.

Nothing of this speaks of privacy loss distributions: no PLD bound is proved here, and that accountant refuses.
"""

import numpy as np

from tacit.accountants.moments import Array, chords


def discrete_log_moments(probability: float, noise_multiplier: float, orders: Array) -> Array:
    """(a - 1) times the Renyi divergence of order a > 1, in both directions: an upper bound.

    Example:
        >>> discrete_log_moments(1.0, 2.0, np.array([2.0, 2.5])).tolist()
        [0.25, 0.46875]
        >>> round(float(discrete_log_moments(0.01, 1.0, np.array([2.0]))[0]), 9)
        0.000171813
    """
    a = np.asarray(orders, dtype=float)
    if probability >= 1:
        return np.asarray(a * (a - 1) / (2 * noise_multiplier**2))
    return np.asarray(chords(np.array([float(probability)]), np.array([float(noise_multiplier)]), a)[0])
