"""Renyi moments of a pass in which each unit is thrown into one of t batches (balls in bins, random allocation).

With or without a unit, a pass is dominated by the pair P = mean of N(e_i, z^2 I) over the t bins, Q = N(0, z^2 I)
(Chua et al. 2024, "Balls-and-Bins Sampling for DP-SGD"; Feldman and Shenfeld 2025). P/Q = R is the mean of t
independent Y_i = exp(g_i/z - 1/(2 z^2)) with g_i standard normal under Q. Both directions are computed exactly.

remove: E_Q[R^a] = a! t^(-a) [x^a] (sum_k x^k exp((k^2 - k)/(2 z^2)) / k!)^t for whole a (multinomial theorem). Between
    whole orders the logarithm of the moment is convex, so the chord is an upper bound.
add: E_P[(Q/P)^a] = E_Q[R^(1-a)] and, with m = a - 1, R^(-m) = (1/Gamma(m)) int_0^inf w^(m-1) exp(-w R) dw; hence
    E_Q[R^-m] = (1/Gamma(m)) int w^m (E exp(-w Y/t))^t dlog w,
    whose integrand is log-concave in log w (a Gumbel tail smoothed by a Gaussian, Prekopa).
Neither exceeds the a(a-1)/(2 z^2) of a unit whose bin is known, because P is a mean over the bins.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from scipy.special import gammaln, lambertw

from tacit.accountants.pld.steps import UNIT
from tacit.ledger import BallsInBinsStep, Charge, Ledger
from tacit.types import Floats

_LOG_NEGLIGIBLE = 45.0
_ROUNDING = 1e-11  # absolute, added to the log moment of each pass
_LITTLE_NOISE = 0.05  # noise below which hiding the step changes little (log t of a/(2 z^2)), and grids would be large
_GROUPS = (0.0, 10.0, 63.0, math.inf)  # moments that share a grid


@dataclass(frozen=True, slots=True)
class Pass:
    """A whole pass; noise as in its loudest step (a pass with that noise throughout can be post-processed to it)."""

    bins: int
    noise_multiplier: float


def in_passes(charges: Iterable[Charge]) -> bool:
    return any(isinstance(charge.event, BallsInBinsStep) for charge in charges)


def are_whole_passes(charges: Iterable[Charge]) -> bool:
    """Whether no pass is left open: then what comes next begins one of its own."""
    steps: Counter[int] = Counter()
    for charge in charges:
        if isinstance(charge.event, BallsInBinsStep):
            steps[charge.event.bins] += charge.steps
    return all(count % bins == 0 for bins, count in steps.items())


def passes(ledger: Ledger) -> Counter[Pass]:
    """Cut the balls-in-bins steps of a ledger, in order, into passes; a started pass counts as a whole one."""
    runs: dict[int, list[tuple[float, int]]] = {}
    for charge in ledger.charges:
        match charge.event:
            case BallsInBinsStep(bins=bins, noise_multiplier=z) if charge.steps:
                runs.setdefault(bins, []).append((z, charge.steps))
            case _:
                pass
    found: Counter[Pass] = Counter()
    for bins, steps in runs.items():
        _cut(bins, steps, found)
    return +found


def _cut(bins: int, steps: list[tuple[float, int]], found: Counter[Pass]) -> None:
    room, noise = 0, math.inf  # steps left in the started pass, and its smallest noise so far
    for z, count in steps:
        used = min(room, count)
        room, count, noise = room - used, count - used, min(noise, z) if used else noise
        if room == 0 and noise < math.inf:
            found[Pass(bins, noise)] += 1
            noise = math.inf
        found[Pass(bins, z)] += count // bins
        if count % bins:
            room, noise = bins - count % bins, z
    if noise < math.inf:
        found[Pass(bins, noise)] += 1


def pass_log_moments(item: Pass, orders: Floats) -> Floats:
    """The larger of both directions' log E[(ratio)^a] of one pass, for each order a > 1."""
    return np.asarray(_pass_log_moments(item, tuple(float(a) for a in orders)))


