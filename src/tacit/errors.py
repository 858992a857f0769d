"""Every error that Tacit raises on purpose, as one small tree, and the two checks that nearly every part needs.

A message is one line: what was asked, what was found, what to do.
"""

import math


class TacitError(Exception):
    """Base of all errors raised on purpose; the command line prints it as one line and exits with 2."""


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


class RecordMixingError(InputError):
    """The model or the loss lets one record influence the gradient of another, so that no clip bounds it."""


def check_positive(name: str, value: object) -> None:
    """Refuse what is not a finite number above 0."""
    if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
        raise InputError(f"{name} must be a finite number above 0, found {value!r}")


def check_count(name: str, value: object) -> None:
    """Refuse what is not a whole number of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} must be a whole number of at least 1, found {value!r}")
