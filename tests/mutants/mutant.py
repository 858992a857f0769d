"""What a mutant is, and how it is tried."""

import sys
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
        row: the row of docs/explanation/failure-modes.md that it breaks.
        patches: makes the context managers under which the code is wrong.
        catcher: the name of the check that must catch it (``catchers.CATCHERS``).
        says: words that must be among what the check says, so that no error of the patch itself passes for a catch.
        slow: needs millions of draws.
        kernels: is a bug of a C source, and means nothing where there is no compiler.
    """

    name: str
    row: str
    patches: Patches
    catcher: str
    says: str = ""
    slow: bool = False
    kernels: bool = False


@dataclass(frozen=True, slots=True)
class Trial:
    caught: bool
    by: str
    seconds: float


def attempt(mutant: Mutant, catcher: Catcher) -> Trial:
    """Run the check while the code is wrong; a sentence about what broke means that it was caught.

    An error of a test that exists anyway is such a sentence. The audit must say it in its own words: there an error is
    a traceback in front of a user, and counts as not caught.
    """
    start = time.perf_counter()
    broke: list[str] = []
    with ExitStack() as stack:
        stack.callback(_forget)  # what the wrong code computed must not answer for the right one later
        _forget()
        for one in mutant.patches():
            stack.enter_context(one)
        try:
            broke = list(catcher())
        except (Exception, pytest.fail.Exception) as error:
            if not mutant.catcher.startswith("audit:"):
                broke = [f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"]
    found = [sentence for sentence in broke if mutant.says in sentence]
    return Trial(bool(found), (found or broke or ["nothing"])[0], time.perf_counter() - start)


def _forget() -> None:
    """Empty the accountants' caches."""
    for name, module in list(sys.modules.items()):
        if name.startswith("tacit.accountants"):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def swap(owner: object, name: str, value: Any) -> AbstractContextManager[Any]:
    """Another value for an attribute, for the time of a trial."""
    return patch.object(owner, name, value)
