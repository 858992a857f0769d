"""What a user's code remembers from one record to the next is compared around every call, put back and refused.

A running mean in a module, a list that collects, a counter in a closure, a generator of one's own: each lets one record
decide what happens to the others, or carries data out of the run without noise, and no clip bounds that. So everything
that can be reached by name from the model, the losses, a data set or a collate_fn is looked at before and after:
attributes, slots, containers, closures, defaults, globals that a function names, also those of the user's other
modules, classes of the user's own, hooks, generators and iterators.

What cannot be reached (files, the environment, modules that a program looks up by other means) is not seen here. Where
it changes losses within a step, ``clipped_sum`` sees it by computing some of them again; beyond that it is the user's
own affair (docs/explanation/pitfalls.md).
"""

import decimal
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from tacit.errors import LossesError
from tacit.isolation.facts import LONG
from tacit.isolation.memory import Kept, OnDemand, all_as_before, all_kept, all_unchanged, changes_of

_CONTAINERS = {dict, OrderedDict, list, set}  # that can be asked whether they are empty without running other code


class StateGuard:
    """Compares named things around a ``with`` block, puts them back, and refuses a change.

    ``on_demand``: what was None, or not there, may become a handle (an open file), which stays; with "data" it may
    become anything, which is put back.

    Example:
        >>> model = torch.nn.Linear(1, 1)
        >>> try:
        ...     with StateGuard(model=model):
        ...         model.seen = 3
        ... except LossesError as error:
        ...     print(str(error)[:47], hasattr(model, "seen"))
        model.seen changed while records were computed; False
    """

    def __init__(self, *, on_demand: OnDemand = None, **owners: Any) -> None:
        self._owners, self._on_demand = owners, on_demand
        self.blocks = 0  # that were begun: what is known of a block holds until the next one
        self._kept: list[Kept] = []
        self._full: list[Kept] = []
        self._empty: list[Any] = []
        self._arrays: list[Any] = []

    def __enter__(self) -> "StateGuard":
        self.blocks += 1
        full = self._unless_empty()
        if full and all_as_before(full):  # as at the step before, which is quicker
            for kept in full:
                kept.note_fact()
        else:
            self._kept = all_kept(self._owners)
            self._empty = [kept.thing for kept in self._kept if type(kept.thing) in _CONTAINERS and not kept.thing]
            self._full = [kept for kept in self._kept if type(kept.thing) not in _CONTAINERS or kept.thing]
            self._arrays = [kept.thing for kept in self._kept if isinstance(kept.thing, np.ndarray)]
        self._read_only = [array for array in self._arrays if _is_large(array)]
        for array in self._read_only:
            array.flags.writeable = False
        self._settings = _settings()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        changed = self.put_back()
        if changed and error is None:
            raise LossesError(
                f"{changed[0]} changed while records were computed; what sees private records may keep nothing, or one "
                "of them could change the others: it was put back; fill caches beforehand, and draw chance from torch, "
                "numpy or random, which are seeded for every record"
            )

    def _unless_empty(self) -> list[Kept]:
        """All that is kept, but for the containers that were empty if they still are: most are, three for a module."""
        return self._kept if any(self._empty) else self._full

    def is_unchanged(self, but: Iterable[torch.Tensor]) -> bool:
        """Whether all is as it was in the last block, but for the numbers in some tensors, which are trained."""
        trained, full = set(map(id, but)), self._unless_empty()
        return bool(full) and all_unchanged(full, trained)

    def put_back(self) -> list[str]:
        """Undo what changed; its names, the shortest first."""
        for array in self._read_only:
            array.flags.writeable = True
        found = changes_of(self._unless_empty(), self._on_demand)
        if found:
            self._kept = self._full = []
        now = _settings()
        for setting, (before, restore) in self._settings.items():
            if now[setting][0] != before:
                restore(before)
                found.append(setting)
        return sorted(map(_readable, found), key=lambda name: name.count("."))


def _is_large(array: Any) -> bool:
    """Too large to be compared entry by entry; it is made read-only instead."""
    return array.size > LONG and bool(array.flags.writeable and array.flags.owndata)


def _readable(name: str) -> str:
    for hidden in ("._parameters", "._buffers", "._modules", ".value"):
        name = name.replace(hidden, "")
    return name


def _settings() -> dict[str, tuple[Any, Callable[[Any], object]]]:
    """What of the process itself losses may not leave changed."""
    return {
        "torch's default dtype": (torch.get_default_dtype(), torch.set_default_dtype),
        "torch's number of threads": (torch.get_num_threads(), torch.set_num_threads),
        "torch's gradient mode": (torch.is_grad_enabled(), torch.set_grad_enabled),
        "torch's determinism": (torch.are_deterministic_algorithms_enabled(), torch.use_deterministic_algorithms),
        "numpy's handling of errors": (np.geterr(), lambda before: np.seterr(**before)),
        "the environment": (dict(_ENVIRONMENT), _put_back_environment),
        "sys.path": (sys.path[:], lambda before: sys.path.__setitem__(slice(None), before)),
        "the recursion limit": (sys.getrecursionlimit(), sys.setrecursionlimit),
        "the decimal context": (_decimals(), lambda before: None),
    }


def _decimals() -> tuple[Any, ...]:
    context = decimal.getcontext()
    return context.prec, context.rounding, context.Emin, context.Emax


_ENVIRONMENT: Any = getattr(os.environ, "_data", os.environ)  # its own copy would decode every entry


def _put_back_environment(before: Any) -> None:
    for name in {*_ENVIRONMENT, *before}:
        key = os.fsdecode(name)
        if name not in before:
            del os.environ[key]
        elif _ENVIRONMENT.get(name) != before[name]:
            os.environ[key] = os.fsdecode(before[name])
