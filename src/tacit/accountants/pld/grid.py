"""A second engine for rare steps: a grid of losses, where nearly all mass of a step sits at its smallest loss.

There the moments do not fall along the line, and delta is what is left after all but a millionth cancels. On a grid
the mass that cannot matter is left out before anything is added: with A the part of a step's loss below a threshold so
low that T such losses stay below epsilon, and B the rest, only (A + B)^T - A^T can contribute to delta. Each loss is
rounded down for the lower bound; for the upper one its cell's mass is split between both ends such that the masses
under both neighbours are kept, which only adds information (Doroshenko et al. 2022). Direction: remove.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from tacit.accountants.pld.events import Floats, Steps, cut
from tacit.accountants.pld.loss import UNIT, loss_at

MOST_CELLS = 2**21
MOST_KINDS = 6
_DROPPED = 1e-7  # the share of delta spent on noise too large for the grid


@dataclass(frozen=True, slots=True)
class _Composed:
    """Masses of the whole ledger at losses offset + k width, multiplied by exp(c k width), and their error."""

    masses: Floats
    error: float
    lost: float
    wrapped: float


@dataclass(frozen=True, slots=True)
class Grid:
    """Bounds of delta for every epsilon of at least ``least``."""

    offset: float
    width: float
    c: float
    least: float
    dropped: float
    slack: float
    down: _Composed
    up: _Composed

    def lower(self, epsilon: float) -> float:
        value, weight = self._sum(self.down, epsilon + self.slack)
        first = max(0.0, (epsilon - self.offset) / self.width)
        extra = self.down.error * weight + self.down.wrapped * math.exp(-self.c * self.width * first)
        return max(0.0, value * (1 - 1e-9) - extra)

    def upper(self, epsilon: float) -> float:
        if epsilon < self.least:
            return 1.0
        value, weight = self._sum(self.up, epsilon - self.slack)
        return min(1.0, value * (1 + 1e-9) + self.up.error * weight + self.up.lost + self.dropped)

    def _sum(self, law: _Composed, epsilon: float) -> tuple[float, float]:
        """sum over losses above epsilon of mass * (1 - exp(epsilon - loss)), and the norm of what multiplies masses."""
        start = max(0, math.floor((epsilon - self.offset) / self.width))
        k = np.arange(start, len(law.masses))
        gain = -np.expm1(np.minimum(epsilon - self.offset - self.width * k, 0.0))
        weights = gain * np.exp(-self.c * self.width * k)
        # rounding is bounded in the Euclidean norm (Parseval), so the weights count in theirs
        return float(weights @ law.masses[start:]), float(np.linalg.norm(weights))


def grid(steps: Steps, delta: float, least: float, width: float) -> Grid | None:
    """Discretise and compose; None where the grid would be too large.

    Args:
        least: the smallest epsilon that will be asked for.
        width: the wanted distance of losses.
    """
    if steps.size > MOST_KINDS or steps.gaussian_square > 0 or steps.size == 0:
        return None
    held = cut(steps, _DROPPED * delta)
    offset = float(held.counts @ np.log1p(-held.probabilities))
    top = loss_at(held.caps, held.probabilities, held.noise_multipliers).value - np.log1p(-held.probabilities)
    width = max(width, 4 * float(top.max()) / MOST_CELLS)
    size = 2 ** max(10, math.ceil(math.log2(3 * max(float(top.max()), least - offset) / width)))
    if size > 2 * MOST_CELLS:
        return None
    threshold = max(0, math.floor((least - offset) / (held.total * width)) - 2)
    laws = [_cells(q, m, end, width) for q, m, end in zip(held.probabilities, held.noise_multipliers, top, strict=True)]
    slack = 1e-13 * (held.total + 1) * (1 + float(top.max()))
    for part in (threshold, 0):
        c = _tilt([law[1] for law in laws], held.counts, part, width, least - offset)
        down = _compose([law[0] for law in laws], held.counts, part, size, c * width)
        up = _compose([law[1] for law in laws], held.counts, part, size, c * width)
        if down is not None and up is not None:
            return Grid(offset, width, c, least, _DROPPED * delta, slack, down, up)
    return None


def _cells(q: float, m: float, top: float, width: float) -> tuple[Floats, Floats]:
    """Masses of one step at losses log(1-q) + k width: rounded down, and split upwards.

    Cell k holds rho - log(1-q) in [k width, (k+1) width), that is x from x_k = m^2 log((1-q)/q expm1(k width)) + 1/2.
    """
    k = np.arange(1, math.ceil(top / width) + 2)
    rise = width * k + np.log(-np.expm1(-width * k))
    x = np.concatenate([[-np.inf], m**2 * (math.log1p(-q) - math.log(q) + rise) + 0.5])
    null, null_error = _between(x / m)
    shifted, shifted_error = _between((x - 1) / m)
    mass = (1 - q) * null + q * shifted
    error = (1 - q) * null_error + q * shifted_error + 4 * UNIT * mass
    growth = (1 - q) * np.expm1(width * np.arange(len(null)))
    up = (q * shifted - growth * null + q * shifted_error + growth * null_error) / -math.expm1(-width)
    up = np.clip(up + 8 * UNIT / width * (q * shifted + growth * null), 0.0, mass)
    split = np.zeros(len(mass) + 1)
    split[:-1] += mass - up
    split[1:] += up + error
    return np.maximum(mass - error, 0.0), split


def _between(edges: Floats) -> tuple[Floats, Floats]:
    """Normal probabilities between neighbouring edges, from the nearer tail, and their error."""
    left, right = ndtr(edges), ndtr(-edges)
    value = np.where(edges[:-1] > 0, right[:-1] - right[1:], left[1:] - left[:-1])
    error = 16 * UNIT * np.where(edges[:-1] > 0, right[:-1], left[1:])
    return np.maximum(value, 0.0), error


def _weights(law: Floats, threshold: int, step: float) -> tuple[float, float]:
    """The masses of A and B, multiplied by exp(c k width)."""
    tilted = law * np.exp(step * np.arange(len(law)))
    return float(tilted[:threshold].sum()), float(tilted[threshold:].sum())


def _log_rest(laws: list[Floats], counts: Floats, threshold: int, step: float) -> float:
    """log of the total mass of (A + B)^T - A^T, multiplied by exp(c k width)."""
    pairs = np.array([_weights(law, threshold, step) for law in laws])
    if np.all(pairs[:, 0] > 0):
        growth = float(counts @ np.log1p(pairs[:, 1] / pairs[:, 0]))
        return float(counts @ np.log(pairs[:, 0])) + math.log(max(math.expm1(min(growth, 700.0)), 1e-300))
    return float(counts @ np.log(pairs.sum(axis=1)))


def _tilt(laws: list[Floats], counts: Floats, threshold: int, width: float, reach: float) -> float:
    """The c for which rounding, spread evenly over the tilted masses, hurts least at the smallest epsilon."""
    limit = 300 / (width * max(len(law) for law in laws))
    choices = np.geomspace(min(1.0, limit), limit, 24) if limit > 1 else np.array([limit])
    cost = [
        _log_rest(laws, counts, threshold, c * width) - c * reach - 0.5 * math.log(-math.expm1(-c * width))
        for c in choices
    ]
    # the smallest c that is nearly as good: wrapped masses hurt less there
    return float(choices[int(np.argmax(np.array(cost) <= min(cost) + 1.0))])


def _compose(laws: list[Floats], counts: Floats, threshold: int, size: int, step: float) -> _Composed | None:
    """(A + B)^T - A^T by FFT; None where A is not nearly an atom, so that it cannot be divided by.

    A transform errs by at most gamma times the sum of its (positive) input, in each element; by Parseval a largest
    error e of the product is an error of Euclidean norm e of the masses.
    """
    gamma = 6 * UNIT * math.log2(size)
    base, growth = np.zeros(size // 2 + 1, complex), np.zeros(size // 2 + 1, complex)
    log_scale, spread, error_base, error_growth = 0.0, 0.0, 0.0, 0.0
    for law, count in zip(laws, counts, strict=True):
        tilted = law * np.exp(step * np.arange(len(law)))
        low, high = float(tilted[:threshold].sum()), float(tilted[threshold:].sum())
        error_base += count * (2 * gamma + 32 * UNIT)
        rest = np.fft.rfft(np.concatenate([np.zeros(threshold), tilted[threshold:]]), size)
        if threshold == 0:
            base += count * np.log(np.where(rest == 0, 1e-300, rest / high))
            log_scale += count * math.log(high)
            continue
        first = np.fft.rfft(tilted[:threshold], size)
        floor = float(np.abs(first).min()) - gamma * low
        if floor < 0.5 * low or high > 0.5 * floor:
            return None
        base += count * np.log(first / low)
        growth += count * np.log1p(rest / first)
        log_scale += count * math.log(low)
        share = high / floor
        spread += count * share / (1 - share)
        error_growth += count * share * (gamma * (1 + low / floor) / (1 - share) + 16 * UNIT)
    if log_scale + spread > 600 or error_base > 0.1:
        return None
    if threshold == 0:
        masses, relative = np.fft.irfft(np.exp(base), size), math.expm1(error_base) + gamma
    else:
        masses = np.fft.irfft(np.exp(base) * np.expm1(growth), size)
        relative = math.exp(spread + error_base) * (error_growth + spread * (error_base + 8 * UNIT + gamma))
    lost, wrapped = _outside(laws, counts, threshold, size, step)
    scale = math.exp(log_scale)
    return _Composed(masses * scale, relative * scale * (1 + 1e-6), lost, wrapped)


def _outside(laws: list[Floats], counts: Floats, threshold: int, size: int, step: float) -> tuple[float, float]:
    """Bounds of the mass at or above the grid's end, plain and multiplied by exp(c k width), by Chernoff."""
    most = 600 / max(len(law) for law in laws)
    steps = np.geomspace(most / 256, most, 25)
    logs = [_log_rest(laws, counts, threshold, value) for value in steps]
    lost = min(log - value * size for value, log in zip(steps, logs, strict=True))
    above = [log - (value - step) * size for value, log in zip(steps, logs, strict=True) if value > step]
    wrapped = min(above, default=math.inf)
    # wrapped masses land at small losses, where they were multiplied by too little
    return math.exp(min(lost, 0.0)), math.exp(min(wrapped, 700.0))
