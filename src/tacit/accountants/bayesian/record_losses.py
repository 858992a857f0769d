"""delta_x(epsilon) of every record by the contour integral of maths.md 3, many records on one line.

A record's log moment generating function K_x(z) is a sum over steps of a table in r at the line's nodes. Any c > 0 is
right; a good one is near the record's own saddle point, so records are dealt out over some lines by the c that makes
their Chernoff bound best. A little Gaussian (tau = 0.08 / c) is composed with every record: it can only raise
delta, moves epsilon by about a thousandth, and cuts the line off. Aliases of the trapezoid rule only raise delta too.

What is computed here is not certified like the worst case: evidence makes it an ex-post number anyway.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.accountants.bayesian.exposure import Exposure
from tacit.accountants.pld.contour.moments import Line, moments_on_line, real_moments
from tacit.accountants.pld.contour.saddle import tilt_of
from tacit.accountants.pld.steps import Direction
from tacit.types import Complexes, Floats

DIRECTIONS: tuple[Direction, ...] = ("remove", "add")

_BLUR = 0.08  # tau in units of one over the saddle point
_RATIO = 1.5  # between the lines
_HIGHER = (1.1, 1.25, 1.5, 2.0)  # points above c that bound the aliases
_BLOCK = 2048  # records at once
_HOPELESS = 100.0  # a step whose log moment is above this makes c a bad one for the record
_FAR_BELOW = 14.0  # in natural logs
_MOST_NODES = 4096
_DIGITS = 16.0  # in natural logs, to which aliases and truncation are kept below the target


@dataclass(frozen=True, slots=True, eq=False)
class _Line:
    """The nodes of one line, c + i k spacing, and the standard deviation tau of the Gaussian that cuts it off."""

    c: float
    spacing: float
    size: int
    tau: float

    @property
    def heights(self) -> Floats:
        return self.spacing * np.arange(self.size, dtype=np.float64)


def record_deltas(exposure: Exposure, direction: Direction, epsilons: Floats, delta: float) -> Floats:
    """delta of each record at each epsilon, [records, epsilons]; resolved around ``delta``."""
    lines, place = _lines(exposure, direction, delta)
    result = np.zeros((exposure.records, len(epsilons)))
    for number, line in enumerate(lines):
        rows = np.flatnonzero(place == number)
        if len(rows) == 0:
            continue
        tables = _tables(exposure.take(rows), direction, line)
        waves = _waves(line, epsilons)
        for start in range(0, len(rows), _BLOCK):
            some = rows[start : start + _BLOCK]
            result[some] = _integrate(exposure.take(some), tables, line, waves)
    return np.clip(result, 0.0, 1.0)


def record_epsilons(exposure: Exposure, delta: float, ceiling: float) -> Floats:
    """The smallest epsilon of each record with delta_x(epsilon) <= delta, both directions, at most ``ceiling``."""
    worst = np.zeros(exposure.records)
    for direction in DIRECTIONS:
        lines, place = _lines(exposure, direction, delta)
        for number, line in enumerate(lines):
            rows = np.flatnonzero(place == number)
            if len(rows) == 0:
                continue
            tables = _tables(exposure.take(rows), direction, line)
            point = np.array([line.c])
            bounds = _epsilons(_cumulants(exposure.take(rows), direction, point), point, math.log(delta))
            top = min(ceiling, float(bounds.max()))
            epsilons = np.linspace(0.0, max(top, 1e-9), 160)
            waves = _waves(line, epsilons)
            for start in range(0, len(rows), _BLOCK):
                some = rows[start : start + _BLOCK]
                deltas = _integrate(exposure.take(some), tables, line, waves)
                worst[some] = np.maximum(worst[some], _crossings(epsilons, deltas, delta))
    return np.minimum(worst, ceiling)


def _crossings(epsilons: Floats, deltas: Floats, delta: float) -> Floats:
    """Where each row falls to delta for good, by interpolation of log delta; the last epsilon where it never does."""
    above = deltas > delta
    last = np.where(above.any(axis=1), deltas.shape[1] - 1 - np.argmax(above[:, ::-1], axis=1), -1)
    inside = np.clip(last, 0, len(epsilons) - 2)
    rows = np.arange(len(deltas))
    logs = np.log(np.maximum(deltas, 1e-300))
    high, low = logs[rows, inside], logs[rows, inside + 1]
    share = np.clip((high - math.log(delta)) / np.maximum(high - low, 1e-300), 0.0, 1.0)
    found = epsilons[inside] + share * (epsilons[1] - epsilons[0])
    return np.asarray(np.where(last < 0, 0.0, np.where(last == len(epsilons) - 1, epsilons[-1], found)))


def _lines(exposure: Exposure, direction: Direction, delta: float) -> tuple[list[_Line], NDArray[np.int64]]:
    """Lines over the range of saddle points, and the line of each record."""
    mu, log_delta = exposure.mu(), math.log(delta)
    guess = math.sqrt(-2 * log_delta)
    low = 0.003 * guess / max(float(mu.max()), 1e-6)  # rare large losses have their saddle far below the Gaussian one
    high = 2 * guess / max(float(mu.max()) / 200, float(mu.min()), 1e-6)  # fainter records are below any epsilon
    points: Floats = low * _RATIO ** np.arange(
        max(3, math.ceil(math.log(high / low) / math.log(_RATIO)) + 1), dtype=np.float64
    )
    place, saddle = _placed(_cumulants(exposure, direction, points), points, log_delta)
    lines = []
    for number, c in enumerate(points):
        rows = np.flatnonzero(place == number)
        far = float(saddle[rows].max()) if len(rows) else 1.0
        some = exposure.take(rows)
        lines.append(_shape(some, direction, float(c), far, log_delta) if len(rows) else _Line(c, 1.0, 1, 0.0))
    return lines, np.where(mu > 0, place, -1)  # a record that never moved anything has lost nothing


def _placed(k: Floats, points: Floats, log_delta: float) -> tuple[NDArray[np.int64], Floats]:
    """The line of each record, the one of the shortest period, and its saddle point.

    Above the saddle point K can take off at once, so that aliases come from far away; too far below it
    exp(K(c) - c eps) exceeds delta, and rounding with it.
    """
    bounds = _epsilons(k, points, log_delta)
    c, epsilon = points[:-1], bounds.min(axis=1, keepdims=True)
    excess = k[:, :-1] - c * epsilon - log_delta
    periods = np.maximum((k[:, 1:] + _DIGITS / 2) / (_RATIO - 1), _DIGITS - log_delta) / c
    place = np.argmin(np.where(excess < _FAR_BELOW, periods, np.inf), axis=1)
    return np.asarray(place), points[np.argmin(bounds, axis=1)]


def _shape(exposure: Exposure, direction: Direction, c: float, saddle: float, log_delta: float) -> _Line:
    """The smallest period that keeps aliases small at epsilon 0 and, relative to delta, where delta is reached."""
    points = c * np.array((1.0, *_HIGHER))
    k = _cumulants(exposure, direction, points)
    epsilon = (k[:, 0] - log_delta) / c
    room = _DIGITS / 2
    at_delta = (k[:, 1:] - points[1:] * epsilon[:, None] - log_delta + room) / (points[1:] - c)
    at_zero = (k[:, 1:] + room) / (points[1:] - c)
    period = max((room - log_delta) / c, float(at_delta.min(axis=1).max()), float(at_zero.min(axis=1).max()))
    spacing, fall = 2 * math.pi / period, math.sqrt(2 * (_DIGITS - log_delta))
    size = min(_MOST_NODES, math.ceil(fall * saddle / _BLUR / spacing) + 1)
    return _Line(c, spacing, size, fall / (spacing * size))  # more blur, hence more delta, rather than too many nodes


def _cumulants(exposure: Exposure, direction: Direction, points: Floats) -> Floats:
    """K_x at real points, [records, points]; infinite where it is out of reach."""

    def values(q: float, r: Floats) -> Floats:
        columns = [_real(q, r, tilt_of(direction, float(c)), float(c)) for c in points]
        return np.stack(columns, axis=1)

    return exposure.total(values)


def _real(q: float, r: Floats, tilt: float, c: float) -> Floats:
    """log M at one real point for each distance; where it is hopelessly large, a lower bound says so as well."""
    square = np.square(r)
    if q >= 1:
        return np.asarray(square * c * (c + 1) / 2)
    result = np.maximum(tilt * math.log(q) + tilt * (tilt - 1) * square / 2, 0.0) if tilt > 0 else np.zeros(len(r))
    near = (r > 0) & (result < _HOPELESS)
    if not near.any():
        return result
    number = int(near.sum())
    result[near] = real_moments(np.full(number, q), 1 / r[near], np.full(number, np.inf), tilt)[0]
    return np.maximum(result, 0.0)


def _epsilons(k: Floats, points: Floats, log_delta: float) -> Floats:
    """The epsilon of each record by the Renyi conversion at order c + 1, for each c."""
    return np.asarray((k - points * np.log1p(1 / points) - np.log1p(points) - log_delta) / points)


def _tables(exposure: Exposure, direction: Direction, line: _Line) -> list[Complexes]:
    """K of one step at each distance of the grids, on the nodes of the line."""
    tables = []
    z = line.c + 1j * line.heights
    for part in exposure.parts:
        table = np.zeros((len(part.grid), line.size), dtype=np.complex128)
        used = (part.grid > 0) & (part.weights > 0).any(axis=0)  # distances that no record had need no moments
        if part.probability >= 1:
            table[used] = np.square(part.grid[used])[:, None] * (z * (z + 1) / 2)
        elif used.any():
            table[used] = _log_moments(part.probability, part.grid[used], direction, line)
        tables.append(table)
    return tables


def _log_moments(q: float, distances: Floats, direction: Direction, line: _Line) -> Complexes:
    nodes = Line(tilt_of(direction, line.c), line.spacing, line.size)
    found = moments_on_line(np.full(len(distances), q), 1 / distances, nodes)
    logs = np.log(np.where(np.abs(found.ratios) > 1e-300, found.ratios, 1e-300)) + found.log_peak[:, None]
    return np.asarray(np.conj(logs) if direction == "add" else logs)  # a = -z runs downwards when z runs upwards


def _waves(line: _Line, epsilons: Floats) -> Complexes:
    """The weights of the trapezoid sum at each epsilon, [nodes, epsilons]."""
    z = line.c + 1j * line.heights
    weights = np.exp(line.tau**2 * z * (z + 1) / 2) / (z * (z + 1)) * (line.spacing / math.pi)
    weights[0] *= 0.5
    return np.asarray(weights[:, None] * np.exp(-z[:, None] * epsilons[None, :]))


def _integrate(exposure: Exposure, tables: list[Complexes], line: _Line, waves: Complexes) -> Floats:
    real = sum(p.weights @ t.real for p, t in zip(exposure.parts, tables, strict=True))
    phase = sum(p.weights @ t.imag for p, t in zip(exposure.parts, tables, strict=True))
    size = np.exp(np.minimum(real, 600.0))
    return np.asarray((size * np.cos(phase)) @ waves.real - (size * np.sin(phase)) @ waves.imag)
