"""One figure of the table: what was tried, how often, and what was lost."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """The outcome of one attempt to break a promise.

    Args:
        row: the row of docs/explanation/failure-modes.md, such as "F11"; "audit" and "speed" for what has no row.
        tried: what was tried, in a few words.
        times: how often it was tried.
        lost: how often the promise was broken; 0 is the only good answer.
        reached: what else was measured, such as "largest over-count 20 steps"; empty if nothing was.
        goal: what has to hold, such as "0 lost in 100,000", or "" where `lost` says all.
        held: whether the goal is reached.
    """

    row: str
    tried: str
    times: int
    lost: int
    reached: str = ""
    goal: str = ""
    held: bool = True

    @property
    def good(self) -> bool:
        return self.lost == 0 and self.times > 0 and self.held


Proof = Callable[[float], Iterable[Figure]]
"""``prove(effort)``: with effort 1 the numbers that failure-modes.md asks for, with less proportionally fewer tries."""


def tries(full: int, effort: float, least: int = 1) -> int:
    """How many tries ``full`` becomes at this effort."""
    return max(least, round(full * effort))
