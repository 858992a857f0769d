"""What a user's code remembers from one record to the next is compared around every call, put back and refused.

A running mean in a module, a list that collects, a counter in a closure, a generator of one's own: each lets one record
decide what happens to the others, or carries data out of the run without noise, and no clip bounds that. So everything
that can be reached by name from the model, the losses, a data set or a collate_fn is looked at before and after:
attributes, slots, containers, closures, defaults, globals that a function names, classes of the user's own, hooks,
generators and iterators. Functions of installed packages are followed to their values, not to the functions that they
call, which lead through everything that is installed.

What cannot be reached (files, the environment, globals of other modules) is not seen here. Where it changes losses
within a step, ``clipped_sum`` sees it by computing some of them again; beyond that it is the user's own affair
(docs/pitfalls.md).
"""

import functools
import itertools
import os
import random
import re
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from operator import length_hint
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tacit.errors import LossesError

_LONG = 4096  # of a longer container only the length is compared, of a longer array some entries
_NOTHING = object()
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]|^" + re.escape(os.path.dirname(os.__file__)))
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, np.generic)
_SKIPPED = (types.ModuleType, types.BuiltinFunctionType, types.CodeType, weakref.ref, property, staticmethod)
_OF_CLASSES = (*_SKIPPED, classmethod, types.MemberDescriptorType, types.GetSetDescriptorType, str, type(None))
_OF_PYTORCH = {"_flat_weights", "_flat_weight_refs"}  # recurrent layers keep them in step with swapped parameters
# Their objects keep caches of their own in attributes, which change without any effect on what they answer.
_OPAQUE = frozenset(
    [
        "builtins",
        "torch",
        "numpy",
        "threading",
        "logging",
        "multiprocessing",
        "functools",
        "typing",
        "collections",
        "abc",
        "enum",
        "re",
        "pathlib",
        "pandas",
        "polars",
        "pyarrow",
        "datasets",
        "h5py",
        "zarr",
        "PIL",
    ]
)


class Memory:
    """What one thing remembers, and how to put it back: its parts, and what of itself can be compared."""

    __slots__ = ("fact", "parts", "thing", "way")

    def __init__(self, thing: Any, way: "Way", seen: dict[int, Any]) -> None:
        self.thing, self.way = thing, way
        self.fact = way.fact(thing) if way.fact is not None else None
        self.parts: dict[str, tuple[Any, Memory | None]] = {}
        if way.parts is not None:
            parts = way.parts(thing).items()
            self.parts = {n: (part, _memory(part, seen, of_object=n == "__class__")) for n, part in parts}

    def changes(self, on_demand: bool) -> list[str]:
        """The names, as seen from here, of what is not as it was, which is put back on the way."""
        found: list[str] = []
        way = self.way
        if way.fact is not None and not _same(self.fact, way.fact(self.thing)):
            if way.put_back is not None:
                way.put_back(self.thing, self.fact)
            found.append("")
        if way.parts is None:
            return found
        now = way.parts(self.thing)
        for part, (before, memory) in self.parts.items():
            if (after := now.get(part, _NOTHING)) is not before:
                found += self._rebound(part, before, after, on_demand)
            if memory is not None and (inside := memory.changes(on_demand)) and part not in _OF_PYTORCH:
                found += [f".{part}{name}" for name in inside]
        for part in now.keys() - self.parts.keys():
            found += self._rebound(part, _NOTHING, now[part], on_demand)
        return found

    def _rebound(self, part: str, before: Any, after: Any, on_demand: bool) -> list[str]:
        if _same(before, after):
            return []
        _set(self.thing, part, before)
        allowed = part in _OF_PYTORCH or (on_demand and before is None and not isinstance(after, _PLAIN))
        return [] if allowed else [f".{part}"]


class Way(NamedTuple):
    """How things of some types are looked at: what of them can be compared, their parts by name, and the way back."""

    types: Any
    fact: Callable[[Any], Any] | None = None
    parts: Callable[[Any], dict[str, Any]] | None = None
    put_back: Callable[[Any, Any], object] | None = None


def _memory(thing: Any, seen: dict[int, Any], *, of_object: bool = True) -> "Memory | None":
    way = _way(type(thing))  # type: ignore[arg-type]
    if (way.fact is None and way.parts is None) or id(thing) in seen:
        return None
    if way.parts is _of_class and not of_object and _is_installed(thing):
        return None  # a library's table of its own classes
    seen[id(thing)] = thing  # kept alive, so that no number stands for two things
    return Memory(thing, way, seen)


