"""Answers: released numbers with the interval that their noise leaves.

An interval says where the number lies that would have been released without noise, about these very records (clamped,
and with what is missing left out); it says nothing about the population that they came from.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """One released number. Public.

    Args:
        query: as it was asked.
        cell: which level, bin or probability it is about, where the query has several answers.
        low, high: hold the number without noise with probability ``level``.
        stddev: of the noise, where it is normal.
    """

    query: str
    value: float
    low: float
    high: float
    level: float
    cell: str | None = None
    stddev: float | None = None

    def to_json(self) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in found.items() if value is not None}
