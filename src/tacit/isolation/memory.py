"""What any Python object remembers: its parts by name, what of itself can be compared, and how both are put back.

Parts are listed by the base classes of Python, so that no code of the object's own runs. What libraries keep for all
their users, and objects that keep caches of their own, are not looked into.
"""

import functools
import gc
import io
import itertools
import queue
import random
import sys
import sysconfig
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from operator import length_hint
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

LONG, _LONGEST = 4096, 1 << 16  # entries of a container that are looked into, and that are compared at all
_SOME = 64  # entries of a longer one that are looked into
NOTHING = object()
PLAIN_VALUES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, np.generic)
SKIPPED = (types.CodeType, types.FrameType, types.TracebackType, types.MemberDescriptorType, types.GetSetDescriptorType)
_OF_CLASSES = (*SKIPPED, str, type(None))
_BOUND = (types.BuiltinFunctionType, types.MethodWrapperType)  # such as the append of a list
OF_PYTORCH = {"_flat_weights", "_flat_weight_refs"}  # recurrent layers keep them in step with swapped parameters
# Their objects keep caches of their own in attributes, which change without any effect on what they answer.
_OPAQUE = frozenset({
    "builtins", "torch", "numpy", "threading", "logging", "multiprocessing", "functools", "typing", "abc", "enum", "re",
    "pathlib", "io", "_io", "gzip", "zipfile", "tarfile", "sqlite3", "lmdb", "pandas", "polars", "pyarrow", "datasets",
    "h5py", "zarr", "PIL", "lightning", "pytorch_lightning",
})  # fmt: skip
# Of ours a module may come to hold:
_OURS = ("tacit.training", "tacit.distributed", "tacit.isolation", "tacit.integrations", "tacit.ledger")
_PACKAGES = {"site-packages", "dist-packages"}
_HOLDERS = (
    "torch.nn",
    "torch.optim",
    "torch.utils.data",
    "multiprocessing.sharedctypes",
)  # whose objects hold a user's
_FLAGS = (threading.Event, threading.Condition, threading.Semaphore, threading.Barrier)


def looker(thing: Any) -> Callable[[Any], dict[Any, Any]] | None:
    """How the parts of a thing are listed, by name; None if it has none."""
    match thing:
        case np.ndarray():
            return _of_objects if thing.dtype.hasobject else None
        case weakref.ref():
            return lambda reference: {"referent": reference()}
        case Tensor():
            return lambda tensor: dict(tensor.__dict__)
        case types.ModuleType():
            return _of_module if _is_users_module(thing) else None
        case staticmethod() | classmethod() | property() | functools.cached_property():
            return _of_descriptor
        case _ if isinstance(thing, _BOUND):
            return lambda method: {"self": method.__self__}
        case functools._lru_cache_wrapper():
            return lambda cached: {"function": cached.__wrapped__}
        case functools.partialmethod():
            return lambda part: dict(vars(part))
        case dict():
            return _of_dict if dict.__len__(thing) <= LONG else _of_long_dict
        case list() | tuple() | deque():
            return _of_sequence if len(thing) <= LONG else _of_long_sequence
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
            return None if _is_library(thing) else _of_class
        case _ if type(thing).__module__ == "builtins":
            return _of_referents
        case _ if _is_opaque(type(thing)):
            return None
    return functools.partial(_of_object, _slots_of(type(thing)))


def _of_referents(thing: Any) -> dict[Any, Any]:
    """Whatever an object of a built-in type holds, as the collector of garbage sees it: views, proxies, iterators."""
    return dict(enumerate(gc.get_referents(thing)))


def _of_objects(array: Any) -> dict[Any, Any]:
    return dict(enumerate(array.flat[:LONG]))


def _of_dict(some: Any) -> dict[Any, Any]:
    """By the base class: a mapping with methods of its own might import, or make, what it is asked for."""
    return dict(dict.items(some))


def _of_sequence(some: Any) -> dict[Any, Any]:
    return dict(enumerate(some))


