"""Bounds of a number column, found by one charged histogram: for schemas whose bounds nobody can declare.

Numbers of any size fall into cells that are a fourth of an octave wide, apart by sign: edges 2^(k/4) from 2^-10 to
2^40, with one cell around 0. A record lies in one cell, whatever its size. A cell counts as filled if its noisy count
stands out of the noise by so much that in 99 of 100 runs no empty cell does; the bounds are the outer edges of the
filled ones. Fewer records than about four standard deviations of the noise are left outside, and will be clamped.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from tacit.queries.answers import Answer
from tacit.queries.release import Contribution, Noisy, Part
from tacit.tables import Number, Table
from tacit.tables.files import to_numbers
from tacit.types import Floats

_SIZES: Floats = 2.0 ** (np.arange(-40, 161) / 4)
EDGES: Floats = np.concatenate([-_SIZES[::-1], _SIZES])  # cells lie between them; beyond, in the outermost
_CELLS = len(EDGES) - 1
_CHANCE_OF_ONE = 0.01  # chance that an empty cell stands out


@dataclass(frozen=True, slots=True)
class Bounds:
    """Two answers, low and high; they are a choice and no estimate, so they have no interval."""

    text: str
    column: Number

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column.name,)

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part(self.text, _CELLS, 1.0),)

    def contributions(self, table: Table) -> list[Contribution]:
        values = to_numbers(table.column(self.column.name))
        place = np.clip(np.digitize(values, EDGES) - 1, 0, _CELLS - 1)
        return [Contribution(np.where(np.isnan(values), -1, place), np.ones(len(table)))]

    def answers(self, noisy: Sequence[Noisy], level: float) -> list[Answer]:
        low, high = found_bounds(noisy[0].sums, noisy[0].stddev) or (float(EDGES[0]), float(EDGES[-1]))
        return [Answer(self.text, value, value, value, level, cell) for cell, value in (("low", low), ("high", high))]


def found_bounds(counts: Floats, stddev: float) -> tuple[float, float] | None:
    """The outer edges of the cells that stand out, to three digits outward; None if none does.

    Example:
        >>> counts = np.histogram(np.arange(18.0, 91.0).repeat(10), EDGES)[0]
        >>> found_bounds(counts.astype(float), 1.0)
        (16.0, 90.6)
    """
    filled = np.flatnonzero(counts > float(ndtri(1 - _CHANCE_OF_ONE / _CELLS)) * stddev)
    if not len(filled):
        return None
    return _outward(float(EDGES[filled[0]]), np.floor), _outward(float(EDGES[filled[-1] + 1]), np.ceil)


def _outward(value: float, rounding: np.ufunc) -> float:
    """Three digits; what is nearly 0 is 0."""
    if abs(value) <= _SIZES[0]:
        return 0.0
    grain = 10.0 ** (np.floor(np.log10(abs(value))) - 2)
    return float(f"{float(rounding(round(value / grain, 9))) * grain:.6g}")
