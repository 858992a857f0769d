"""Moments of the likelihood ratio on a vertical line of the complex plane: the reusable heart of the engine.

F(a) = log E[exp(a rho(x))], x ~ N(0, m^2). The log moment generating function of the privacy loss of one step is
K(z) = F(z + 1) for removing a record and K(z) = F(-z) for adding one (maths.md 3). With r = 1/m it is also what the
Bayesian and the individual accountants need of one record.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tacit.accountants.pld.contour.points import points_for
from tacit.accountants.pld.contour.waves import Complexes, by_products, by_transforms
from tacit.accountants.pld.contour.window import step
from tacit.types import Floats

_CHUNK = 2_000_000  # numbers held at once
FEW = 8  # steps that are always transformed one by one
_MUCH = 2_000_000  # products above which more of them are, too


@dataclass(frozen=True, slots=True)
class Line:
    """The points a = tilt + i k spacing, k = 0 .. size-1. Conjugate points have conjugate moments."""

    tilt: float
    spacing: float
    size: int

    @property
    def heights(self) -> Floats:
        return self.spacing * np.arange(self.size, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Moments:
    """exp(F(a)) of several steps at the points of a line, as ``(1 + excess) * exp(log_peak)``.

    Args:
        log_peak: F(tilt) for each step, the largest modulus on the line.
        peak_error: how far it may be off.
        excess: exp(F(a) - F(tilt)) - 1, one row for each step, one column for each point; the 1 is left out because
            the moments of rare steps differ from it by little.
        errors: |excess - truth| at each point is at most this: quadrature and rounding, proved.
    """

    log_peak: Floats
    peak_error: Floats
    excess: Complexes
    errors: Floats

    @property
    def ratios(self) -> Complexes:
        """exp(F(a) - F(tilt))."""
        return 1 + self.excess


def moments_on_line(
    probabilities: Floats, noise_multipliers: Floats, line: Line, caps: Floats | None = None
) -> Moments:
    """Evaluate E[exp(a rho)] of every step on every point of the line, with a proved error.

    The trapezoid rule in x needs more points the higher the line (see ``step``), so the line is cut into bands whose
    top doubles. With ``caps`` the expectation is over x below the cap only.
    """
    size = len(probabilities)
    ends = np.full(size, np.inf) if caps is None else caps
    tilts = np.full(size, line.tilt)
    excess = np.empty((size, line.size), dtype=np.complex128)
    errors, peak = np.empty((size, line.size)), np.zeros((2, size))
    least = float(noise_multipliers.min())
    # transforms cost little more for a thousand points than for some: there one band goes far up
    bands = _bands(line, max(16.0, 1000 * least), 4.0) if size <= FEW else _bands(line, max(16.0, 16 * least), 2.0)
    for low, high in bands:
        for rows in _chunks(noise_multipliers, tilts, line.spacing, high):
            law = (probabilities[rows], noise_multipliers[rows], ends[rows])
            points = points_for(*law, line.tilt, line.spacing * high)
            much = points.losses.shape[1] * (high - low) > _MUCH
            waves = by_transforms if size <= FEW or much else by_products
            excess[rows, low:high], errors[rows, low:high] = waves(points, line.spacing, low, high)
            if low == 0:
                peak[:, rows] = points.log_peak, points.peak_error
    return Moments(peak[0], peak[1], excess, errors)


def real_moments(
    probabilities: Floats, noise_multipliers: Floats, caps: Floats, tilt: float | Floats
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """F, F', F'' of every step at its real point ``tilt``, what to add to F for an upper bound of it, and of that the
    part due to a cap."""
    size = len(probabilities)
    tilts = np.broadcast_to(np.asarray(tilt, dtype=np.float64), (size,))
    result = np.empty((5, size))
    for rows in _chunks(noise_multipliers, tilts, 0.0, 1):
        points = points_for(probabilities[rows], noise_multipliers[rows], caps[rows], tilts[rows], 0.0)
        mean = (points.weights * points.losses).sum(axis=1)
        variance = (points.weights * (points.losses - mean[:, None]) ** 2).sum(axis=1)
        result[:, rows] = points.log_peak, mean, variance, np.log1p(2 * points.peak_error), points.end
    return result[0], result[1], result[2], result[3], result[4]


def central_moments(
    probabilities: Floats, noise_multipliers: Floats, caps: Floats, tilt: float
) -> tuple[Floats, Floats]:
    """A lower bound of the second and an upper bound of the fourth central moment of rho within the window.

    The trapezoid rule is exact here to far better than 1e-6, but for the ends of the window, where the weight is tiny:
    their share is put on the safe side.
    """
    result = np.empty((2, len(probabilities)))
    for rows in _chunks(noise_multipliers, np.full(len(probabilities), tilt), 0.0, 1):
        points = points_for(probabilities[rows], noise_multipliers[rows], caps[rows], tilt, 0.0)
        losses = points.losses - (points.weights * points.losses).sum(axis=1, keepdims=True)
        end = np.abs(losses[:, [0, -1]]).max(axis=1)
        result[0, rows] = (1 - 1e-6) * (points.weights * losses**2).sum(axis=1) - (1e-16 + points.end) * end**2
        result[1, rows] = (1 + 1e-6) * (points.weights * losses**4).sum(axis=1) + (1e-16 + points.end) * end**4
    return np.maximum(result[0], 0.0), result[1]


def _bands(line: Line, top: float, growth: float) -> Iterator[tuple[int, int]]:
    """Index ranges [low, high) of the line whose tops grow, from the height where oscillation starts to matter."""
    low = 0
    while low < line.size:
        high = min(line.size, max(low + 1, int(top / max(line.spacing, 1e-300)) + 1 if line.spacing else line.size))
        yield low, high
        low, top = high, growth * top


def _chunks(m: Floats, tilts: Floats, spacing: float, high: int) -> Iterator[slice]:
    """Slices of steps of bounded memory."""
    points = float((18 * m / step(m, tilts, spacing * high)).max())
    rows = max(1, int(_CHUNK / (points + min(points, 512) * 2 * np.sqrt(high))))
    for start in range(0, len(m), rows):
        yield slice(start, min(start + rows, len(m)))
