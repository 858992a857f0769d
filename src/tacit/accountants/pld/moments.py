"""Moments of the likelihood ratio on a vertical line of the complex plane: the reusable heart of the engine.

F(a) = log E[exp(a rho(x))], x ~ N(0, m^2). The log moment generating function of the privacy loss of one step is
K(z) = F(z + 1) for removing a record and K(z) = F(-z) for adding one (maths.md 3). With r = 1/m it is also what the
Bayesian and the individual accountants need of one record.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.accountants.pld.events import Floats
from tacit.accountants.pld.loss import UNIT, loss_at
from tacit.accountants.pld.window import QUADRATURE_ERROR, step, window
from tacit.errors import RefusedError

Complexes = NDArray[np.complex128]

_CHUNK = 2_000_000  # numbers held at once
_MOST_POINTS = 4_000_000


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
    """exp(F(a)) of several steps at the points of a line, as ``ratios * exp(log_peak)``.

    Args:
        log_peak: F(tilt) for each step, the largest modulus on the line.
        ratios: exp(F(a) - F(tilt)), one row for each step, one column for each point.
        errors: |ratio - truth| at each point is at most this: quadrature and rounding, proved.
    """

    log_peak: Floats
    ratios: Complexes
    errors: Floats


@dataclass(frozen=True, slots=True)
class _Points:
    """Trapezoid points of several steps: normalised weights and losses.

    The error of a moment is error + error_slope |Im a|; ``end`` is the part of it due to a cap.
    """

    weights: Floats
    losses: Floats
    log_peak: Floats
    error: Floats
    error_slope: Floats
    end: Floats


def moments_on_line(
    probabilities: Floats, noise_multipliers: Floats, line: Line, caps: Floats | None = None
) -> Moments:
    """Evaluate E[exp(a rho)] of every step on every point of the line, with a proved error.

    The trapezoid rule in x needs more points the higher the line (see ``step``), so the line is cut into bands whose
    top doubles. Within a band the points are k = first + i B + j, and exp(i y rho) is a product of two factors, so that
    the sum over x is a matrix product. With ``caps`` the expectation is over x below the cap only.
    """
    size = len(probabilities)
    ends = np.full(size, np.inf) if caps is None else caps
    ratios = np.empty((size, line.size), dtype=np.complex128)
    errors, log_peak, heights = np.empty((size, line.size)), np.zeros(size), line.heights
    for low, high in _bands(line, float(noise_multipliers.min())):
        for rows in _chunks(probabilities, noise_multipliers, line, high):
            points = _points(probabilities[rows], noise_multipliers[rows], ends[rows], line.tilt, line.spacing * high)
            ratios[rows, low:high] = _waves(points, line.spacing, low, high)
            if low == 0:
                log_peak[rows] = points.log_peak
            errors[rows, low:high] = points.error[:, None] + points.error_slope[:, None] * heights[low:high]
    return Moments(log_peak, ratios, errors)


def real_moments(
    probabilities: Floats, noise_multipliers: Floats, caps: Floats, tilt: float
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """F, F', F'' of every step at the real point ``tilt``, what to add to F for an upper bound of it, and of that the
    part due to a cap."""
    size = len(probabilities)
    result = np.empty((5, size))
    for rows in _chunks(probabilities, noise_multipliers, Line(tilt, 0.0, 1), 1):
        points = _points(probabilities[rows], noise_multipliers[rows], caps[rows], tilt, 0.0)
        mean = (points.weights * points.losses).sum(axis=1)
        variance = (points.weights * (points.losses - mean[:, None]) ** 2).sum(axis=1)
        result[:, rows] = points.log_peak, mean, variance, np.log1p(2 * points.error), points.end
    return result[0], result[1], result[2], result[3], result[4]


def central_moments(
    probabilities: Floats, noise_multipliers: Floats, caps: Floats, tilt: float
) -> tuple[Floats, Floats]:
    """A lower bound of the second and an upper bound of the fourth central moment of rho within the window.

    The trapezoid rule is exact here to far better than 1e-6, but for the ends of the window, where the weight is tiny:
    their share is put on the safe side.
    """
    result = np.empty((2, len(probabilities)))
    for rows in _chunks(probabilities, noise_multipliers, Line(tilt, 0.0, 1), 1):
        points = _points(probabilities[rows], noise_multipliers[rows], caps[rows], tilt, 0.0)
        losses = points.losses - (points.weights * points.losses).sum(axis=1, keepdims=True)
        end = np.abs(losses[:, [0, -1]]).max(axis=1)
        result[0, rows] = (1 - 1e-6) * (points.weights * losses**2).sum(axis=1) - (1e-16 + points.end) * end**2
        result[1, rows] = (1 + 1e-6) * (points.weights * losses**4).sum(axis=1) + (1e-16 + points.end) * end**4
    return np.maximum(result[0], 0.0), result[1]


def _bands(line: Line, smallest_noise: float) -> Iterator[tuple[int, int]]:
    """Index ranges [low, high) of the line whose tops double, from the height where oscillation starts to matter."""
    low, top = 0, max(16.0, 16 * smallest_noise)
    while low < line.size:
        high = min(line.size, max(low + 1, int(top / max(line.spacing, 1e-300)) + 1 if line.spacing else line.size))
        yield low, high
        low, top = high, 2 * top


def _chunks(q: Floats, m: Floats, line: Line, high: int) -> Iterator[slice]:
    """Slices of steps of bounded memory."""
    points = float((18 * m / step(m, np.full(len(m), line.tilt), line.spacing * high)).max())
    rows = max(1, int(_CHUNK / (points + min(points, 512) * 2 * np.sqrt(high))))
    for start in range(0, len(q), rows):
        yield slice(start, min(start + rows, len(q)))


def _points(q: Floats, m: Floats, caps: Floats, tilt: float, height: float) -> _Points:
    """The trapezoid points for heights up to ``height``, normalised so that the weights of a step add up to 1."""
    tilts = np.full(len(q), tilt)
    low, high = window(q, m, tilts, caps)
    number = int(np.ceil(((high - low) / step(m, tilts, height)).max()))
    if number > _MOST_POINTS:
        raise RefusedError(f"a moment at height {height:g} needs {number} points, more than {_MOST_POINTS}")
    spacing = (high - low) / number
    x = low[:, None] + spacing[:, None] * (np.arange(number) + 0.5)
    loss = loss_at(x, q[:, None], m[:, None])
    log_noise = x**2 / (2 * m[:, None] ** 2)
    log_weight = tilt * loss.value - log_noise
    shift = log_weight.max(axis=1)
    weights = np.exp(log_weight - shift[:, None])
    total = weights.sum(axis=1)
    weights /= total[:, None]
    log_peak = shift + np.log(total) + np.log(spacing / (m * np.sqrt(2 * np.pi)))
    # expected rounding of the exponents under the weights, then of the sum and the products
    scale = (weights * loss.scale).sum(axis=1)
    exponent = 10 * (weights * log_noise).sum(axis=1) + 15 * abs(tilt) * scale + np.abs(log_peak) + 8
    # where the window ends at a cap, the vertical ends of the strip add at most pi m^2/20 times w there: the midpoints
    # damp exp(i y rho) upwards by exp(-40 theta/theta*)
    exponent_end = tilt * loss_at(high, q, m).value - high**2 / (2 * m**2) - shift
    end = 0.16 * m**2 * np.exp(np.minimum(exponent_end, 0.0)) / (spacing * total) * (high >= caps - 1e-6 * m)
    length = _block(number) + number / _block(number) + 48
    error = UNIT * (exponent + 2 * length) + QUADRATURE_ERROR + end
    return _Points(weights, loss.value, log_peak, error, 15 * UNIT * scale, end)


def _waves(points: _Points, spacing: float, low: int, high: int) -> Complexes:
    """sum over x of weight * exp(i k spacing rho) for k in [low, high), as products of two matrices.

    The sum is cut into blocks: rounding grows with the length of a block plus their number, not with all points.
    """
    columns = int(np.ceil(np.sqrt(high - low)))
    rows = -(-(high - low) // columns)
    size, number = points.losses.shape
    table = np.zeros((size, rows, columns), dtype=np.complex128)
    block = _block(number)
    for start in range(0, number, block):
        losses, weights = points.losses[:, start : start + block], points.weights[:, start : start + block]
        fine = _powers(losses, spacing, columns, np.ones(losses.shape))
        coarse = _powers(losses, spacing * columns, rows, weights * _phase(losses * (low * spacing)))
        table += np.matmul(coarse, fine.transpose(0, 2, 1))
    return table.reshape(size, -1)[:, : high - low]


def _block(number: int) -> int:
    """The points summed in one product: about as many as there are products."""
    return int(np.clip(np.sqrt(number), 32, 512))


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
