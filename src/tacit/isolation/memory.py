"""What any Python object remembers: its parts by name, and whether they are as they were.

Parts are listed by the base classes of Python, so that no code of the object's own runs. What libraries keep for all
their users, and objects that keep caches of their own, are not looked into.
"""

import functools
import gc
import itertools
import sys
import sysconfig
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from operator import is_
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from tacit.isolation.facts import LONG, NOTHING, PLAIN_VALUES, PUT_BACK, measurer, same

OnDemand = Literal["handles", "data"] | None
_SOME = 64  # entries of a longer one that are looked into
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
# Whose objects hold a user's:
_HOLDERS = ("torch.nn", "torch.optim", "torch.utils.data", "multiprocessing.sharedctypes")
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
        case set() | frozenset() if len(thing) > LONG:
            return None  # its entries have no order by which some of them could be looked into
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


class Kept:
    """What one thing remembers: its parts, and what of itself can be compared; and by which name it was reached."""

    __slots__ = ("fact", "look", "measure", "name", "owner", "parts", "thing")

    def __init__(self, thing: Any, name: Any, owner: "Kept | None") -> None:
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

    def changes(self, on_demand: OnDemand) -> list[str]:
        """The names of what is not as it was, which is put back on the way, but for handles that were opened."""
        found = []
        fact = None if self.measure is None else self.measure(self.thing)
        if fact is not self.fact and not same(self.fact, fact):
            if type(self.thing) in PUT_BACK:
                PUT_BACK[type(self.thing)](self.thing, self.fact)
            found.append(self.path())
        now = {} if self.look is None else self.look(self.thing)
        return found if _identical(self.parts, now) else [*found, *self._other_parts(now, on_demand)]

    def _other_parts(self, now: dict[Any, Any], on_demand: OnDemand) -> Iterator[str]:
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


def all_kept(owners: dict[str, Any]) -> list[Kept]:
    """Everything that can be reached by name, each once."""
    found: list[Kept] = []
    seen: set[int] = set()  # the things are kept alive, so that no number stands for two

    def keep(thing: Any, name: Any, owner: Kept | None) -> None:
        if not isinstance(thing, PLAIN_VALUES) and id(thing) not in seen and not isinstance(thing, SKIPPED):
            if (
                isinstance(thing, types.ModuleType)
                and owner is not None
                and isinstance(owner.thing, types.FunctionType)
            ):
                return  # a function says itself what it names of a module
            seen.add(id(thing))
            found.append(Kept(thing, name, owner))

    for name, owner in owners.items():
        keep(owner, name, None)
    for kept in found:  # grows meanwhile
        for name, part in kept.parts.items():
            if name not in OF_PYTORCH:
                keep(part, name, kept)
    return found


def all_as_before(kept: Iterable[Kept]) -> bool:
    """Whether all have the very same parts."""
    for one in kept:  # noqa: SIM110 (twice as fast as a generator, at every step)
        if not one.is_as_before():
            return False
    return True


def all_unchanged(kept: Iterable[Kept], exempt: set[int]) -> bool:
    """Parts and facts, but for the facts of some tensors."""
    for one in kept:  # noqa: SIM110
        if not (one.is_as_before() and one.has_same_fact(exempt)):
            return False
    return True


def changes_of(kept: Iterable[Kept], on_demand: OnDemand) -> list[str]:
    """The names of what is not as it was, which is put back."""
    return [change for one in kept for change in one.changes(on_demand)]
