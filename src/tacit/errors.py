"""Every error that Tacit raises on purpose, as one small tree, and the checks that nearly every part needs.

A message is one line: what was asked, what was found, what to do.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


class TacitError(Exception):
    """Base of all errors raised on purpose; the command line prints it as one line and exits with 2."""

    def __str__(self) -> str:
        """One line, whatever a file, a name or another library put into it."""
        return " ".join(super().__str__().splitlines())


class InputError(TacitError, ValueError):
    """An argument, a file or a declaration that cannot be used. Nothing was written and nothing was charged."""


class RefusedError(TacitError):
    """A question that has no honest answer, such as a ledger that an accountant cannot read."""


class LedgerError(TacitError):
    """A ledger that is damaged, rolled back, locked by another writer, or not writable."""


class StorageError(TacitError, OSError):
    """A file other than a ledger that cannot be written: a full or failing disk, or a folder that may not be used."""


class BudgetError(TacitError):
    """The next block of steps would exceed the budget. It was raised before any data was read."""


class RankLostError(TacitError):
    """A process of a job is gone, or was silent for too long. What was charged stays charged; nothing more is."""


class UndeclaredWarning(UserWarning):
    """Something that was not declared is read off the private data; the guarantee does not cover that."""


class LossesError(InputError):
    """The user's code that sees records cannot be used: it gives a wrong shape, writes into the model or remembers."""


class RecordMixingError(LossesError):
    """The model or the loss lets one record influence the gradient of another, so that no clip bounds it."""


def former_names(module: str, now: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module whose names have changed: the old ones work until 0.3, and say the new one.

    A new name with dots is one that has moved to another module.
    """

    def find(name: str) -> Any:
        if name not in now:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        message = f"{module}.{name} is now {now[name]}; the old name goes with 0.3"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        home, _, last = now[name].rpartition(".")
        return getattr(import_module(home or module), last)

    return find


def is_number(value: object) -> bool:
    """Whether it is a finite number; True and False are none."""
    return isinstance(value, _NUMBERS) and not isinstance(value, bool) and math.isfinite(value)


_NUMBERS = (int, float)  # made once: every number of a ledger passes here


def check_positive(name: str, value: object) -> None:
    """Refuse what is not a finite number above 0."""
    if not (is_number(value) and value > 0):  # type: ignore[operator]
        raise InputError(f"{name} must be a finite number above 0, found {value!r}")


def check_not_negative(name: str, value: object) -> None:
    """Refuse what is not a finite number of at least 0."""
    if not (is_number(value) and value >= 0):  # type: ignore[operator]
        raise InputError(f"{name} must be a finite number of at least 0, found {value!r}")


def check_count(name: str, value: object, most: int | None = None) -> None:
    """Refuse what is not a whole number of at least 1, and at most ``most``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} must be a whole number of at least 1, found {value!r}")
    if most is not None and value > most:
        raise InputError(f"{name} must be a whole number of at most {most:,}, found a larger one")


def check_share(name: str, value: object) -> None:
    """Refuse what is not a number above 0 and at most 1, such as a probability that is not zero."""
    if not (is_number(value) and 0 < value <= 1):  # type: ignore[operator]
        raise InputError(f"{name} must lie in (0, 1], found {value!r}")


def check_fraction(name: str, value: object) -> None:
    """Refuse what is not a number of at least 0 and below 1, such as a decay."""
    if not (is_number(value) and 0 <= value < 1):  # type: ignore[operator]
        raise InputError(f"{name} must lie in [0, 1), found {value!r}")


def check_inside(name: str, value: object) -> None:
    """Refuse what is not strictly between 0 and 1."""
    if not (is_number(value) and 0 < value < 1):  # type: ignore[operator]
        raise InputError(f"{name} must lie strictly between 0 and 1, found {value!r}")


def check_choice(name: str, value: object, allowed: Iterable[str]) -> None:
    """Refuse what is not one of the words."""
    words = list(allowed)
    if value not in words:
        raise InputError(f"{name} must be one of {', '.join(words)}, found {value!r}")


def check_texts(name: str, value: object) -> None:
    """Refuse what is not a tuple of texts; a single text would count as its letters."""
    if not isinstance(value, tuple) or not all(isinstance(item, str) for item in value):
        raise InputError(f"{name} must be a tuple of texts, found {value!r}")
