"""What belongs to installed libraries, and what of it is a user's affair all the same.

A library keeps things for all its users, and caches that change without any effect on what it answers: neither is
looked into. But what a user's function itself names there (``torch.seen = ...``) is the user's.
"""

import functools
import sys
import sysconfig
import threading
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

# Their objects keep caches of their own in attributes, which change without any effect on what they answer.
_OPAQUE = frozenset({
    "builtins", "torch", "threading", "logging", "multiprocessing", "pathlib", "gzip", "zipfile", "tarfile", "sqlite3",
    "lmdb", "pandas", "polars", "pyarrow", "datasets", "h5py", "zarr", "PIL", "lightning", "pytorch_lightning",
})  # fmt: skip
# Of ours a module may come to hold:
_OURS = ("tacit.training", "tacit.distributed", "tacit.isolation", "tacit.integrations", "tacit.ledger")
# Whose objects hold a user's:
_HOLDERS = (
    "torch.nn", "torch.optim", "torch.utils.data", "torch.distributions", "torch.amp", "torch.ao",
    "multiprocessing.sharedctypes",
)  # fmt: skip
_FLAGS = (threading.Event, threading.Condition, threading.Semaphore, threading.Barrier)
_PACKAGES = {"site-packages", "dist-packages"}
_HOMES = (types.ModuleType, types.FunctionType, type)
_DESCRIPTORS = (property, staticmethod, classmethod, types.MemberDescriptorType, types.GetSetDescriptorType)


def is_opaque(kind: type) -> bool:
    """Whether the objects of a class are not looked into."""
    module = str(getattr(kind, "__module__", "builtins"))
    if issubclass(kind, _FLAGS) or (kind.__name__.startswith("FSDP") and issubclass(kind, torch.nn.Module)):
        return False  # the latter: a class that fully_shard made of the user's own
    return module.startswith(_OURS) or (module.partition(".")[0] in _OPAQUE and not module.startswith(_HOLDERS))


def is_users_module(module: types.ModuleType) -> bool:
    return not is_installed(module.__name__.partition(".")[0])


def is_library(thing: Any) -> bool:
    """Whether a function, a class or a module is installed.

    A function is a user's if either says so: whose module it names, which ``functools.wraps`` takes from another, or
    where it was written, which is a library's for what ``torch.no_grad()`` makes of a user's.
    """
    if isinstance(thing, types.ModuleType):
        return is_installed(thing.__name__.partition(".")[0])
    if isinstance(thing, types.FunctionType) and not _is_of_library(thing.__globals__.get("__name__")):
        return False
    return _is_of_library(getattr(thing, "__module__", "builtins"))


def _is_of_library(module: Any) -> bool:
    return is_installed(str(module).partition(".")[0])


def patches_of(home: Any) -> dict[str, types.FunctionType]:
    """The functions of a user's own that were put in place of a library's."""
    held = {name: value for name, value in vars(home).items() if isinstance(value, types.FunctionType)}
    return {name: value for name, value in held.items() if not is_library(value)}


@functools.cache
def is_installed(package: str) -> bool:
    """Also for one user alone (``pip install --user``), by the system, or beside a virtual environment."""
    if package == "__main__":  # what is run, also by a profiler or a test runner that stands in its place
        return False
    if package in sys.stdlib_module_names or package in ("tacit", "torch"):  # in a source tree too
        return True
    file = Path(getattr(sys.modules.get(package), "__file__", None) or ".")
    homes = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib")]
    return not _PACKAGES.isdisjoint(file.parts) or any(file.is_relative_to(home) for home in homes)


def imported(names: frozenset[str], package: str | None) -> dict[str, types.ModuleType]:
    """The modules that a function names, and may therefore import when it runs."""
    found = {name: sys.modules[name] for name in names if name in sys.modules}
    if package:
        found |= {name: sys.modules[f"{package}.{name}"] for name in names if f"{package}.{name}" in sys.modules}
    return {name: module for name, module in found.items() if isinstance(module, types.ModuleType)}


Home = tuple[str, Mapping[str, Any], bool]  # a path, what is there, and whether it is a library's


def homes_of(reached: dict[str, Any], names: frozenset[str]) -> list[Home]:
    """Where a function keeps things, or finds them, by the names that it uses.

    In modules of the user's own, and in modules, classes and functions that are installed.
    """
    found: list[Home] = []
    homes = [(path, home) for path, home in reached.items() if isinstance(home, _HOMES)]
    seen: set[int] = set()
    for path, home in homes:  # grows meanwhile
        of_user = isinstance(home, types.ModuleType) and is_users_module(home)
        if id(home) not in seen and (of_user or is_library(home)):
            seen.add(id(home))
            entries = vars(home)
            found.append((path, entries, not of_user))
            homes += [(f"{path}.{name}", entries[name]) for name in names if isinstance(entries.get(name), _HOMES)]
    return found


def is_a_users(value: Any) -> bool:
    """Whether what a library has is a user's: a function in place of its own, or what is no code at all."""
    if isinstance(value, types.FunctionType):
        return not is_library(value)
    return not callable(value) and not isinstance(value, _DESCRIPTORS)
