"""Counts, sums, means and variances in cells, and correlations: sums of powers, and what follows from them.

With u = (value - middle) / half range in [-1, 1], a record adds 1, u, 2 u^2 - 1 or u v to sums, each at most 1 in size:

    mean         middle + half S_1 / N
    variance     half^2 (Q N - S_1^2) / N^2                        Q = (S_2 + N) / 2, the sum of squares
    correlation  (N R - X Y) / sqrt((N Q_x - X^2)(N Q_y - Y^2))    R the sum of u v

Products of noisy sums are off by the noise's variance on average, which is known and taken off.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tacit.intervals import Ratio, critical
from tacit.queries.answers import Answer
from tacit.queries.kinds.columns import Cells, Values
from tacit.queries.release import Contribution, Noisy, Part
from tacit.tables import Table
from tacit.types import Floats

_MEAN_SHARES = {"count": 1 / 3, "sum": 2 / 3}  # the count's noise matters less the nearer the mean is to the middle
_VARIANCE_SHARES = {"count": 0.25, "sum": 0.25, "squares": 0.5}
_CORRELATION_SHARES = {"count": 0.1, "first": 0.1, "second": 0.1, "first squares": 0.2, "second squares": 0.2,
                       "products": 0.3}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Counts:
    """How many units lie in each cell; not cut at 0, so that counts can be added up."""

    text: str
    cells: Cells

    @property
    def columns(self) -> tuple[str, ...]:
        return self.cells.names

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part(self.text, self.cells.count, 1.0),)

    def contributions(self, table: Table) -> list[Contribution]:
        return [Contribution(self.cells.places(table), np.ones(len(table)))]

    def answers(self, noisy: Sequence[Noisy], level: float) -> list[Answer]:
        return normal_answers(self.text, self.cells, noisy[0].sums, noisy[0].stddev, level)


@dataclass(frozen=True, slots=True)
class Sums:
    """The sum of a column in each cell; a record adds at most the larger bound."""

    text: str
    values: Values
    cells: Cells

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.values.column.name, *self.cells.names)

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part(self.text, self.cells.count, 1.0),)

    @property
    def _bound(self) -> float:
        return max(abs(bound) for bound in self.values.bounds)

    def contributions(self, table: Table) -> list[Contribution]:
        values = self.values.of(table)
        return [_present(self.cells, table, values, values / self._bound)]

    def answers(self, noisy: Sequence[Noisy], level: float) -> list[Answer]:
        found = noisy[0]
        return normal_answers(self.text, self.cells, self._bound * found.sums, self._bound * found.stddev, level)


@dataclass(frozen=True, slots=True)
class Moments:
    """The mean or the variance of a column in each cell, among units that have a value there."""

    text: str
    kind: Literal["mean", "variance"]
    values: Values
    cells: Cells

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.values.column.name, *self.cells.names)

    @property
    def parts(self) -> tuple[Part, ...]:
        return _parts(self.text, self.cells.count, _MEAN_SHARES if self.kind == "mean" else _VARIANCE_SHARES)

    def contributions(self, table: Table) -> list[Contribution]:
        u = self.values.scaled(table)
        powers = [np.ones(len(table)), u, 2 * u**2 - 1][: len(self.parts)]
        return [_present(self.cells, table, u, power) for power in powers]

    def answers(self, noisy: Sequence[Noisy], level: float) -> list[Answer]:
        ratio, scale, shift = self._reading()
        variances = np.array([part.stddev**2 for part in noisy])
        found = []
        for cell, sums in zip(self.cells.labels, np.stack([part.sums for part in noisy], axis=1), strict=True):
            one = ratio(sums, variances)
            low, high = (shift + scale * end for end in one.interval(level))
            found.append(Answer(self.text, shift + scale * one.value(), low, high, level, cell or None))
        return found

    def _reading(self) -> tuple[Callable[[Floats, Floats], Ratio], float, float]:
        low, high = self.values.bounds
        if self.kind == "mean":
            return mean_ratio, (high - low) / 2, (low + high) / 2
        return variance_ratio, (high - low) ** 2 / 4, 0.0


@dataclass(frozen=True, slots=True)
class Correlation:
    """Pearson's correlation of two columns, among units that have both."""

    text: str
    first: Values
    second: Values

    @property
    def columns(self) -> tuple[str, ...]:
        return self.first.column.name, self.second.column.name

    @property
    def parts(self) -> tuple[Part, ...]:
        return _parts(self.text, 1, _CORRELATION_SHARES)

    def contributions(self, table: Table) -> list[Contribution]:
        u, v = self.first.scaled(table), self.second.scaled(table)
        powers = (np.ones(len(table)), u, v, 2 * u**2 - 1, 2 * v**2 - 1, u * v)
        return [_present(Cells(), table, u + v, power) for power in powers]

    def answers(self, noisy: Sequence[Noisy], level: float) -> list[Answer]:
        variances = np.array([part.stddev**2 for part in noisy])
        one = correlation_ratio(np.array([part.sums[0] for part in noisy]), variances)
        return [Answer(self.text, one.value(), *one.interval(level), level)]


