"""delta(eps) by a trapezoid sum on a vertical line, with every error added above and subtracted below.

    delta(eps) = 1/(2 pi i) * integral over Re z = c of exp(K(z) - z eps) / (z (z+1)) dz            (maths.md 3)

By Poisson summation the sum with spacing 2 pi/U equals the sum over all integers j of exp(c j U) delta(eps + j U): an
upper bound. What is left out above the last node is bounded by the decay of the moments, or by smoothing:

Smoothing. Composing one more Gaussian mechanism, of mu = tau, can only raise delta: delta <= delta_tau, and K gains
tau^2 z (z+1)/2, which cuts off the line. As a function of v = tau^2 that is the price of a call, whose derivative is
an average of v^(-1/2) exp(-u^2/(2v) - v/8) (times what does not depend on v) over u = L - eps, so the ratio of its
integral over (0, v) to that over (v, 2v) is largest at u = 0, where it is below (1 + sqrt 2) exp(v/4). Hence

    delta_tau - (1 + sqrt 2) exp(tau^2/4) (delta_(sqrt 2 tau) - delta_tau) <= delta <= delta_tau,

a bracket of second order in tau on both sides, from the same nodes.
"""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from tacit.accountants.pld.contour.moments import Line, Moments, moments_on_line
from tacit.accountants.pld.contour.saddle import Cumulants, tilt_of
from tacit.accountants.pld.steps import UNIT, Bracket, Direction, Steps, UnresolvedError, at_floor, tolerance
from tacit.accountants.search import crossing
from tacit.errors import RefusedError
from tacit.types import Complexes, Floats

_CHUNK = 2_000_000
_MOST_NODES = 2_000_000
_BLOCK = 64  # terms added up in one go


