"""Moments of the likelihood ratio on a vertical line of the complex plane: the reusable heart of the engine.

F(a) = log E[exp(a rho(x))], x ~ N(0, m^2). The log moment generating function of the privacy loss of one step is
K(z) = F(z + 1) for removing a record and K(z) = F(-z) for adding one (maths.md 3). With r = 1/m it is also what the
Bayesian and the individual accountants need of one record. E[exp(i y rho)] - 1 is summed over trapezoid points at every
height, by matrix products or by Fourier transforms.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy import fft

from tacit.accountants.pld.contour.points import Points, points_for
from tacit.accountants.pld.loss import step
from tacit.accountants.pld.sizes import fast_size
from tacit.accountants.pld.steps import UNIT
from tacit.types import Complexes, Floats

_TERMS = 21  # (pi/4)^21/21! = 1e-22
_TOGETHER = 128  # points added up in one go
_TERMS_ERROR = 1e-22
_CHUNK = 2_000_000  # numbers held at once
_FEW_STEPS = 8  # steps that are always transformed one by one
_MANY_PRODUCTS = 2_000_000  # products above which more of them are, too


def by_products(points: Points, spacing: float, low: int, high: int) -> tuple[Complexes, Floats]:
    """sum over x of weight * exp(i k spacing rho) - 1 for k in [low, high), as products of two matrices, and its error.

    The points are k = low + i B + j, and exp(i y rho) is a product of two factors. The sum is cut into blocks: rounding
    grows with the length of a block plus their number, not with all points.
    """
    columns = int(np.ceil(np.sqrt(high - low)))
    rows = -(-(high - low) // columns)
    size, number = points.losses.shape
    table = np.zeros((size, rows, columns), dtype=np.complex128)
    block = int(np.clip(np.sqrt(number), 32, 512))
    for start in range(0, number, block):
        losses, weights = points.losses[:, start : start + block], points.weights[:, start : start + block]
        fine = _powers(losses, spacing, columns, np.ones(losses.shape))
        coarse = _powers(losses, spacing * columns, rows, weights * _phase(losses * (low * spacing)))
        table += np.matmul(coarse, fine.transpose(0, 2, 1))
    excess = table.reshape(size, -1)[:, : high - low] - 1
    length = block + number / block + 48
    constant = UNIT * (points.rounding + 2 * length) + points.rest
    return excess, constant[:, None] + points.slope[:, None] * (spacing * np.arange(low, high))


def by_transforms(points: Points, spacing: float, low: int, high: int) -> tuple[Complexes, Floats]:
    """The same, at a cost that grows with the points plus the heights, not with their product.

    Losses are rounded to a lattice of n >= 4 high cells on the circle, and exp of what is left is expanded, as its
    argument is at most pi/4: term p is k^p times a transform of the moments of order p. The mass that stays in cell 0
    and at order 0 cancels with the 1, so what is rounded is of the size of the result: for rare steps, small.
    """
    rows = [_row(points, row, spacing, low, high) for row in range(len(points.losses))]
    return np.stack([row[0] for row in rows]), np.stack([row[1] for row in rows])


def _row(points: Points, row: int, spacing: float, low: int, high: int) -> tuple[Complexes, Floats]:
    losses, moment = points.losses[row], points.weights[row].copy()
    cells = fast_size(4 * high)
    place = losses * (spacing * cells / (2 * math.pi))
    cell = np.rint(place)
    offset = place - cell
    starts = np.union1d(np.flatnonzero(np.diff(cell)) + 1, np.arange(0, len(cell), _TOGETHER))
    index = np.mod(cell[starts], cells).astype(np.int64)
    angles = (2 * math.pi / cells) * np.arange(low, high)
    result, factor, outside = np.zeros(high - low, complex), np.ones(high - low), 0.0
    for order in range(_TERMS):
        table = np.bincount(index, np.add.reduceat(moment, starts), cells)
        if order == 0:
            table[0] = 0.0
            outside = float(table.sum())
            result -= outside
        result += 1j**order * factor * fft.rfft(table)[low:high].conj()
        moment *= offset
        factor *= angles / (order + 1)
        if float(np.abs(moment).sum() * factor[-1]) < _TERMS_ERROR:
            break
    # what is rounded: the mass that leaves cell 0, and what the rest of it adds beyond order 0
    stays = float((np.mod(cell, cells) == 0) * points.weights[row] @ np.abs(offset))
    gain = 6 * math.log2(cells) + _TOGETHER + len(losses) / _TOGETHER + 64
    y = spacing * np.arange(low, high)
    error = np.minimum(2 * points.rounding[row], y * points.rounding_by_loss[row])
    error += gain * (4 * outside + 1.6 * angles * stays)
    return result, UNIT * error + points.rest[row] + 4 * _TERMS_ERROR + points.slope[row] * y


def _powers(losses: Floats, spacing: float, number: int, start: Complexes | Floats) -> Complexes:
    """start * exp(i k spacing rho) for k < number, by doubling: log2(number) exponentials instead of number."""
    result = np.empty((len(losses), number, losses.shape[1]), dtype=np.complex128)
    result[:, 0] = start
    done = 1
    while done < number:
        more = min(done, number - done)
        result[:, done : done + more] = result[:, :more] * _phase(losses * (done * spacing))[:, None, :]
        done += more
    return result


def _phase(angle: Floats) -> Complexes:
    result = np.empty(angle.shape, dtype=np.complex128)
    np.cos(angle, out=result.real)
    np.sin(angle, out=result.imag)
    return result


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
    bands = (
        _bands(line, max(16.0, 1000 * least), 4.0) if size <= _FEW_STEPS else _bands(line, max(16.0, 16 * least), 2.0)
    )
    for low, high in bands:
        for rows in _chunks(noise_multipliers, tilts, line.spacing, high):
            law = (probabilities[rows], noise_multipliers[rows], ends[rows])
            points = points_for(*law, line.tilt, line.spacing * high)
            much = points.losses.shape[1] * (high - low) > _MANY_PRODUCTS
            waves = by_transforms if size <= _FEW_STEPS or much else by_products
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