def normal_answers(text: str, cells: Cells, values: Floats, stddev: float, level: float) -> list[Answer]:
    """Numbers with normal noise, one for each cell."""
    reach = critical(level) * stddev
    named = zip(cells.labels, values.tolist(), strict=True)
    return [Answer(text, value, value - reach, value + reach, level, cell or None, stddev) for cell, value in named]


def mean_ratio(sums: Floats, variances: Floats) -> Ratio:
    """S / N of (N, S)."""
    return Ratio(sums[1], sums[0], np.array([0.0, 1.0]), np.array([1.0, 0.0]), variances, -1.0, 1.0)


def variance_ratio(sums: Floats, variances: Floats) -> Ratio:
    """(Q N - S^2) / N^2 of (N, S, sum of 2 u^2 - 1)."""
    count, total, _ = sums
    spread, gradient = _spread(count, total, sums[2], variances[[0, 1]])
    square = count**2 - variances[0]
    return Ratio(spread, square, gradient, np.array([2 * count, 0.0, 0.0]), variances, 0.0, 1.0)


def correlation_ratio(sums: Floats, variances: Floats) -> Ratio:
    """C / sqrt(V_x V_y) of (N, X, Y, sums of 2 u^2 - 1 and of 2 v^2 - 1, R)."""
    count, x, y, xx, yy, products = sums
    of_x, grad_x = _spread(count, x, xx, variances[[0, 1]])
    of_y, grad_y = _spread(count, y, yy, variances[[0, 2]])
    both = count * products - x * y
    gradient = np.array([products, -y, -x, 0.0, 0.0, count])
    if of_x <= 0 or of_y <= 0:
        return Ratio(both, 0.0, gradient, np.zeros(6), variances, -1.0, 1.0)
    size = np.sqrt(of_x * of_y)
    wide_x, wide_y = np.zeros(6), np.zeros(6)
    wide_x[[0, 1, 3]], wide_y[[0, 2, 4]] = grad_x, grad_y
    return Ratio(both, float(size), gradient, (of_y * wide_x + of_x * wide_y) / (2 * size), variances, -1.0, 1.0)


def _spread(count: float, total: float, squares: float, variances: Floats) -> tuple[float, Floats]:
    """Q N - S^2, without what the noise adds to it on average, and its gradient in (N, S, sum of 2 u^2 - 1)."""
    whole = (squares + count) / 2
    value = whole * count - total**2 - variances[0] / 2 + variances[1]
    return float(value), np.array([count / 2 + whole, -2 * total, count / 2])


def _parts(text: str, width: int, shares: dict[str, float]) -> tuple[Part, ...]:
    return tuple(Part(f"{text} ({name})", width, share) for name, share in shares.items())


def _present(cells: Cells, table: Table, shown: Floats, values: Floats) -> Contribution:
    """Rows where nothing that is asked for is missing."""
    missing = np.isnan(shown)
    return Contribution(np.where(missing, -1, cells.places(table)), np.where(missing, 0.0, values))