@lru_cache(maxsize=256)
def _pass_log_moments(item: Pass, orders: tuple[float, ...]) -> tuple[float, ...]:
    a = np.asarray(orders)
    known = a * (a - 1) / (2 * item.noise_multiplier**2)  # one step whose number is known: Renyi is quasi-convex
    if item.bins == 1 or item.noise_multiplier < _LITTLE_NOISE:
        return tuple(known)
    both = np.maximum(remove_log_moments(item, a), add_log_moments(item, a))
    # logarithms of coefficients are rounded in units of themselves, at each squaring of the series
    sizes = gammaln(a + 2) + (a + 1) * math.log(item.bins)
    rounding = _ROUNDING + 16 * UNIT * math.log2(2 * item.bins) * sizes
    return tuple(np.minimum(np.maximum(both, 0.0) * (1 + 1e-13) + rounding, known))


def remove_log_moments(item: Pass, orders: Floats) -> Floats:
    """Exact at whole orders, the chord between them."""
    k = np.arange(math.ceil(orders.max()) + 1, dtype=float)
    power = _log_power((k * k - k) / (2 * item.noise_multiplier**2) - gammaln(k + 1), item.bins)
    whole = power + gammaln(k + 1) - k * math.log(item.bins)
    whole[:2] = 0.0
    return np.asarray(np.interp(orders, k, whole))


def _log_power(series: Floats, exponent: int) -> Floats:
    """The coefficients, as logarithms, of a power series raised to a whole power, by repeated squaring."""
    result: Floats | None = None
    while True:
        if exponent & 1:
            result = series if result is None else _log_convolve(result, series)
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        series = _log_convolve(series, series)


def _log_convolve(left: Floats, right: Floats) -> Floats:
    result = np.empty_like(left)
    for n in range(left.size):
        terms = left[: n + 1] + right[n::-1]
        top = terms.max()
        result[n] = top + math.log(np.exp(terms - top).sum())
    return result


def add_log_moments(item: Pass, orders: Floats) -> Floats:
    """log E_Q[R^(1-a)] by the Gamma integral; infinite (an honest bound) where its grid does not reach."""
    moments = orders - 1
    result = np.empty(orders.size)
    for low, high in pairwise(_GROUPS):
        chosen = (moments > low) & (moments <= high)
        if chosen.any():
            result[chosen] = _gamma_integrals(item, moments[chosen])
    return result


def _gamma_integrals(item: Pass, m: Floats) -> Floats:
    """The trapezoid rule in v = log w; its aliases are below |Gamma(m + 2 pi i/h)| / Gamma(m) relative to the sum."""
    t, z = item.bins, item.noise_multiplier
    reach = min(60.0, 1 / (2 * z * z) + float(m.max()) / (t * z * z) + 12 / z)
    low = float(((gammaln(m + 1) - _LOG_NEGLIGIBLE) / m).min())  # the mass below is at most exp(-45)
    high = math.log(float(m.max()) + 50) + 2 + reach
    step = min(0.15, 0.6 / math.sqrt(float(m.max())))
    v = np.arange(low, high + step, step)
    log_integrand = m[:, None] * v + t * _log_laplace(np.exp(v) / t, z)
    top = log_integrand.max(axis=1)
    total = np.log(np.exp(log_integrand - top[:, None]).sum(axis=1)) + top + math.log(step) - gammaln(m)
    return np.where(log_integrand[:, -1] < top - _LOG_NEGLIGIBLE, total, np.inf)


def _log_laplace(s: Floats, z: float) -> Floats:
    """log E[exp(-s Y)] of the lognormal Y, by the trapezoid rule around the mode of its integrand."""
    argument = s * math.exp(-1 / (2 * z * z)) / (z * z)
    shrink = np.real(lambertw(argument))  # the mode is at g = -z W(argument)
    step = min(0.25, z / 4, 0.6 / math.sqrt(1 + float(shrink.max())))
    offsets = np.arange(-11.0, 11.0 + step, step)
    result = np.empty(s.size)
    for start in range(0, s.size, 256):
        rows = slice(start, start + 256)
        g = offsets - z * shrink[rows, None]
        decay = s[rows, None] * np.exp(np.minimum(g / z - 1 / (2 * z * z), 600.0))
        log_weight = math.log(step / math.sqrt(2 * math.pi)) - g * g / 2
        near_one = np.log1p((np.exp(log_weight) * np.expm1(-decay)).sum(axis=1).clip(min=-0.9))  # keeps 1 - s exact
        terms = log_weight - decay
        top = terms.max(axis=1)
        far = np.log(np.exp(terms - top[:, None]).sum(axis=1)) + top
        result[rows] = np.where(s[rows] < 0.5, near_one, far)
    return result
