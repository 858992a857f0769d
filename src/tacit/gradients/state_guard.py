"""What a user's code remembers from one record to the next is compared around every call, put back and refused.

A running mean in a module, a list that collects, a counter in a closure, a generator of one's own: each lets one record
decide what happens to the others, or carries data out of the run without noise, and no clip bounds that. So everything
that can be reached by name from the model, the losses, a data set or a collate_fn is looked at before and after:
attributes, slots, containers, closures, defaults, globals that a function names, classes of the user's own, hooks,
generators and iterators.

What cannot be reached (files, the environment, globals of other modules) is not seen here. Where it changes losses
within a step, ``clipped_sum`` sees it by computing some of them again; beyond that it is the user's own affair
(docs/pitfalls.md).
"""

import functools
import itertools
import os
import random
import re
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from operator import length_hint
from typing import Any

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

    __slots__ = ("fact", "parts", "put_back", "read", "thing")

    def __init__(self, thing: Any, seen: dict[int, Any], look: Callable[[Any], dict[str, Any]] | None) -> None:
        self.thing, self.fact, self.put_back = thing, _fact(thing), _PUT_BACK.get(type(thing))
        self.read = look
        self.parts: dict[str, tuple[Any, Memory | None]] = {}
        if look is not None:
            self.parts = {name: (part, _memory(part, seen)) for name, part in look(thing).items()}

    def changes(self, name: str, *, on_demand: bool) -> Iterator[str]:
        """The names of what is not as it was, which is put back on the way."""
        if not _same(self.fact, _fact(self.thing)):
            if self.put_back is not None:
                self.put_back(self.thing, self.fact)
            yield name
        if self.read is None:
            return
        now = self.read(self.thing)
        for part in [*self.parts, *(part for part in now if part not in self.parts)]:
            before, memory = self.parts.get(part, (_NOTHING, None))
            after = now.get(part, _NOTHING)
            if not _same(before, after):
                _set(self.thing, part, before)
                if part not in _OF_PYTORCH and not (on_demand and before is None and not isinstance(after, _PLAIN)):
                    yield f"{name}.{part}"
            if memory is not None:
                inside = list(memory.changes(f"{name}.{part}", on_demand=on_demand))
                yield from inside if part not in _OF_PYTORCH else ()


def _memory(thing: Any, seen: dict[int, Any]) -> "Memory | None":
    if isinstance(thing, _PLAIN) or id(thing) in seen or isinstance(thing, _SKIPPED):
        return None
    seen[id(thing)] = thing  # kept alive, so that no number stands for two things
    return Memory(thing, seen, _looker(thing))


def _looker(thing: Any) -> Callable[[Any], dict[str, Any]] | None:
    """How the parts of a thing are listed, by name; None if it has none."""
    match thing:
        case Tensor() | np.ndarray():
            return None
        case dict():
            return _of_dict if dict.__len__(thing) <= _LONG else None
        case list() | tuple() | deque():
            return (lambda s: {str(i): v for i, v in enumerate(s)}) if len(thing) <= _LONG else None
        case types.CellType():
            return lambda cell: {"value": _content(cell)}
        case types.FunctionType():
            return _of_function
        case types.MethodType():
            return lambda method: {"self": method.__self__, "function": method.__func__}
        case functools.partial():
            return lambda part: {"func": part.func, "args": part.args, "keywords": part.keywords, **vars(part)}
        case types.GeneratorType():
            return lambda running: dict(running.gi_frame.f_locals) if running.gi_frame is not None else {}
        case threading.local():
            return lambda local: dict(vars(local))
        case type():
            return None if _is_opaque(thing) else _of_class
        case _ if _is_opaque(type(thing)) and not isinstance(thing, torch.nn.Module):
            return None
    return _of_object


def _of_dict(entries: dict[Any, Any]) -> dict[str, Any]:
    """By the base class: a mapping with methods of its own might import, or make, what it is asked for."""
    return {str(key): value for key, value in dict.items(entries)}


def _of_object(thing: Any) -> dict[str, Any]:
    """Attributes and slots, and what the classes of the user's own hold for all their objects."""
    found = dict(getattr(thing, "__dict__", None) or {})
    for kind in type(thing).__mro__:
        for slot in () if _is_opaque(kind) else getattr(kind, "__slots__", ()):
            with suppress(AttributeError):
                found.setdefault(slot, object.__getattribute__(thing, slot))
    found["__class__"] = type(thing)
    return found


def _of_class(kind: type) -> dict[str, Any]:
    """Its values, and its methods, which may hold on to something by a closure."""
    return {name: value for name, value in vars(kind).items() if not isinstance(value, _OF_CLASSES)}


def _of_function(function: types.FunctionType) -> dict[str, Any]:
    if _is_opaque(function):
        return {}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    known = function.__globals__
    used = {name: known[name] for name in function.__code__.co_names if name in known}
    if _INSTALLED.search(function.__code__.co_filename):  # what it calls leads through all of the libraries beneath it
        used = {name: value for name, value in used.items() if not isinstance(value, types.FunctionType | type)}
    return {**used, **dict(cells), "defaults": function.__defaults__, **function.__dict__,
            "keyword defaults": function.__kwdefaults__}  # fmt: skip


def _is_opaque(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "builtins")).partition(".")[0] in _OPAQUE


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable without a value yet
        return _NOTHING


def _fact(thing: Any) -> Any:
    """What of a thing itself can be compared, besides its parts."""
    match thing:
        case Tensor():
            grad = thing.grad if thing.is_leaf and not thing.is_inference() else None
            return (None if thing.is_inference() else thing._version, id(grad), None if grad is None else grad._version)
        case np.ndarray():
            return thing.flat[:: max(1, thing.size // _LONG)].copy()
        case random.SystemRandom():
            return None  # draws from the system, and remembers nothing
        case random.Random() | np.random.RandomState():
            return thing.getstate() if isinstance(thing, random.Random) else str(thing.get_state())
        case np.random.Generator():
            return thing.bit_generator.state
        case torch.Generator():
            return thing.get_state()
        case set() | frozenset() | bytearray():
            return thing.copy() if len(thing) <= _LONG else len(thing)
        case dict():
            return dict.__len__(thing)
        case list() | tuple() | deque():
            return len(thing)
        case types.GeneratorType():
            return None if thing.gi_frame is None else thing.gi_frame.f_lasti
        case itertools.count() | itertools.repeat():
            return repr(thing)
        case ContextVar():
            return thing.get(_NOTHING)
        case Iterator() if type(thing).__module__ in ("builtins", "itertools"):
            return length_hint(thing, -1)
    return None


def _put_back_entries(thing: Any, before: Any) -> None:
    if not isinstance(before, int):
        thing.clear()
        thing.update(before) if isinstance(thing, set) else thing.extend(before)


_PUT_BACK: dict[type, Callable[[Any, Any], object]] = {
    random.Random: lambda thing, before: thing.setstate(before),
    np.random.Generator: lambda thing, before: setattr(thing.bit_generator, "state", before),
    torch.Generator: lambda thing, before: thing.set_state(before),
    set: _put_back_entries,
    bytearray: _put_back_entries,
}


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
        >>> with StateGuard(model=model):
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
            change
            for name, memory in self._before.items()
            if memory is not None
            for change in memory.changes(name, on_demand=self._on_demand)
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
