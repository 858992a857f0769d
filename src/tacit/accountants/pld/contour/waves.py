"""Sums over trapezoid points at every height: E[exp(i y rho)] - 1 by matrix products, or by Fourier transforms."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from tacit.accountants.pld.contour.points import Points
from tacit.accountants.pld.loss import UNIT
from tacit.types import Floats

Complexes = NDArray[np.complex128]

_TERMS = 21  # (pi/4)^21/21! = 1e-22
_BLOCK = 128  # points added up in one go
_DUE = 1e-22


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
    cells = fft.next_fast_len(4 * high, real=True)
    place = losses * (spacing * cells / (2 * math.pi))
    cell = np.rint(place)
    offset = place - cell
    starts = np.union1d(np.flatnonzero(np.diff(cell)) + 1, np.arange(0, len(cell), _BLOCK))
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
        if float(np.abs(moment).sum() * factor[-1]) < _DUE:
            break
    # what is rounded: the mass that leaves cell 0, and what the rest of it adds beyond order 0
    stays = float((np.mod(cell, cells) == 0) * points.weights[row] @ np.abs(offset))
    gain = 6 * math.log2(cells) + _BLOCK + len(losses) / _BLOCK + 64
    y = spacing * np.arange(low, high)
    error = np.minimum(2 * points.rounding[row], y * points.rounding_by_loss[row])
    error += gain * (4 * outside + 1.6 * angles * stays)
    return result, UNIT * error + points.rest[row] + 4 * _DUE + points.slope[row] * y


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
