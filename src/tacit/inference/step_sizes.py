"""Step sizes as functions of the step number t = 1, 2, ..."""

import math
from dataclasses import dataclass
from typing import Protocol

from tacit.errors import InputError, check_count, check_positive


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
    """eta_t = eta_1 t^(-1/3), the schedule of Li et al. 2019, theorem 3.

    Example:
        >>> DecreasingStep(0.8).at(7)
        0.4
    """

    first: float

    def __post_init__(self) -> None:
        check_positive("first", self.first)

    def at(self, step: int) -> float:
        return self.first / math.cbrt(step + 1)


@dataclass(frozen=True, slots=True)
class PolynomialStep:
    """eta_t = a (b + t)^(-gamma) (Welling and Teh 2011); with gamma in (1/2, 1] SGLD is exact in the limit.

    Example:
        >>> PolynomialStep(a=0.1, b=3, gamma=0.5).at(0)
        0.05
    """

    a: float
    b: float = 0.0
    gamma: float = 0.55

    def __post_init__(self) -> None:
        check_positive("a", self.a)
        for name in ("b", "gamma"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 <= value < math.inf):
                raise InputError(f"{name} must be a finite number of at least 0, found {value!r}")

    def at(self, step: int) -> float:
        return self.a / math.pow(self.b + step + 1, self.gamma)


@dataclass(frozen=True, slots=True)
class CyclicalStep:
    """eta_t = eta_1 (cos(pi r_t) + 1) / 2, with r_t the share of its cycle that lies behind step t (Zhang et al. 2020).

    A cycle begins with large steps, which look for another mode, and ends with small ones, which sample it. The paper
    explores without noise; a private run cannot, and a large step has the smaller Langevin noise, hence costs more.

    Args:
        first: the largest step size, at the start of every cycle.
        length: the steps of a cycle.
        exploration: the share of a cycle whose iterates are not draws.

    Example:
        >>> cycle = CyclicalStep(first=0.2, length=4, exploration=0.5)
        >>> [round(cycle.at(step), 3) for step in range(5)], [cycle.samples(step) for step in range(5)]
        ([0.2, 0.171, 0.1, 0.029, 0.2], [False, False, True, True, False])
    """

    first: float
    length: int
    exploration: float = 0.8

    def __post_init__(self) -> None:
        check_positive("first", self.first)
        check_count("length", self.length)
        if not (isinstance(self.exploration, int | float) and 0 <= self.exploration < 1):
            raise InputError(f"exploration must lie in [0, 1), found {self.exploration!r}")

    def at(self, step: int) -> float:
        return self.first * (math.cos(math.pi * self._behind(step)) + 1) / 2

    def samples(self, step: int) -> bool:
        """Whether the iterate after this step is a draw: pass it as ``keep`` to :func:`tacit.train`."""
        return self._behind(step) >= self.exploration

    def _behind(self, step: int) -> float:
        return step % self.length / self.length


def as_step_size(value: float | StepSize, name: str = "step_size") -> StepSize:
    """A number stands for itself at every step."""
    if callable(getattr(value, "at", None)):
        return value  # type: ignore[return-value]
    check_positive(name, value)
    return FixedStep(value)  # type: ignore[arg-type]
