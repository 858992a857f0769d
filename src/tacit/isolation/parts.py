"""The parts of any Python object, by name: what it refers to, and so may remember.

Parts are listed by the base classes of Python, so that no code of the object's own runs. What libraries keep for all
their users, and objects that keep caches of their own, are not looked into.
"""

import ast
import functools
import gc
import itertools
import logging
import operator
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.isolation.facts import LONG, NOTHING, PLAIN_VALUES
from tacit.isolation.libraries import (
    Home,
    homes_of,
    imported,
    is_a_users,
    is_library,
    is_opaque,
    is_users_module,
    patches_of,
)

_SOME = 64  # entries of a longer one that are looked into


class Attributes:
    """The name of a container's attributes: no entry of it can have the same."""

    def __str__(self) -> str:
        return "__dict__"


Parts = dict[Any, Any] | list[Any] | tuple[Any, ...]
Look = Callable[[Any], Parts]
_OBJECT = "__dict__", "__class__"
ATTRIBUTES = Attributes()
_CONTENTS = (*PLAIN_VALUES, dict, list, tuple, set, frozenset, deque, np.ndarray, weakref.ref)  # more than attributes
OF_OBJECT: Look = operator.attrgetter(*_OBJECT)
SKIPPED = (types.CodeType, types.FrameType, types.TracebackType, types.MemberDescriptorType, types.GetSetDescriptorType)
_IN_SCRIPT = "attribute "  # of a module of TorchScript
_OF_CLASSES = (*SKIPPED, str, type(None))
_OF_LOGGERS = frozenset(vars(logging.Logger("")))  # all but what somebody hangs on one
_MADE_BY_CLASS = 1 << 9  # Py_TPFLAGS_HEAPTYPE: code that exec runs without a __name__ calls its module builtins too
_BOUND = (types.BuiltinFunctionType, types.MethodWrapperType)  # such as the append of a list


def looker(thing: Any) -> Look | None:
    """How the parts of a thing are listed; None if it has none."""
    look = _by_kind(thing)
    if type(thing).__dictoffset__ and isinstance(thing, _CONTENTS):
        return functools.partial(_with_attributes, look)
    return look


def _with_attributes(look: Look | None, thing: Any) -> dict[Any, Any]:
    """What a dictionary, a list or a number of a user's own class holds, and the attributes that it has besides."""
    held = {} if look is None else named(look, look(thing))
    return {**held, ATTRIBUTES: object.__getattribute__(thing, "__dict__")}


def _by_kind(thing: Any) -> Look | None:
    match thing:
        case np.ndarray():
            return _of_objects if thing.dtype.hasobject else None
        case weakref.ref():
            return lambda reference: {"referent": reference()}
        case Tensor():
            return OF_OBJECT
        case _ if isinstance(thing, PLAIN_VALUES):
            return None
        case types.ModuleType():
            return _of_module if is_users_module(thing) else None
        case staticmethod() | classmethod() | property() | functools.cached_property():
            return _of_descriptor
        case _ if isinstance(thing, _BOUND):
            return lambda method: {"self": method.__self__}
        case functools._lru_cache_wrapper():
            return lambda cached: {"function": cached.__wrapped__}
        case functools.partialmethod():
            return lambda part: dict(vars(part))
        case dict():
            return dict.copy if dict.__len__(thing) <= LONG else _of_long_dict
        case list() if list.__len__(thing) <= LONG:
            return list.copy
        case list() | tuple() | deque():
            return tuple if len(thing) <= LONG else _of_long_sequence
        case types.CellType():
            return lambda cell: {"value": _content(cell)}
        case types.FunctionType():
            return _look_at_function(thing)
        case types.MethodType():
            return lambda method: {"self": method.__self__, "function": method.__func__}
        case functools.partial():
            return lambda part: {"func": part.func, "args": part.args, "keywords": part.keywords, **vars(part)}
        case types.GeneratorType():
            return lambda running: dict(running.gi_frame.f_locals) if running.gi_frame is not None else {}
        case threading.local():
            return lambda local: dict(vars(local))
        case type():
            return of_library_class if is_library(thing) else _of_class
        case set() | frozenset() if len(thing) > LONG:
            return None  # its entries have no order by which some of them could be looked into
        case _ if type(thing).__module__ == "builtins" and not type(thing).__flags__ & _MADE_BY_CLASS:
            return _of_referents
        case logging.Logger():
            return _of_logger
        case _ if is_opaque(type(thing)) and not isinstance(thing, torch.nn.Module):
            return None
    if isinstance(thing, torch.jit.ScriptModule) and hasattr(thing, "_concrete_type"):
        return _of_script
    slots = slots_of(type(thing))
    if not slots and not type(thing).__dictoffset__:
        return _of_referents  # written in C, such as those of itertools and csv
    reading: Any = type(thing).__getattribute__
    is_plain = not slots and type(thing).__dictoffset__ != 0 and reading is object.__getattribute__
    return OF_OBJECT if is_plain else functools.partial(_of_object, slots)