@functools.lru_cache(maxsize=4096)
def _way(kind: type) -> Way:
    """The first one that fits; found once a type, because a model has thousands of things."""
    for way in _WAYS:
        if issubclass(kind, way.types):
            return way
    looked_into = not _is_opaque(kind) or issubclass(kind, torch.nn.Module | torch.utils.data.Dataset)
    return Way(kind, None, _of_object if looked_into else None)


def _of_dict(entries: dict[Any, Any]) -> dict[str, Any]:
    """By the base class: a mapping with methods of its own might import, or make, what it is asked for."""
    return {str(key): value for key, value in dict.items(entries)} if dict.__len__(entries) <= _LONG else {}


def _of_sequence(entries: Any) -> dict[str, Any]:
    return {str(index): value for index, value in enumerate(entries)} if len(entries) <= _LONG else {}


def _of_object(thing: Any) -> dict[str, Any]:
    """Attributes and slots, and what the classes of the user's own hold for all their objects."""
    found = dict(getattr(thing, "__dict__", None) or {})
    for slot in _slots(type(thing)):  # type: ignore[arg-type]
        with suppress(AttributeError):
            found.setdefault(slot, object.__getattribute__(thing, slot))
    found["__class__"] = type(thing)
    return found


@functools.lru_cache(maxsize=4096)
def _slots(kind: type) -> list[str]:
    return [slot for base in kind.__mro__ if not _is_opaque(base) for slot in getattr(base, "__slots__", ())]


def _of_class(kind: type) -> dict[str, Any]:
    """Its values, and its methods, which may hold on to something by a closure."""
    if _is_opaque(kind):
        return {}
    return {name: value for name, value in vars(kind).items() if not isinstance(value, _OF_CLASSES)}


def _of_function(function: types.FunctionType) -> dict[str, Any]:
    if _is_opaque(function):
        return {}
    code, known = function.__code__, function.__globals__
    used = {name: known[name] for name in code.co_names if name in known}
    if _INSTALLED.search(code.co_filename) is not None:  # what it calls leads through all of the libraries beneath it
        used = {name: value for name, value in used.items() if not isinstance(value, types.FunctionType | type)}
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    return {**used, **dict(cells), "defaults": function.__defaults__, **function.__dict__,
            "keyword defaults": function.__kwdefaults__}  # fmt: skip


def _is_opaque(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "builtins")).partition(".")[0] in _OPAQUE


@functools.lru_cache(maxsize=4096)
def _is_installed(kind: type) -> bool:
    return _INSTALLED.search(str(getattr(sys.modules.get(kind.__module__), "__file__", None))) is not None


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable without a value yet
        return _NOTHING


def _of_tensor(tensor: Tensor) -> Any:
    if tensor.is_inference():
        return None
    grad = tensor.grad if tensor.is_leaf else None
    return tensor._version, id(grad), None if grad is None else grad._version


def _copy_unless_long(thing: Any) -> Any:
    return thing.copy() if len(thing) <= _LONG else len(thing)


def _put_back_entries(thing: Any, before: Any) -> None:
    if not isinstance(before, int):
        thing.clear()
        thing.update(before) if isinstance(thing, set) else thing.extend(before)


def _length_left(iterator: Any) -> Any:
    return length_hint(iterator, -1) if type(iterator).__module__ in ("builtins", "itertools") else None


