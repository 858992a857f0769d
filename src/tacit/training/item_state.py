"""What a data set, a collate_fn or an augment remembers: it must not change from one record to the next.

A counter, a running mean, a cache or a generator of its own lets one record decide what the others look like, and no
clip bounds that. So what can be reached from the object (attributes, containers, wrapped data sets, closures and
generators) is looked at before and after the records of a step, and a change is refused by its name. What cannot be
reached (module globals, class attributes, files, memory of libraries) is not seen here; asking for a record twice may
still show it.
"""

import random
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.errors import InputError

_FEW = 256  # entries of a container that are looked at one by one; of a longer one only its length is
_MOST = 4_000  # things that are looked at in all
_SAMPLED = 512  # entries of an array that are compared
# Their objects keep caches of their own in attributes, which change without any effect on what they answer
_OPAQUE = {"pandas", "polars", "pyarrow", "datasets", "h5py", "zarr", "PIL", "logging", "threading", "multiprocessing"}
_VALUES = (bool, int, float, complex, str, bytes, np.generic, torch.dtype, torch.device, torch.Size)

LOADED = ("object", "tensor", "array", "container")  # what a data set may load when it is first asked

Facts = dict[str, tuple[Any, ...]]


class State:
    """What is remembered by some named objects at one moment."""

    def __init__(self, **owners: Any) -> None:
        self._owners = owners
        self._attributes: list[tuple[dict[str, Any], dict[str, Any]]] = []  # of each object: now, and as they were
        self._seen: dict[int, Any] = {}  # keeps what was seen alive, so that no number stands for two objects
        self.facts: Facts = {}
        for name, owner in owners.items():
            self._look(name, owner)

    def changes(self, lazy: tuple[str, ...] = ("object",)) -> list[str]:
        """The names of what is not as it was. A handle that was opened on demand (None before) is no change.

        ``lazy``: the kinds of things that may be made on demand.
        """
        now = State(**self._owners).facts
        names = sorted(self.facts.keys() | now.keys(), key=lambda name: (name.count("."), name))
        found: list[str] = []
        opened: list[str] = []
        for name in names:
            before, after = self.facts.get(name, ("value", None)), now.get(name, ("value", None))
            if _same(before, after) or any(name.startswith(f"{one}.") for one in opened):
                continue
            (opened if before == ("value", None) and after[0] in lazy else found).append(name)
        return found

    def put_back(self) -> None:
        """Bind every attribute to what it was, as if nothing had been asked for yet; but files that are open stay."""
        for now, before in self._attributes:
            opened = {n: v for n, v in now.items() if before.get(n) is None and hasattr(v, "close")}
            now.clear()
            now.update({**before, **opened})

    def _look(self, name: str, thing: Any) -> None:
        if len(self.facts) > _MOST:
            return
        match thing:
            case None | bool() | int() | float() | str():
                self.facts[name] = ("value", thing)
                return
            case _ if isinstance(thing, _VALUES):
                self.facts[name] = ("value", thing)
                return
        self.facts[name] = _fact(thing)
        if id(thing) in self._seen:
            return
        self._seen[id(thing)] = thing
        for part, value in _parts(thing):
            self._look(f"{name}.{part}", value)
        attributes = getattr(thing, "__dict__", None)
        if isinstance(attributes, dict) and not isinstance(thing, type) and not _is_opaque(thing):
            self._attributes.append((attributes, dict(attributes)))
            for part, value in list(attributes.items()):
                self._look(f"{name}.{part}", value)


@contextmanager
def unchanged(**owners: Any) -> Iterator[None]:
    """Refuse, by name, what changes in these objects meanwhile."""
    before = State(**owners)
    yield
    refuse_changes(before)


def refuse_changes(before: State, lazy: tuple[str, ...] = ("object",)) -> None:
    changes = before.changes(lazy)
    if changes:
        raise InputError(
            f"{changes[0]} changed while records were made: one record could change the others; keep no state (fill "
            "caches beforehand) and draw chance from torch, numpy or random, which are seeded for every record"
        )


def _fact(thing: Any) -> tuple[Any, ...]:
    """What of a thing can be compared, besides its parts."""
    match thing:
        case Tensor():
            return ("tensor", id(thing), None if thing.is_inference() else thing._version)
        case np.ndarray():
            return ("array", id(thing), thing.flat[:: max(1, thing.size // _SAMPLED)].tobytes())
        case random.Random():
            return ("generator", thing.getstate())
        case np.random.Generator():
            return ("generator", str(thing.bit_generator.state))
        case np.random.RandomState():
            return ("generator", str(thing.get_state()))
        case torch.Generator():
            return ("generator", thing.get_state().numpy().tobytes())
        case Mapping() | list() | tuple() | set() | frozenset() | deque() | bytearray():
            return ("container", id(thing), len(thing))
        case _:
            return ("object", id(thing))


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    match thing:
        case FunctionType():
            for number, cell in enumerate(thing.__closure__ or ()):
                yield thing.__code__.co_freevars[number], _content(cell)
            yield "defaults", thing.__defaults__
            yield "kwdefaults", thing.__kwdefaults__
        case MethodType():
            yield "self", thing.__self__
            yield "function", thing.__func__
        case partial():
            yield from (("func", thing.func), ("args", thing.args), ("keywords", thing.keywords))
        case dict() if len(thing) <= _FEW:
            yield from ((str(key), value) for key, value in list(thing.items()))
        case list() | tuple() | deque() if len(thing) <= _FEW:
            yield from ((str(number), value) for number, value in enumerate(thing))
        case set() | frozenset() if len(thing) <= _FEW:
            yield "entries", str(sorted(map(repr, thing)))
        case bytearray() if len(thing) <= _FEW:
            yield "entries", bytes(thing)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return len(one) == len(other) and all(a is b or bool(a == b) for a, b in zip(one, other, strict=True))


def _is_opaque(thing: Any) -> bool:
    return type(thing).__module__.partition(".")[0] in _OPAQUE
