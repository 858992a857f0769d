"""Levels of a column that nobody declared: those that enough units have, by a count with noise and a threshold.

Only levels that occur are counted, so the names of rare ones are secret. A unit that alone has a level is shown with
the chance that 1 plus noise passes the threshold, p; that comes on top of delta (``tacit.ledger.ThresholdedSample``). A
unit counts for one level: its own, or, of a user with several rows, the one that most of them have.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from scipy.special import ndtri

from tacit.intervals import critical
from tacit.queries.answers import Answer
from tacit.queries.release import Part
from tacit.tables import Category, Table
from tacit.tables.columns import MOST_LEVELS
from tacit.tables.files import MISSING, to_text
from tacit.types import Floats

FAILURE_SHARE = 0.1  # of delta, for levels that a threshold finds
ONE = 1 + 1e-6  # what a unit adds, with room for rounding


def threshold(stddev: float, failure: float) -> float:
    """Above what a noisy count must lie so that one unit alone passes with a chance of at most ``failure``.

    Example:
        >>> round(threshold(10.0, 1e-8), 2)
        57.12
    """
    return ONE + stddev * float(-ndtri(failure))


def level_counts(table: Table, column: Category, owners: Floats | None) -> Counter[str]:
    """How many units have each level. Private.

    Example:
        >>> import numpy as np
        >>> cells = {"job": np.array(["cook", "clerk", "cook", "?", "cook"], dtype=object)}
        >>> level_counts(Table(cells), Category("job"), None)["cook"]
        3
        >>> level_counts(Table(cells), Category("job"), np.array(["a", "a", "b", "b", "b"], dtype=object))["cook"]
        1
    """
    cells = to_text(table.column(column.name)).tolist()
    if owners is None:
        return Counter(cell for cell in cells if cell.lower() not in MISSING)
    votes: dict[str, Counter[str]] = {}
    for cell, owner in zip(cells, owners.tolist(), strict=True):
        if owner and cell.lower() not in MISSING:
            votes.setdefault(owner, Counter())[cell] += 1
    return Counter(min(own, key=lambda level: (-own[level], level)) for own in votes.values())


@dataclass(frozen=True, slots=True)
class Levels:
    """The query ``levels:job``: how many units have each level of a column whose levels nobody declared.

    Levels that few have stay secret. An interval is that of the noise; of a level that hardly passed the threshold it
    holds less often than it says, because a small count is shown only if its noise was large.
    """

    text: str
    column: Category

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column.name,)

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part(self.text, 1, 1.0),)

    def discovered(
        self, table: Table, owners: Floats | None, stddev: float, failure: float, normals: Callable[[int], Floats],
        level: float,
    ) -> list[Answer]:  # fmt: skip
        """The only function of it that sees records. It has been charged."""
        counts = level_counts(table, self.column, owners)
        noisy = dict(zip(counts, stddev * normals(len(counts)), strict=True))
        shown = found_levels(counts, noisy.values(), threshold(stddev, failure))
        reach = critical(level) * stddev
        return [
            Answer(self.text, value, value - reach, value + reach, level, f"{self.column.name}={name}", stddev)
            for name in shown
            for value in (counts[name] + float(noisy[name]),)
        ]


def found_levels(counts: Counter[str], noise: Iterable[float], limit: float) -> tuple[str, ...]:
    """The levels whose noisy counts pass, in alphabetical order; the largest ones if they are too many."""
    noisy = {level: counts[level] + float(one) for level, one in zip(counts, noise, strict=True)}
    passed = sorted((level for level in noisy if noisy[level] > limit), key=lambda level: -noisy[level])
    return tuple(sorted(passed[:MOST_LEVELS]))