@dataclass(frozen=True, slots=True)
class Shape:
    """Where the nodes lie: c + i k spacing, k < size, and how much smoothing cuts them off.

    Args:
        peak: K and its derivatives at c.
        beyond: K at some points above c, which bound the aliases.
        log_tail: the log of what the nodes left out may add, relative to exp(K(c) - c eps).
        work: how much work the nodes are, in multiplications.
    """

    peak: Cumulants
    beyond: tuple[Cumulants, ...]
    spacing: float
    size: int
    tau: float
    log_tail: float
    work: float = 0.0

    @property
    def period(self) -> float:
        return 2 * math.pi / self.spacing

    @property
    def heights(self) -> Floats:
        return self.spacing * np.arange(self.size, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class _Series:
    """Coefficients of exp(-i y eps) for one amount of smoothing, relative to exp(K(c)), with their total error.

    Args:
        doubt: the relative error of exp(K(c)) itself, which all coefficients share.
    """

    coefficients: Complexes
    moduli: Floats
    error: float
    log_scale: float
    doubt: float
    smoothing: float


@dataclass(frozen=True, slots=True)
class Contour:
    """The nodes of one direction of one ledger; they serve every epsilon."""

    shape: Shape
    plain: _Series
    smoother: _Series | None

    def bounds(self, epsilons: Floats) -> tuple[Floats, Floats]:
        """Certified lower and upper bounds of delta at each epsilon."""
        value, error = _sum(self.shape, self.plain, epsilons)
        if np.any(value + error < 0):  # the sum is one of positive terms: a negative one refutes the error bound
            raise RefusedError("a contour integral missed its error bound; please report this ledger")
        upper = np.clip(value + error, 0.0, 1.0)
        lower = value - error - _aliases(self.shape, self.plain, epsilons)
        if self.smoother is not None:
            factor = (1 + math.sqrt(2)) * math.exp(self.plain.smoothing / 4) * (1 + 1e-12)
            smooth, smooth_error = _sum(self.shape, self.smoother, epsilons)
            lower = lower - factor * np.maximum(smooth + smooth_error - lower, 0.0)
        return np.clip(lower, 0.0, 1.0), upper

    def narrow(self, known: Bracket, delta: float, dropped: float, floor: float) -> Bracket:
        """Shrink a bracket of the epsilon of ``delta`` by the bounds of delta; never widens it.

        Args:
            dropped: what upper bounds of delta have to include on top.
        """

        def lower(epsilon: float) -> float:
            return float(self.bounds(np.array([epsilon]))[0][0])

        def upper(epsilon: float) -> float:
            return min(float(self.bounds(np.array([epsilon]))[1][0]) + dropped, 1.0)

        low, high = known.lower, known.upper
        if upper(low) <= delta:
            return at_floor(low, floor)
        fine = 0.01 * tolerance(high)
        high = crossing(upper, delta, low, high, fine)[1]
        # below the nodes' own epsilon the bounds grow loose, so the lower end is sought downwards from the upper one
        gap = fine
        while high - gap > low and lower(high - gap) <= delta:
            gap *= 3
        start = max(low, high - gap)
        if lower(start) > delta:
            low = crossing(lower, delta, start, high, fine)[0]
        return Bracket(low, high)


def contour(steps: Steps, direction: Direction, shape: Shape) -> Contour:
    """Evaluate the moments on the nodes and prepare the series."""
    if shape.size > _MOST_NODES:
        raise UnresolvedError(f"a contour needs {shape.size} nodes, more than {_MOST_NODES}")
    line = Line(tilt_of(direction, shape.peak.c), shape.spacing, shape.size)
    log_ratio, relative_error, log_scale, doubt = np.zeros(shape.size, complex), np.zeros(shape.size), 0.0, 0.0
    if steps.size:
        moments = moments_on_line(steps.probabilities, steps.noise_multipliers, line, steps.caps)
        log_ratio, relative_error = compose(moments, steps.counts)
        log_scale = float(steps.counts @ moments.log_peak)
        # the moments at the peak are known to a relative error of their own
        off = float(steps.counts @ (np.log1p(2 * moments.peak_error) + 2e-15 * np.abs(moments.log_peak)))
        doubt = math.expm1(off) if off < 1 else math.inf
    if direction == "add":
        log_ratio = log_ratio.conj()  # a = -z runs downwards when z runs upwards
    line_of = partial(_series, steps, shape, log_ratio, relative_error, (log_scale, doubt))
    return Contour(shape, line_of(shape.tau**2), line_of(2 * shape.tau**2) if shape.tau else None)


def compose(moments: Moments, counts: Floats) -> tuple[Complexes, Floats]:
    """log of the product of ratios^count, and a bound of the error of that product (not of its logarithm).

    |prod M'^n - prod M^n| <= prod (|M'| + e)^n - prod |M'|^n when every |M - M'| <= e, and no true |M| exceeds 1.
    """
    logs, moduli = log1p(moments.excess)
    growth = counts @ np.log1p((moments.errors + 4 * UNIT * (moduli < 0.5)) / moduli)
    rounding = (8 + len(counts)) * UNIT * (counts @ (np.abs(logs) + np.abs(moments.excess)) + 1)
    total: Complexes = counts.astype(np.complex128) @ logs
    size = total.real
    error = np.where(
        growth < 1e-2,
        np.exp(size) * np.expm1(np.minimum(growth, 1.0)),
        np.minimum(np.exp(np.minimum(size + growth, 1.0)), 1 + np.exp(size)),
    )
    return total, error + np.exp(size) * rounding


def log1p(excess: Complexes) -> tuple[Complexes, Floats]:
    """log(1 + excess) with the digits of a small excess kept, and |1 + excess|."""
    x, y = excess.real, excess.imag
    moduli = np.maximum(np.hypot(1 + x, y), 1e-300)
    result = np.empty(excess.shape, dtype=np.complex128)
    near = np.maximum(2 * x + x**2 + y**2, -0.9)
    result.real = np.where(moduli < 0.5, np.log(moduli), 0.5 * np.log1p(near))
    result.imag = np.arctan2(y, 1 + x)
    return result, moduli


def _series(
    steps: Steps,
    shape: Shape,
    log_ratio: Complexes,
    relative_error: Floats,
    peak: tuple[float, float],
    smoothing: float,
) -> _Series:
    """Multiply by the Gaussian factors and by 1/(z (z+1)); bound the nodes that are left out by the decay there."""
    c, y = shape.peak.c, shape.heights
    z: Complexes = (c + 1j * y).astype(np.complex128)
    square = steps.gaussian_square + smoothing
    gaussian = square * (1j * y * (2 * c + 1) - y**2) / 2
    damping = np.exp(gaussian.real) / np.abs(z * (z + 1))
    coefficients: Complexes = np.exp(log_ratio + gaussian).astype(np.complex128) / (z * (z + 1))
    coefficients *= shape.spacing / math.pi
    coefficients[0] *= 0.5
    moduli = np.abs(coefficients)
    error = float(damping @ relative_error) * (shape.spacing / math.pi)
    # the rounding of each coefficient and of ``_sum``, which adds blocks, and then their sums
    error += float(moduli @ (16 + 4 * np.abs(gaussian) + _BLOCK + shape.size / _BLOCK)) * UNIT
    error += math.exp(shape.log_tail)
    return _Series(coefficients, moduli, error, peak[0] + square * c * (c + 1) / 2, peak[1], smoothing)


def _sum(shape: Shape, series: _Series, epsilons: Floats) -> tuple[Floats, Floats]:
    """The trapezoid sum at each epsilon and its error, scaled by exp(K(c) - c eps)."""
    value, error = np.empty(len(epsilons)), np.empty(len(epsilons))
    y, c = shape.heights, shape.peak.c
    rows, starts = max(1, _CHUNK // shape.size), np.arange(0, shape.size, _BLOCK)
    for start in range(0, len(epsilons), rows):
        part = slice(start, start + rows)
        angle = np.outer(epsilons[part], y)
        terms = np.cos(angle) * series.coefficients.real + np.sin(angle) * series.coefficients.imag
        value[part] = np.add.reduceat(terms, starts, axis=1).sum(axis=1)
        error[part] = series.error + 4 * UNIT * np.abs(epsilons[part]) * float(series.moduli @ y)
    exponent = series.log_scale - c * epsilons
    scale = np.exp(np.minimum(exponent, 700.0))
    wobble = 8 * UNIT * (np.abs(exponent) + np.abs(c * epsilons) + abs(series.log_scale) + 4)
    return value * scale, (error * (1 + series.doubt) + np.abs(value) * (wobble + series.doubt)) * scale


def _aliases(shape: Shape, series: _Series, epsilons: Floats) -> Floats:
    """The terms j != 0 of the Poisson sum: at most 1 below, by Chernoff above."""
    c, period = shape.peak.c, shape.period
    below = math.exp(-c * period) / -math.expm1(-c * period)
    points = np.array([[point.c, point.value + point.error] for point in shape.beyond]).reshape(-1, 2).T[:, :, None]
    logs = points[1] + series.smoothing * points[0] * (points[0] + 1) / 2 - points[0] * epsilons
    gaps = (points[0] - c) * period
    terms = np.exp(np.minimum(logs - gaps, 700.0)) / -np.expm1(-gaps)
    result: Floats = below + terms.min(axis=0, initial=math.inf)
    return result
