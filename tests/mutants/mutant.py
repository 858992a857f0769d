"""What a mutant is, and how it is tried."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pytest

Patches = Callable[[], Sequence[AbstractContextManager[Any]]]
Catcher = Callable[[], Sequence[str]]  # what broke; nothing if all is well


@dataclass(frozen=True, slots=True)
class Mutant:
    """A privacy bug.

    Args:
        name: what the code now does wrong, in a few words.
        row: the row of docs/failure-modes.md that it breaks.
        patches: makes the context managers under which the code is wrong.
        catcher: the name of the check that must catch it (``catchers.CATCHERS``).
        slow: needs millions of draws.
    """

    name: str
    row: str
    patches: Patches
    catcher: str
    slow: bool = False


@dataclass(frozen=True, slots=True)
class Trial:
    caught: bool
    by: str
    seconds: float


def attempt(mutant: Mutant, catcher: Catcher) -> Trial:
    """Run the check while the code is wrong; a sentence about what broke, or any error, means that it was caught."""
    start = time.perf_counter()
    with ExitStack() as stack:
        for one in mutant.patches():
            stack.enter_context(one)
        try:
            broke = list(catcher())
        except (Exception, pytest.fail.Exception) as error:
            broke = [f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"]
    return Trial(bool(broke), broke[0] if broke else "nothing", time.perf_counter() - start)


def swap(owner: object, name: str, value: Any) -> AbstractContextManager[Any]:
    """Another value for an attribute, for the time of a trial."""
    return patch.object(owner, name, value)
