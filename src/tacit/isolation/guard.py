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
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from operator import is_
from typing import Any, Literal

import numpy as np
import torch

from tacit.errors import LossesError
from tacit.isolation.memory import (
    LONG,
    NOTHING,
    OF_PYTORCH,
    PLAIN_VALUES,
    PUT_BACK,
    SKIPPED,
    is_handle,
    looker,
    measurer,
    same,
    set_part,
)

OnDemand = Literal["handles", "data"] | None
_CONTAINERS = {dict, OrderedDict, list, set}  # that can be asked whether they are empty without running other code


class _Kept:
    """What one thing remembers: its parts, and what of itself can be compared; and by which name it was reached."""

    __slots__ = ("fact", "look", "measure", "name", "owner", "parts", "thing")

    def __init__(self, thing: Any, name: Any, owner: "_Kept | None") -> None:
        self.thing, self.name, self.owner = thing, name, owner
        self.look, self.measure = looker(thing), measurer(thing)
        self.parts = {} if self.look is None else self.look(thing)
        self.note_fact()

    def note_fact(self) -> None:
        self.fact = None if self.measure is None else self.measure(self.thing)

    def is_as_before(self) -> bool:
        """Whether it has the very same parts."""
        return self.look is None or _identical(self.parts, self.look(self.thing))

    def has_same_fact(self, exempt: set[int]) -> bool:
        return self.measure is None or id(self.thing) in exempt or same(self.fact, self.measure(self.thing))

    def path(self) -> str:
        return str(self.name) if self.owner is None else f"{self.owner.path()}.{self.name}"

    def changes(self, on_demand: "OnDemand") -> list[str]:
        """The names of what is not as it was, which is put back on the way, but for handles that were opened."""
        found = []
        fact = None if self.measure is None else self.measure(self.thing)
        if fact is not self.fact and not same(self.fact, fact):
            if type(self.thing) in PUT_BACK:
                PUT_BACK[type(self.thing)](self.thing, self.fact)
            found.append(self.path())
        now = {} if self.look is None else self.look(self.thing)
        return found if _identical(self.parts, now) else [*found, *self._other_parts(now, on_demand)]

    def _other_parts(self, now: dict[Any, Any], on_demand: "OnDemand") -> Iterator[str]:
        for part in [*self.parts, *(part for part in now if part not in self.parts)]:
            before, after = self.parts.get(part, NOTHING), now.get(part, NOTHING)
            fresh = on_demand is not None and (before is None or before is NOTHING)
            if same(before, after) or (fresh and is_handle(after)):
                continue
            set_part(self.thing, part, before)
            loaded = fresh and on_demand == "data" and not isinstance(after, PLAIN_VALUES)
            if part not in OF_PYTORCH and not loaded:
                yield f"{self.path()}.{part}"


def _identical(one: dict[Any, Any], other: dict[Any, Any]) -> bool:
    return len(one) == len(other) and list(one) == list(other) and all(map(is_, one.values(), other.values()))


def _all_kept(owners: dict[str, Any]) -> list[_Kept]:
    """Everything that can be reached by name, each once."""
    found: list[_Kept] = []
    seen: set[int] = set()  # the things are kept alive, so that no number stands for two

    def keep(thing: Any, name: Any, owner: _Kept | None) -> None:
        if not isinstance(thing, PLAIN_VALUES) and id(thing) not in seen and not isinstance(thing, SKIPPED):
            if (
                isinstance(thing, types.ModuleType)
                and owner is not None
                and isinstance(owner.thing, types.FunctionType)
            ):
                return  # a function says itself what it names of a module
            seen.add(id(thing))
            found.append(_Kept(thing, name, owner))

    for name, owner in owners.items():
        keep(owner, name, None)
    for kept in found:  # grows meanwhile
        for name, part in kept.parts.items():
            if name not in OF_PYTORCH:
                keep(part, name, kept)
    return found


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
        self._kept: list[_Kept] = []
        self._full: list[_Kept] = []
        self._empty: list[Any] = []
        self._arrays: list[Any] = []

    def __enter__(self) -> "StateGuard":
        self.blocks += 1
        full = self._unless_empty()
        if full and all(kept.is_as_before() for kept in full):  # as at the step before, which is quicker
            for kept in full:
                kept.note_fact()
        else:
            self._kept = _all_kept(self._owners)
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

    def _unless_empty(self) -> list[_Kept]:
        """All that is kept, but for the containers that were empty if they still are: most are, three for a module."""
        return self._kept if any(self._empty) else self._full

    def is_unchanged(self, but: Iterable[torch.Tensor]) -> bool:
        """Whether all is as it was in the last block, but for the numbers in some tensors, which are trained."""
        trained, full = set(map(id, but)), self._unless_empty()
        return bool(full) and all(kept.is_as_before() and kept.has_same_fact(trained) for kept in full)

    def put_back(self) -> list[str]:
        """Undo what changed; its names, the shortest first."""
        for array in self._read_only:
            array.flags.writeable = True
        found = [change for kept in self._unless_empty() for change in kept.changes(self._on_demand)]
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