_WAYS = (
    Way((*_PLAIN, *_SKIPPED, random.SystemRandom)),
    Way(Tensor, _of_tensor),
    Way(np.ndarray, lambda array: array.flat[:: max(1, array.size // _LONG)].copy()),
    Way(dict, dict.__len__, _of_dict),
    Way((list, tuple, deque), len, _of_sequence),
    Way(types.CellType, None, lambda cell: {"value": _content(cell)}),
    Way(types.FunctionType, None, _of_function),
    Way(types.MethodType, None, lambda method: {"self": method.__self__, "function": method.__func__}),
    Way(
        functools.partial,
        None,
        lambda part: {"func": part.func, "args": part.args, "keywords": part.keywords, **vars(part)},
    ),
    Way(
        types.GeneratorType,
        lambda running: None if running.gi_frame is None else running.gi_frame.f_lasti,
        lambda running: dict(running.gi_frame.f_locals) if running.gi_frame is not None else {},
    ),
    Way(threading.local, None, lambda local: dict(vars(local))),
    Way(type, None, _of_class),
    Way(random.Random, lambda own: own.getstate(), None, lambda own, before: own.setstate(before)),
    Way(np.random.RandomState, lambda own: str(own.get_state())),
    Way(
        np.random.Generator,
        lambda own: own.bit_generator.state,
        None,
        lambda own, before: setattr(own.bit_generator, "state", before),
    ),
    Way(
        torch.Generator,
        lambda own: own.get_state().numpy().tobytes(),
        None,
        lambda own, before: own.set_state(torch.frombuffer(bytearray(before), dtype=torch.uint8)),
    ),
    Way((set, frozenset, bytearray), _copy_unless_long, None, _put_back_entries),
    Way((itertools.count, itertools.repeat), repr),
    Way(ContextVar, lambda variable: variable.get(_NOTHING)),
    Way(Iterator, _length_left, _of_object),
)


def _set(thing: Any, part: str, before: Any) -> None:
    """Bind a part to what it was, where that can be done."""
    match thing:
        case types.CellType():
            if before is not _NOTHING:
                thing.cell_contents = before
        case dict():
            _set_entry(thing, next((key for key in thing if str(key) == part), part), before)
        case list() | deque():
            if before is _NOTHING:
                thing.pop()
            elif int(part) < len(thing):
                thing[int(part)] = before
            else:
                thing.append(before)
        case types.FunctionType() if part in thing.__globals__:
            _set_entry(thing.__globals__, part, before)
        case _:
            attributes = getattr(thing, "__dict__", None)
            if isinstance(attributes, dict) and (part in attributes or before is not _NOTHING):
                _set_entry(attributes, part, before)
            elif before is not _NOTHING:
                with suppress(AttributeError, TypeError):
                    setattr(thing, part, before)


def _set_entry(entries: dict[Any, Any], key: Any, before: Any) -> None:
    if before is _NOTHING:
        entries.pop(key, None)
    else:
        entries[key] = before


def _same(one: Any, other: Any) -> bool:
    """The same thing, an equal value, or a sequence of such."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    match one:
        case Tensor():
            return False
        case np.ndarray():
            return bool(one.tobytes() == other.tobytes())
        case weakref.ref():
            return True  # holds nothing
        case list() | tuple():
            return len(one) == len(other) and all(map(_same, one, other))
        case dict() | set() | frozenset() | bytearray() | int() | float() | complex() | str() | bytes():
            return bool(one == other)
        case types.MethodType():
            return one.__self__ is other.__self__ and one.__func__ is other.__func__
    return isinstance(one, _PLAIN) and bool(one == other)


class StateGuard:
    """Compares named things around a ``with`` block, puts them back, and refuses a change.

    ``on_demand``: what was None may become something, such as a file that is opened when it is first needed.

    Example:
        >>> model = torch.nn.Linear(1, 1)
        >>> with StateGuard(model=model):  # doctest: +ELLIPSIS
        ...     model.seen = 3
        Traceback (most recent call last):
        ...
        tacit.errors.LossesError: model.seen changed while records were computed; ...
    """

    def __init__(self, *, on_demand: bool = False, **owners: Any) -> None:
        self._owners, self._on_demand = owners, on_demand
        self._before: dict[str, Memory | None] = {}

    def __enter__(self) -> "StateGuard":
        seen: dict[int, Any] = {}
        self._before = {name: _memory(owner, seen) for name, owner in self._owners.items()}
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

    def put_back(self) -> list[str]:
        """Undo what changed; its names, the shortest first."""
        found = [
            name + change
            for name, memory in self._before.items()
            if memory is not None
            for change in memory.changes(self._on_demand)
        ]
        for setting, (before, restore) in self._settings.items():
            if _settings()[setting][0] != before:
                restore(before)
                found.append(setting)
        return sorted(map(_readable, found), key=lambda name: name.count("."))


def _readable(name: str) -> str:
    for hidden in ("._parameters", "._buffers", "._modules", ".value"):
        name = name.replace(hidden, "")
    return name


def _settings() -> dict[str, tuple[Any, Callable[[Any], object]]]:
    """What of PyTorch itself losses may not leave changed."""
    return {
        "torch's default dtype": (torch.get_default_dtype(), torch.set_default_dtype),
        "torch's number of threads": (torch.get_num_threads(), torch.set_num_threads),
        "torch's gradient mode": (torch.is_grad_enabled(), torch.set_grad_enabled),
    }