def named(look: Look | None, parts: Parts) -> dict[Any, Any]:
    """The parts by their names."""
    if isinstance(parts, dict):
        return parts
    return dict(zip(_OBJECT, parts, strict=True)) if look is OF_OBJECT else dict(enumerate(parts))


def _of_referents(thing: Any) -> dict[Any, Any]:
    """Whatever an object of a built-in type holds, as the collector of garbage sees it: views, proxies, iterators."""
    return dict(enumerate(gc.get_referents(thing)))


def _of_objects(array: Any) -> dict[Any, Any]:
    return dict(enumerate(array.flat[:LONG]))


def _of_long_dict(some: Any) -> dict[Any, Any]:
    """Some of its entries, always the same: what is kept for every record is seen at a few of them."""
    return dict(itertools.islice(dict.items(some), 0, None, dict.__len__(some) // _SOME))


def _of_long_sequence(some: Any) -> dict[Any, Any]:
    return {place: some[place] for place in range(0, len(some), len(some) // _SOME)}


def _of_object(slots: Sequence[Any], thing: Any) -> dict[str, Any]:
    """Attributes and slots, and what the classes of the user's own hold for all their objects."""
    found = {"__dict__": object.__getattribute__(thing, "__dict__")} if type(thing).__dictoffset__ else {}
    for slot in slots:
        with suppress(AttributeError):  # it has no value yet
            found.setdefault(slot.__name__, slot.__get__(thing))
    found["__class__"] = type(thing)
    return found


def _of_script(module: Any) -> dict[str, Any]:
    """A module of TorchScript keeps what it remembers in C++: its tensors, and other things by their text.

    It binds its methods when they are first called.
    """
    found = {name: value for name, value in vars(module).items() if not isinstance(value, torch._C.ScriptMethod)}
    found["__class__"] = type(module)
    for name in module._concrete_type.get_attributes():
        value = module._c.getattr(name)
        found[f"{_IN_SCRIPT}{name}"] = value if isinstance(value, Tensor) else sys.intern(repr(value))
    return found


def _set_in_script(module: Any, name: str, before: Any) -> None:
    with suppress(ValueError, SyntaxError, RuntimeError):  # a text that stands for no plain value
        module._c.setattr(name, before if isinstance(before, Tensor) else ast.literal_eval(before))


def slots_of(kind: type) -> list[Any]:
    """Where Python keeps the values of ``__slots__``, whatever they are called."""
    made = [one for one in kind.__mro__ if "__slots__" in vars(one) and not is_opaque(one)]
    held = [value for one in made for value in vars(one).values()]
    return [value for value in held if type(value) is types.MemberDescriptorType]


def _of_class(kind: type) -> dict[str, Any]:
    """Its values, its methods, which may hold on to something by a closure, and the classes that it is made of."""
    values = {name: value for name, value in vars(kind).items() if not isinstance(value, _OF_CLASSES)}
    return {**values, "bases": kind.__bases__, "metaclass": type(kind)}


def of_library_class(kind: type) -> dict[str, Any]:
    """What a user has put into it beforehand: ``nn.Linear.forward = mine``."""
    return {**patches_of(kind), "bases": kind.__bases__}


def _look_at_function(function: types.FunctionType) -> Look | None:
    """Where the names of a function lead is found out once: it is asked at every step what is there."""
    if is_library(function):
        return None
    names, space = names_in(function.__code__), function.__globals__
    reached = {**imported(names, space.get("__package__")), **{name: space[name] for name in names if name in space}}
    homes: list[Home] = [("", space, False)]
    homes += [(f"{path}.", entries, library) for path, entries, library in homes_of(reached, names)]
    places = [(f"{path}{name}", entries, name, library) for path, entries, library in homes for name in names]
    more = {"logging.root": logging.root} if "logging" in reached else {}
    return functools.partial(_of_function, places, more, {})


def _of_function(
    places: Sequence[tuple[str, Mapping[str, Any], str, bool]],
    more: dict[str, Any],
    judged: dict[str, tuple[Any, bool]],
    function: types.FunctionType,
) -> dict[str, Any]:
    """What a function refers to. ``judged`` keeps, by path, what a library had there and whether it is a user's."""
    used = {}
    for path, entries, name, library in places:
        if name not in entries:
            continue
        value = entries[name]
        if library:
            if path not in judged or judged[path][0] is not value:
                judged[path] = value, is_a_users(value)
            if not judged[path][1]:
                continue
        used[path] = value
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {**used, **more, **dict(cells), **function.__dict__, "defaults": function.__defaults__,
            "keyword defaults": function.__kwdefaults__, "__code__": function.__code__}  # fmt: skip


@functools.lru_cache(maxsize=4096)
def names_in(code: types.CodeType) -> frozenset[str]:
    """All names that a function uses, also in functions, classes and comprehensions that are written inside it.

    And those that it has as texts: for ``setattr``, ``sys.modules`` and the like.
    """
    inner = (names_in(one) for one in code.co_consts if isinstance(one, types.CodeType))
    texts = [one for one in code.co_consts if isinstance(one, str) and one.replace(".", "_").isidentifier()]
    return frozenset([*code.co_names, *texts]).union(*inner)


def _of_logger(log: logging.Logger) -> dict[str, Any]:
    """What somebody hangs on it, and where handlers keep what is logged: those of the user's own, buffers and files."""
    found = {name: value for name, value in vars(log).items() if name not in _OF_LOGGERS}
    while log is not None:
        for number, handler in enumerate(log.handlers):
            name = f"{log.name}.handlers.{number}"
            if not is_library(type(handler)):
                found[name] = handler
            elif isinstance(handler, logging.FileHandler):
                found[name] = handler.stream
            elif hasattr(handler, "buffer"):
                found[name] = handler.buffer
        log = log.parent  # type: ignore[assignment]
    return found


def _of_module(module: types.ModuleType) -> dict[str, Any]:
    """Of a module that is held as a value: all of it, since nobody says by which names it is used."""
    return {name: value for name, value in vars(module).items() if not name.startswith("__")}


def _of_descriptor(thing: Any) -> dict[str, Any]:
    """The functions behind a static or class method, or a property."""
    found = (getattr(thing, name, None) for name in ("__func__", "fget", "fset", "func"))
    return {"function": next((one for one in found if one is not None), None)}


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable without a value yet
        return NOTHING


def set_part(thing: Any, part: Any, before: Any) -> None:
    """Bind a part to what it was, where that can be done."""
    if part is ATTRIBUTES or (part in _OBJECT and not isinstance(thing, dict)):
        object.__setattr__(thing, str(part), before)
        return
    match thing:
        case torch.jit.ScriptModule() if str(part).startswith(_IN_SCRIPT):
            _set_in_script(thing, part.removeprefix(_IN_SCRIPT), before)
        case types.CellType():
            if before is not NOTHING:
                thing.cell_contents = before
        case dict():
            _set_entry(thing, part, before)
        case list() | deque():
            if before is NOTHING:
                thing.pop()
            elif part < len(thing):
                thing[part] = before
            else:
                thing.append(before)
        case types.FunctionType() if part == "__code__":
            thing.__code__ = before
        case types.FunctionType() if part in thing.__globals__:
            _set_entry(thing.__globals__, part, before)
        case types.FunctionType() if "." in part:
            *path, name = part.split(".")
            home = functools.reduce(getattr, path[1:], thing.__globals__.get(path[0], sys.modules.get(path[0])))
            with suppress(AttributeError):
                delattr(home, name) if before is NOTHING else setattr(home, name, before)
        case _:
            slot = next((slot for slot in slots_of(type(thing)) if slot.__name__ == part), None)
            if slot is not None:
                slot.__delete__(thing) if before is NOTHING else slot.__set__(thing, before)
            elif before is not NOTHING:
                with suppress(AttributeError, TypeError):
                    setattr(thing, part, before)


def _set_entry(entries: dict[Any, Any], key: Any, before: Any) -> None:
    if before is NOTHING:
        entries.pop(key, None)
    else:
        entries[key] = before
