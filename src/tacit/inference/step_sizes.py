"""Step sizes as functions of the step number t = 1, 2, ..."""

import math
from dataclasses import dataclass
from typing import Protocol

from tacit.errors import check_positive


class StepSize(Protocol):
    def at(self, step: int) -> float:
        """The step size of step ``step``, counted from 0."""


@dataclass(frozen=True, slots=True)
class FixedStep:
    """The same step size at every step."""

    size: float

    def __post_init__(self) -> None:
        check_positive("step size", self.size)

    def at(self, step: int) -> float:
        return self.size


@dataclass(frozen=True, slots=True)
class DecreasingStep:
    """eta_t = eta_1 t^(-1/3), the schedule of paper M, theorem 3.

    Example:
        >>> DecreasingStep(0.8).at(7)
        0.4
    """

    first: float

    def __post_init__(self) -> None:
        check_positive("step size", self.first)

    def at(self, step: int) -> float:
        return self.first / math.cbrt(step + 1)


def as_step_size(value: float | StepSize) -> StepSize:
    return FixedStep(value) if isinstance(value, int | float) else value
