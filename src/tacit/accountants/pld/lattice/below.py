"""One step's loss on a lattice of spacing h, from below, with an error of second order.

Merging sets of x into one outcome bounds delta from below (data processing). With a and b as in ``lattice`` a merged
outcome sits at expm1(u) = b/a, near the lattice but not on it. Edges of cells are fitted, and each outcome takes a
little from its neighbour, until it is nearly there; what is still missing is rounded to the safe side, so nothing rests
on how well that went.
"""

import math

import numpy as np
from scipy.special import ndtr

from tacit.accountants.pld.contour.saddle import Direction
from tacit.accountants.pld.lattice.above import Cells, Law, cells_between, edges_of
from tacit.accountants.pld.loss import UNIT
from tacit.types import Floats

_MOST_TAKEN = 0.45
_FITTED = 40  # cells whose edges are fitted
_FITS = 12
_SHIFTS: Floats = np.geomspace(1e-9, 0.5, 28)


def from_below(q: float, m: float, direction: Direction, width: float, number: int, tilt: float) -> Law:
    """Cells around the places origin + k h merged into one outcome each, k <= number.

    Args:
        tilt: weighs losses when it is chosen how much to round all and how much single outcomes.
    """
    first = _first_edges(q, m, width, min(number, _FITTED))
    origin = float(first[0])
    u = origin + width * np.arange(number + 1, dtype=np.float64)
    edges = np.append(0.0, u + width / 2)
    edges[1 : len(first)] = first[1:]
    cells = cells_between(q, m, edges)
    a, b, a_error, b_error = _balance(cells, np.expm1(u), direction)
    least_a, most_a = np.maximum(a - a_error, 0.0), a + a_error
    least_b, most_b = np.maximum(b - b_error, 0.0), b + b_error
    with np.errstate(divide="ignore", invalid="ignore"):
        if direction == "remove":
            missing, mass = u - np.log1p(least_b / most_a), (least_a + least_b) * (1 - 4 * UNIT)
        else:
            missing, mass = np.log1p(most_b / least_a) - u, least_a / (1 - q) * (1 - 4 * UNIT)
    missing = np.where(np.isfinite(missing), np.maximum(missing, 0.0), 1e9 * width) * (1 + 8 * UNIT) + 4 * UNIT * u
    sign = 1 if direction == "remove" else -1
    weights = mass * np.exp(np.clip(sign * tilt * u, -600.0, 600.0))
    if direction == "remove":
        weights[0] *= 1e3  # rounded down, the first outcome is lost
    shift = _best_shift(missing, weights, width)
    moves = np.ceil(np.minimum(np.maximum(missing - shift, 0.0) / width, 1e9))
    place = np.arange(number + 1) - sign * moves.astype(np.int64)
    kept = (place >= 0) & (place <= number)
    masses: Floats = np.bincount(place[kept], mass[kept], number + 1).astype(np.float64) * (1 - 16 * UNIT)
    if direction == "add":
        return Law(masses, origin, shift, 0.0, 0.0)
    last_a, last_b = float(cells.a[-1]), float(cells.b[-1])
    tail_p = max(0.0, last_a + last_b - float(cells.a_error[-1] + cells.b_error[-1])) * (1 - 4 * UNIT)
    return Law(masses, origin, shift, tail_p, (last_a + float(cells.a_error[-1])) / (1 - q) * (1 + 4 * UNIT))


def _origin(q: float, m: float, width: float) -> float:
    """Where the first cell, from 0 to origin + h/2, has its own outcome: most mass of a rare step is there."""

    def outcome(edge: float) -> float:
        x = m * (math.log1p(-q) - math.log(q) + edge + math.log(-math.expm1(-edge))) + 0.5 / m
        null, moved = math.erfc(-x / math.sqrt(2)), math.erfc((1 / m - x) / math.sqrt(2))
        return math.log1p(q * moved / ((1 - q) * null)) if (1 - q) * null > 1e-290 else edge

    low, high = 0.0, 64 * width
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if outcome(middle + width / 2) > middle else (low, middle)
    return low


def _first_edges(q: float, m: float, width: float, number: int) -> Floats:
    """The origin, and the edges 1 .. number that put the outcomes of the first cells nearly onto the lattice.

    There the density falls so fast that a cell around its place has its outcome well below it. Moving the lower edge of
    each cell is a contraction where the density falls; elsewhere it is left as it is.
    """
    places = width * np.arange(number + 1, dtype=np.float64)
    origin = _origin(q, m, width)
    lower = origin + places - width / 2
    lower[0] = 0.0
    for _ in range(_FITS):
        outcome = _outcomes(q, m, edges_of(q, m, np.append(lower, origin + places[-1] + width / 2)))
        origin = float(outcome[0])
        wanted = origin + places
        lower[1:] = np.clip(lower[1:] + (wanted - outcome)[1:], (wanted - width / 2)[1:], (wanted - width / 50)[1:])
    lower[0] = origin
    return lower


def _outcomes(q: float, m: float, x: Floats) -> Floats:
    """u of the merged cells between neighbouring x, without care for the last digits."""
    upper = x[:-1] > 0
    near, far = np.where(upper, -x[:-1], x[1:]), np.where(upper, -x[1:], x[:-1])
    null, shift = ndtr(near / m) - ndtr(far / m), np.where(upper, 1.0, -1.0)
    moved = ndtr((near + shift) / m) - ndtr((far + shift) / m)
    result: Floats = np.log1p(np.maximum(q / (1 - q) * moved, 0.0) / np.maximum(null, 1e-300))
    return result


def _balance(cells: Cells, ratio: Floats, direction: Direction) -> tuple[Floats, Floats, Floats, Floats]:
    """Outcomes take from a neighbour what brings b/a to the wanted ratio; shares of one outcome add up to at most 1."""
    a, b = cells.a[:-1], cells.b[:-1]
    excess = b - ratio * a
    from_upper, from_lower = np.zeros(len(a)), np.zeros(len(a))  # the share of k taken by k - 1, and by k + 1
    with np.errstate(divide="ignore", invalid="ignore"):
        from_upper[1:] = -excess[:-1] / (b[1:] - ratio[:-1] * a[1:])
        from_lower[:-1] = excess[1:] / (ratio[1:] * a[:-1] - b[:-1])
    from_upper = np.clip(np.nan_to_num(from_upper, posinf=0.0, neginf=0.0), 0.0, _MOST_TAKEN)
    from_lower = np.clip(np.nan_to_num(from_lower, posinf=0.0, neginf=0.0), 0.0, _MOST_TAKEN)
    kept = 1 - from_upper - from_lower
    # an outcome that gives to others needs less itself; only the safe side takes account of that
    if direction == "remove":
        from_lower[:-1] *= kept[1:]
    else:
        from_upper[1:] *= kept[:-1]
    kept = 1 - from_upper - from_lower

    def mix(values: Floats) -> Floats:
        result: Floats = kept * values
        result[:-1] += (from_upper * values)[1:]
        result[1:] += (from_lower * values)[:-1]
        return result

    extra = 8 * UNIT
    return mix(a), mix(b), mix(cells.a_error[:-1] + extra * a), mix(cells.b_error[:-1] + extra * b)


def _best_shift(missing: Floats, weights: Floats, width: float) -> float:
    """Rounding all losses by s, or the single outcomes that miss more than s by a whole step: the cheaper s."""
    choices = np.append(width * _SHIFTS, min(missing[0], width))
    whole = float(weights.sum())
    cost = [s * whole + width * float(weights[missing > s].sum()) for s in choices]
    return float(choices[int(np.argmin(cost))])
