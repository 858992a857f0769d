"""One step's loss on a lattice of spacing h, from above and from below, each with an error of second order.

With u = rho(x) - log(1-q) >= 0 the loss of a step is log(1-q) + u (remove) or -log(1-q) - u (add), and for a set of x

    a = (1-q) N(0, m^2)(set),   b = q N(1, m^2)(set):   remove: P = a + b, Q = a/(1-q);   add: the other way round.

delta is an expectation of a convex function of P/Q under Q. Hence spreading a cell's mass over its two ends, with P and
Q kept (Doroshenko et al. 2022), bounds it from above; merging sets of x into one outcome bounds it from below (data
processing). A merged outcome sits at expm1(u) = b/a, near the lattice but not on it. Edges of cells are fitted, and
each outcome takes a little from its neighbour, until it is nearly there; what is still missing is rounded to the safe
side, so nothing rests on how well that went.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from tacit.accountants.pld.steps import UNIT, Direction
from tacit.types import Floats

_NARROW = 0.005  # of a cell's half-width, in units of what changes the density
_MOST_TAKEN = 0.45
_FITTED = 40  # cells whose edges are fitted
_FITS = 12
_SHIFTS: Floats = np.geomspace(1e-9, 0.5, 28)


@dataclass(frozen=True, slots=True)
class Law:
    """P-masses at u = origin + k h, k = 0 ..; what is not on the lattice is in the tails (remove only).

    Args:
        shift: how far, at most, a loss may lie on the unsafe side of its place.
        tail_p: from above, the mass at infinite loss; from below, the P-mass beyond the lattice.
        tail_q: from below, the Q-mass beyond the lattice.
    """

    masses: Floats
    origin: float
    shift: float
    tail_p: float
    tail_q: float


@dataclass(frozen=True, slots=True)
class Cells:
    a: Floats
    b: Floats
    a_error: Floats
    b_error: Floats


def edges_of(q: float, m: float, u: Floats) -> Floats:
    """x of u: m^2 (log((1-q)/q) + log(expm1 u)) + 1/2."""
    with np.errstate(divide="ignore"):
        rise = u + np.log(-np.expm1(-u))
    result: Floats = m**2 * (math.log1p(-q) - math.log(q) + rise) + 0.5
    return result


def doubt_of(q: float, m: float, top: float, width: float) -> float:
    """How far u may miss at an edge: du = (1 - e^-u) dx/m^2, and x is rounded in units of its terms."""
    terms = abs(math.log1p(-q) - math.log(q)) + abs(math.log(width)) + top + 1 / m**2 + 4
    return 32 * UNIT * min(1.0, top) * terms + 8 * UNIT * top


def cells_between(q: float, m: float, u: Floats) -> Cells:
    """a and b between neighbouring u; the last cell is all beyond the last u.

    Whatever rounding did to the edges x, a and b are masses of the same cells.
    """
    x = np.append(edges_of(q, m, u), np.inf)
    null, null_error = _between(x, 0.0, m)
    moved, moved_error = _between(x, 1.0, m)
    rest = 1 - q
    return Cells(
        rest * null, q * moved, rest * null_error + 2 * UNIT * rest * null, q * moved_error + 2 * UNIT * q * moved
    )


def _between(x: Floats, mean: float, m: float) -> tuple[Floats, Floats]:
    """Probabilities of N(mean, m^2) between neighbouring x, and their error.

    A narrow cell by the series around its middle t, as a difference of two tails would lose the more digits the finer
    the lattice is: with d half its width, phi(t) 2d (1 + He2(t) d^2/6 + He4(t) d^4/120 + ..). As |He_n(t)| is at most
    E(|t| + |G|)^n, G normal, the terms left out are below 17 r^6/5040, r = (|t| + 1) d: half a unit at r = 0.005.
    """
    with np.errstate(invalid="ignore"):
        middle, half = ((x[:-1] + x[1:]) / 2 - mean) / m, np.diff(x) / (2 * m)
        narrow = (np.abs(middle) + 1) * half < _NARROW
    value, error = np.empty(len(narrow)), np.empty(len(narrow))
    t, d = middle[narrow], half[narrow]
    square, part = t**2, d**2
    series = 1 + part * ((square - 1) / 6 + part * (square * (square - 6) + 3) / 120)
    value[narrow] = np.exp(-square / 2) * (math.sqrt(2 / math.pi) * d) * series
    error[narrow] = value[narrow] * _units(t, m)
    wide = ~narrow
    value[wide], error[wide] = _difference((x[:-1][wide] - mean) / m, (x[1:][wide] - mean) / m, m)
    return value, error + 1e-305  # below which floats have fewer digits


def _difference(left: Floats, right: Floats, m: float) -> tuple[Floats, Floats]:
    """Normal probabilities from the nearer tail, and their error, in units of the tails."""
    upper = left > 0
    near, far = np.where(upper, -left, right), np.where(upper, -right, left)
    tail, rest = ndtr(near), ndtr(far)
    return np.maximum(tail - rest, 0.0), tail * _units(near, m) + rest * _units(far, m)


def _units(t: Floats, m: float) -> Floats:
    """The rounding of phi(t) and of the smaller tail at t, relative to them.

    t is off by at most UNIT (3 |t| + 1/m), and either moves by at most |t| + 1 of itself per unit of t.
    """
    size = np.minimum(np.abs(t), 40.0)
    result: Floats = UNIT * (20 + 4 * size * (size + 1) + 4 * (size + 1) / m)
    return result


def from_above(q: float, m: float, direction: Direction, width: float, number: int) -> Law:
    """Each cell's P-mass split over its ends k and k+1, k < number, such that its Q-mass is kept too."""
    u = width * np.arange(number + 1, dtype=np.float64)
    cells, doubt = cells_between(q, m, u), doubt_of(q, m, width * number, width)
    a, b, a_error, b_error = cells.a[:-1], cells.b[:-1], cells.a_error[:-1], cells.b_error[:-1]
    masses = np.zeros(number + 1)
    if direction == "remove":
        mass, error = a + b, a_error + b_error
        growth = np.expm1(u[:-1])
        far = b - growth * a + b_error + growth * a_error + 8 * UNIT * (b + growth * a)  # P - e^(lower end) Q
    else:
        mass, error = a / (1 - q), 2 * a_error / (1 - q)
        growth, share = np.expm1(u[1:]), np.exp(-u[1:]) / (1 - q)
        far = share * (growth * a - b + growth * a_error + b_error + 8 * UNIT * (b + growth * a))
    far = np.clip((far + 2 * doubt * mass) / -math.expm1(-width) * (1 + 8 * UNIT), 0.0, mass)
    near, away = (slice(None, -1), slice(1, None)) if direction == "remove" else (slice(1, None), slice(None, -1))
    masses[near] += mass - far
    masses[away] += far + error + 4 * UNIT * mass
    last_a, last_b = float(cells.a[-1] + cells.a_error[-1]), float(cells.b[-1] + cells.b_error[-1])
    if direction == "add":
        masses[-1] += last_a / (1 - q) * (1 + 4 * UNIT)
        return Law(masses, 0.0, doubt, 0.0, 0.0)
    # beyond the end: Q at the end, with its P = e^u a, and the rest of P at infinity
    masses[-1] += math.exp(width * number) * last_a * (1 + 16 * UNIT * (1 + width * number))
    infinite = max(0.0, last_b - math.expm1(width * number) * max(0.0, last_a - 2 * float(cells.a_error[-1])))
    infinite += (16 * UNIT + doubt) * (last_a + last_b)
    return Law(masses, 0.0, doubt, infinite, 0.0)


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


def any_tail(tails: list[float], counts: Floats) -> float:
    """The probability that some step is in its tail."""
    if max(tails) >= 1:
        return 1.0
    return -math.expm1(float(counts @ np.log1p(-np.array(tails))))
