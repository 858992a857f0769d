"""What a check found: what it tried, what it measured, and what broke."""

import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Literal, ParamSpec

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

ALPHA = 1e-6  # of a whole check: a false alarm in a million clean runs, shared out among its tests

Effort = Literal["quick", "standard", "deep"]
Arguments = ParamSpec("Arguments")


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check.

    Args:
        check: its name.
        tried: what was done, in a few words.
        times: how often: cases, draws or steps.
        broke: what went wrong, a sentence each; nothing if the promise held.
        measured: the figures that a reader wants to see.
        assumptions: what the figures rest on.
        skipped: why the check does not apply, if it does not.
        weak: whether it finds gross faults only.
    """

    check: str
    tried: str
    times: int
    broke: tuple[str, ...] = ()
    measured: str = ""
    assumptions: tuple[str, ...] = ()
    skipped: str = ""
    weak: bool = False

    @property
    def held(self) -> bool:
        return not self.broke

    @property
    def verdict(self) -> str:
        if self.skipped:
            return "does not apply"
        return ("held (finds gross faults only)" if self.weak else "held") if self.held else "BROKE"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "held": self.held, "verdict": self.verdict}


@dataclass(frozen=True, slots=True)
class Trial:
    """One statistical test: how likely the outcome, or a stranger one, is if nothing is wrong."""

    name: str
    p_value: float
    found: str


def rejected(trials: Sequence[Trial], alpha: float = ALPHA) -> tuple[str, ...]:
    """The tests that fail at a common level, shared out equally (Bonferroni).

    Example:
        >>> rejected([Trial("scale", 1e-9, "0.99 of the claim"), Trial("mean", 0.3, "0")])
        ('scale: 0.99 of the claim (p = 1e-09)',)
    """
    level = alpha / max(1, len(trials))
    return tuple(f"{one.name}: {one.found} (p = {one.p_value:.1g})" for one in trials if not one.p_value >= level)


def two_sided(z: float) -> float:
    """The p-value of a standard normal score."""
    return float(2 * ndtr(-abs(z)))


def smallest(p_values: ArrayLike) -> float:
    """The p-value of the smallest of many."""
    values = np.asarray(p_values)
    return float(min(1.0, values.min() * values.size)) if values.size else 1.0


def described(error: BaseException) -> str:
    """An error in one line: what it is, what it says, and where it came from."""
    said = (str(error).splitlines() or [""])[0]
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {said}{where}" if said else f"{type(error).__name__}{where}"


def raise_machine_errors(error: BaseException) -> None:
    """A full disk or a lack of memory is nobody's broken promise, also behind an error of our own that tells of it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError | MemoryError):
            raise error
        cause = cause.__cause__


def turns_errors_into_findings(
    check: str,
) -> Callable[[Callable[Arguments, Finding]], Callable[Arguments, Finding]]:
    """A check drives code that works; if it raises, the code does not, and that is a finding, not a traceback."""

    def decorate(run: Callable[Arguments, Finding]) -> Callable[Arguments, Finding]:
        @wraps(run)
        def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Finding:
            try:
                return run(*args, **kwargs)
            except Exception as error:
                raise_machine_errors(error)
                sentence = f"the engine failed where it must work: {described(error)}"
                return Finding(check, "stopped by an error", 0, (sentence,), "stopped by an error")

        return checked

    return decorate