def _of_long_dict(some: Any) -> dict[Any, Any]:
    """Some of its entries, always the same: what is kept for every record is seen at a few of them."""
    return dict(itertools.islice(dict.items(some), 0, None, dict.__len__(some) // _SOME))


def _of_long_sequence(some: Any) -> dict[Any, Any]:
    return {place: some[place] for place in range(0, len(some), len(some) // _SOME)}


def _of_object(slots: Sequence[Any], thing: Any) -> dict[str, Any]:
    """Attributes and slots, and what the classes of the user's own hold for all their objects."""
    found = dict(getattr(thing, "__dict__", None) or {})
    for slot in slots:
        with suppress(AttributeError):  # it has no value yet
            found.setdefault(slot.__name__, slot.__get__(thing))
    found["__class__"] = type(thing)
    return found


def _slots_of(kind: type) -> list[Any]:
    """Where Python keeps the values of ``__slots__``, whatever they are called."""
    held = [value for one in kind.__mro__ if not _is_opaque(one) for value in vars(one).values()]
    return [value for value in held if type(value) is types.MemberDescriptorType]


def _of_class(kind: type) -> dict[str, Any]:
    """Its values, its methods, which may hold on to something by a closure, and the classes that it is made of."""
    values = {name: value for name, value in vars(kind).items() if not isinstance(value, _OF_CLASSES)}
    return {**values, "bases": kind.__bases__, "metaclass": type(kind)}


def _of_function(function: types.FunctionType) -> dict[str, Any]:
    if _is_library(function):
        return {}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    names = _names_in(function.__code__)
    used = {name: value for name, value in function.__globals__.items() if name in names}
    return {**used, **_of_modules(used, names), **dict(cells), "defaults": function.__defaults__, **function.__dict__,
            "keyword defaults": function.__kwdefaults__, "__code__": function.__code__}  # fmt: skip


@functools.lru_cache(maxsize=4096)
def _names_in(code: types.CodeType) -> frozenset[str]:
    """All names that a function uses, also in functions, classes and comprehensions that are written inside it."""
    inner = (_names_in(one) for one in code.co_consts if isinstance(one, types.CodeType))
    return frozenset(code.co_names).union(*inner)


def _of_modules(used: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """What a function names of the user's own modules: ``statistics.seen`` after ``from project import statistics``."""
    found: dict[str, Any] = {}
    for path, module in used.items():
        if isinstance(module, types.ModuleType) and _is_users_module(module):
            inner = {f"{path}.{name}": value for name, value in vars(module).items() if name in names}
            found |= inner | _of_modules(inner, names)
    return found


def _of_module(module: types.ModuleType) -> dict[str, Any]:
    """Of a module that is held as a value: all of it, since nobody says by which names it is used."""
    return {name: value for name, value in vars(module).items() if not name.startswith("__")}


def _is_users_module(module: types.ModuleType) -> bool:
    return not _is_installed(module.__name__.partition(".")[0])


def _of_descriptor(thing: Any) -> dict[str, Any]:
    """The functions behind a static or class method, or a property."""
    found = (getattr(thing, name, None) for name in ("__func__", "fget", "fset", "func"))
    return {"function": next((one for one in found if one is not None), None)}


def _is_opaque(kind: type) -> bool:
    """Whether the objects of a class are not looked into."""
    module = str(getattr(kind, "__module__", "builtins"))
    if issubclass(kind, _FLAGS) or (kind.__name__.startswith("FSDP") and issubclass(kind, torch.nn.Module)):
        return False  # the latter: a class that fully_shard made of the user's own
    return module.startswith(_OURS) or (module.partition(".")[0] in _OPAQUE and not module.startswith(_HOLDERS))


def _is_library(thing: Any) -> bool:
    """Whether a function or a class is installed: what it holds for all its users is no affair of this one."""
    return _is_installed(str(getattr(thing, "__module__", "builtins")).partition(".")[0])


@functools.cache
def _is_installed(package: str) -> bool:
    """Also for one user alone (``pip install --user``), by the system, or beside a virtual environment."""
    if package in sys.stdlib_module_names or package in ("tacit", "torch"):  # in a source tree too
        return True
    file = Path(getattr(sys.modules.get(package), "__file__", None) or ".")
    homes = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib")]
    return not _PACKAGES.isdisjoint(file.parts) or any(file.is_relative_to(home) for home in homes)


def is_handle(thing: Any) -> bool:
    """An open file, an archive, a connection: it answers from somewhere else, and holds no records itself."""
    return hasattr(thing, "close") and not isinstance(thing, Tensor | np.ndarray | type | types.GeneratorType)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable without a value yet
        return NOTHING


def measurer(thing: Any) -> Callable[[Any], Any] | None:
    """What of a thing itself can be compared, besides its parts; None if it is nothing."""
    match thing:
        case Tensor():
            return _of_tensor
        case np.ndarray():
            return lambda array: array.flat[:: max(1, array.size // LONG)].copy()
        case torch.UntypedStorage() | torch.TypedStorage():
            return _of_storage
        case random.SystemRandom():
            return None
        case random.Random():
            return lambda chance: chance.getstate()
        case np.random.RandomState():
            return lambda chance: str(chance.get_state())
        case np.random.Generator():
            return lambda chance: chance.bit_generator.state
        case np.random.BitGenerator() | np.random.SeedSequence():
            return lambda chance: str(chance.state)
        case torch.Generator():
            return lambda chance: chance.get_state().numpy().tobytes()
        case set() | frozenset() | bytearray():
            return lambda some: some.copy() if len(some) <= LONG else len(some)
        case dict() | list() | tuple() | deque():
            return lambda some: len(some) if len(some) <= LONG else _numbers_of(some)
        case types.GeneratorType():
            return lambda running: None if running.gi_frame is None else running.gi_frame.f_lasti
        case itertools.count() | itertools.repeat():
            return repr
        case itertools.cycle():
            return lambda cycle: (length_hint(cycle.__reduce__()[1][0], -1), len(cycle.__reduce__()[2][0]))
        case memoryview():
            return lambda view: view.tobytes() if view.nbytes <= _LONGEST else None
        case queue.SimpleQueue():
            return lambda waiting: waiting.qsize()
        case io.StringIO() | io.BytesIO():
            return lambda buffer: None if buffer.closed else (buffer.tell(), buffer.getvalue())
        case ContextVar():
            return lambda variable: variable.get(NOTHING)
        case Iterator() if type(thing).__module__ in ("builtins", "itertools"):
            return lambda rest: length_hint(rest, -1)
        case _ if (kind := f"{type(thing).__module__}.{type(thing).__name__}") in _SAID_BY:
            return _SAID_BY[kind]
        case _ if _has_memory(thing):
            return lambda some: memoryview(some).tobytes() if memoryview(some).nbytes <= _LONGEST else None
    return None


# Objects of modules that need not be loaded, by what they say of themselves.
_SAID_BY: dict[str, Callable[[Any], Any]] = {
    "_thread.lock": repr,
    "_thread.RLock": repr,
    "decimal.Context": repr,
    "sqlite3.Connection": lambda connection: connection.total_changes,
}


def _has_memory(thing: Any) -> bool:
    """Whether it is an array of bytes: array.array, ctypes, mmap."""
    try:
        memoryview(thing).release()
    except (TypeError, ValueError, BufferError):
        return False
    return True


def _of_storage(storage: Any) -> Any:
    storage = storage._untyped_storage if isinstance(storage, torch.TypedStorage) else storage
    if storage.device.type != "cpu" or storage.nbytes() > _LONGEST:
        return None
    return torch.empty(0, dtype=torch.uint8).set_(storage).numpy().tobytes()


def _of_tensor(tensor: Tensor) -> tuple[int | None, int, int | None, bool]:
    if tensor.is_inference():
        return None, id(None), None, False
    grad = tensor.grad if tensor.is_leaf else None
    return tensor._version, id(grad), None if grad is None else grad._version, tensor.requires_grad


def _numbers_of(thing: Any) -> list[int]:
    """Which objects a long container holds, of a very long one some of them."""
    values = thing.values() if isinstance(thing, dict) else thing
    return [len(thing), *map(id, itertools.islice(values, 0, None, 1 + len(thing) // _LONGEST))]


def _put_back_entries(thing: set[Any], before: Any) -> None:
    if not isinstance(before, int):
        thing.clear()
        thing.update(before)


def _put_back_bytes(thing: bytearray, before: Any) -> None:
    if not isinstance(before, int):
        thing[:] = before  # which a view of it allows, if it is as long as before


def _put_back_flag(tensor: Tensor, before: Any) -> None:
    if tensor.is_leaf and tensor.requires_grad != before[3]:
        tensor.requires_grad_(before[3])


PUT_BACK: dict[type, Callable[[Any, Any], object]] = {
    random.Random: lambda thing, before: thing.setstate(before),
    np.random.Generator: lambda thing, before: setattr(thing.bit_generator, "state", before),
    torch.Generator: lambda thing, before: thing.set_state(torch.frombuffer(bytearray(before), dtype=torch.uint8)),
    np.ndarray: lambda thing, before: np.copyto(thing, before.reshape(thing.shape)) if thing.size <= LONG else None,
    set: _put_back_entries,
    bytearray: _put_back_bytes,
    **dict.fromkeys((Tensor, torch.nn.Parameter), _put_back_flag),
}


def set_part(thing: Any, part: Any, before: Any) -> None:
    """Bind a part to what it was, where that can be done."""
    match thing:
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
            _set_entry(vars(functools.reduce(getattr, path[1:], thing.__globals__[path[0]])), name, before)
        case _:
            attributes = getattr(thing, "__dict__", None)
            slot = next((slot for slot in _slots_of(type(thing)) if slot.__name__ == part), None)
            if slot is not None:
                slot.__delete__(thing) if before is NOTHING else slot.__set__(thing, before)
            elif isinstance(attributes, dict) and (part in attributes or before is not NOTHING):
                _set_entry(attributes, part, before)
            elif before is not NOTHING:
                with suppress(AttributeError, TypeError):
                    setattr(thing, part, before)


def _set_entry(entries: dict[Any, Any], key: Any, before: Any) -> None:
    if before is NOTHING:
        entries.pop(key, None)
    else:
        entries[key] = before


def same(one: Any, other: Any) -> bool:
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
            return len(one) == len(other) and all(map(same, one, other))
        case dict() | set() | frozenset() | bytearray() | int() | float() | complex() | str() | bytes():
            return bool(one == other)
        case types.MethodType():
            return one.__self__ is other.__self__ and one.__func__ is other.__func__
    return isinstance(one, PLAIN_VALUES) and bool(one == other)
