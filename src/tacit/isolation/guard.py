"""What a user's code remembers from one record to the next is compared around every call, put back and refused.

A running mean in a module, a list that collects, a counter in a closure, a generator of one's own: each lets one record
decide what happens to the others, or carries data out of the run without noise, and no clip bounds that. So everything
that can be reached by name from the model, the losses, a data set or a collate_fn is looked at before and after:
attributes, slots, containers, closures, defaults, globals that a function names, also those of the user's other
modules, classes of the user's own, hooks, generators and iterators.

Files, processes and the memory at large are refused by ``surroundings``. What cannot be reached by name is not seen
here. Where it changes losses within a step, ``clipped_sum`` sees it by computing some of them again; beyond that it is
the user's own affair (docs/explanation/pitfalls.md).
"""

import functools
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from operator import is_, itemgetter
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from tacit.errors import LossesError
from tacit.isolation.facts import (
    LONG,
    NOTHING,
    PLAIN_TENSORS,
    PLAIN_VALUES,
    PUT_BACK,
    can_be_locked,
    measurer,
    of_inference,
    same,
)
from tacit.isolation.libraries import is_library
from tacit.isolation.parts import SKIPPED, Parts, looker, named, names_in, of_library_class, set_part
from tacit.isolation.settings import put_settings_back, settings_now

OnDemand = Literal["handles", "data"] | None
_CONTAINERS = {dict, OrderedDict, list, set}  # that can be asked whether they are empty without running other code
_UNCHANGING = (tuple, frozenset)  # what they hold is looked into, but stays theirs
_COPIED = 1 << 16  # bytes of a tensor of which a copy is kept
_NO_CACHES = {"_parameters", "_buffers", "_modules"}  # of a module: what is trained and saved is declared beforehand
_RUN = ("forward", "__call__", "_call_impl", "_wrapped_call_impl", "_conv_forward", "__getattr__")
_OF_PYTORCH = {"_flat_weights", "_flat_weight_refs"}  # recurrent layers keep them in step with swapped parameters


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
        self._layers: list[type] = []
        self._code = Entries(
            (), _is_run
        )  # what installed layers run, which a user may replace: nn.Linear.forward = mine

    def __enter__(self) -> "StateGuard":
        self.blocks += 1
        full = self._unless_empty()
        if full and _have_same_parts(full):  # as at the step before, which is quicker
            for kept in full:
                if kept.measure is not None:
                    fact = kept.measure(kept.thing)
                    if kept.copy is not None and fact != kept.fact:
                        kept.copy = _copied(kept.thing)
                    kept.fact = fact
        else:
            found = all_kept(self._owners)
            self._layers = [kept.thing for kept in found if kept.look is of_library_class and _is_layer(kept.thing)]
            self._code = Entries(self._layers, _is_run)
            self._kept = [kept for kept in found if kept.can_change]
            self._empty = [kept.thing for kept in self._kept if type(kept.thing) in _CONTAINERS and not kept.thing]
            self._full = [kept for kept in self._kept if type(kept.thing) not in _CONTAINERS or kept.thing]
            self._arrays = [kept.thing for kept in self._kept if isinstance(kept.thing, np.ndarray)]
        self._read_only = sorted(filter(_is_large, self._arrays), key=_views_below)
        for array in self._read_only:
            array.flags.writeable = False
        self._settings = settings_now()
        if not self._code.are_the_same():
            self._code = Entries(self._layers, _is_run)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        changed = self.put_back()
        if changed and error is None:
            raise LossesError(
                f"{changed[0]} changed while records were computed; what sees private records may keep nothing, or one "
                "of them could change the others: it was put back; return values from the model in place of keeping "
                "them, fill caches beforehand, and draw chance from torch, numpy or random, which are seeded for every "
                "record"
            )

    def _unless_empty(self) -> "list[Kept]":
        """All that is kept, but for the containers that were empty if they still are: most are, three for a module."""
        return self._kept if any(self._empty) else self._full

    def is_unchanged(self, but: Iterable[torch.Tensor]) -> bool:
        """Whether all is as it was in the last block, but for the numbers in some tensors, which are trained."""
        trained, full = set(map(id, but)), self._unless_empty()
        same_code = bool(full) and self._code.are_the_same()
        return same_code and _have_same_parts(full) and _have_same_facts(full, trained)

    def additions(self) -> list[tuple[dict[Any, Any], Any, Any]]:
        """What attributes and dictionaries have come to hold since, where there was nothing or None."""
        holders = [kept for kept in self._kept if type(kept.thing) is dict and kept.name not in _NO_CACHES]
        return [
            (kept.thing, key, value)
            for kept in holders
            for key, value in kept.thing.items()
            if isinstance(kept.parts, dict) and kept.parts.get(key) is None and value is not None
        ]

    def put_back(self) -> list[str]:
        """Undo what changed; its names, the shortest first."""
        for array in self._read_only:
            array.flags.writeable = True
        full = self._unless_empty()
        same_all = full and _have_same_parts(full) and _have_same_facts(full)
        found = [] if same_all else [change for kept in full for change in kept.changes(self._on_demand)]
        if found:
            self._kept = self._full = []
        found += put_settings_back(self._settings)
        return sorted(map(_readable, found), key=lambda name: name.count("."))


class Kept:
    """What one thing remembers: its parts, and what of itself can be compared; and by which name it was reached."""

    __slots__ = ("copy", "fact", "look", "measure", "name", "owner", "parts", "thing")

    def __init__(self, thing: Any, name: Any, owner: "Kept | None") -> None:
        self.thing, self.name, self.owner = thing, name, owner
        self.look = looker(thing)
        self.measure = _measurer(thing, name)
        self.parts: Parts = {} if self.look is None else self.look(thing)
        self.fact = None if self.measure is None else self.measure(thing)
        self.copy = _copied(thing) if isinstance(thing, Tensor) else None

    @property
    def can_change(self) -> bool:
        is_looked_into = self.look is not None and self.look is not of_library_class
        return (is_looked_into or self.measure is not None) and type(self.thing) not in _UNCHANGING

    def path(self) -> str:
        return str(self.name) if self.owner is None else f"{self.owner.path()}.{self.name}"

    def changes(self, on_demand: OnDemand) -> Iterator[str]:
        """The names of what is not as it was, which is put back on the way, but for handles that were opened."""
        if self.measure is not None and not same(self.fact, self.measure(self.thing)):
            if self.copy is not None:
                _put_back_content(self.thing, self.copy)
            if type(self.thing) in PUT_BACK:
                PUT_BACK[type(self.thing)](self.thing, self.fact)
            yield self.path()
        if self.look is None:
            return
        were, are = named(self.look, self.parts), named(self.look, self.look(self.thing))
        for part in [*were, *(part for part in are if part not in were)]:
            before, after = were.get(part, NOTHING), are.get(part, NOTHING)
            fresh = on_demand is not None and (before is None or before is NOTHING)
            if same(before, after) or (fresh and _is_handle(after)):
                continue
            set_part(self.thing, part, before)
            loaded = fresh and on_demand == "data" and not isinstance(after, PLAIN_VALUES)
            if part not in _OF_PYTORCH and not loaded:
                yield f"{self.path()}.{part}"


def _is_run(name: str, _: object) -> bool:
    return name in _RUN


def _is_layer(kind: type) -> bool:
    return issubclass(kind, torch.nn.Module)


def _is_handle(thing: Any) -> bool:
    """An open file, an archive, a connection: it answers from somewhere else, and holds no records itself."""
    return hasattr(thing, "close") and not isinstance(thing, Tensor | np.ndarray | type | types.GeneratorType)


def _measurer(thing: Any, name: Any) -> Callable[[Any], Any] | None:
    if isinstance(thing, dict) and str(name) == "__dict__":
        return None  # attributes: their names say more than their number
    return _of_tensor if isinstance(thing, Tensor) else measurer(thing)


def _of_tensor(tensor: Tensor) -> tuple[int | None, int, int | None, bool]:
    if tensor.is_inference():
        return of_inference(tensor), id(None), None, False
    grad = tensor.grad if tensor.is_leaf else None
    return tensor._version, id(grad), None if grad is None else grad._version, tensor.requires_grad


def _copied(tensor: Tensor) -> Tensor | None:
    """A copy of a small tensor that is not trained: a buffer that was written into is put back."""
    is_plain = type(tensor) in PLAIN_TENSORS and tensor.layout == torch.strided and not tensor.is_nested
    small = is_plain and not tensor.requires_grad and tensor.nbytes <= _COPIED
    return tensor.detach().clone() if small else None


def _put_back_content(tensor: Tensor, before: Tensor) -> None:
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        if tensor.shape == before.shape and tensor.dtype == before.dtype:
            tensor.copy_(before)
        else:
            tensor.data = before


def all_kept(owners: dict[str, Any]) -> list[Kept]:
    """Everything that can be reached by name, each once."""
    found: list[Kept] = []
    seen: set[int] = set()  # the things are kept alive, so that no number stands for two

    def keep(thing: Any, name: Any, owner: Kept | None) -> None:
        plain = isinstance(thing, PLAIN_VALUES) and not type(thing).__dictoffset__
        if plain or id(thing) in seen or isinstance(thing, SKIPPED):
            return
        if isinstance(thing, types.ModuleType) and owner is not None and isinstance(owner.thing, types.FunctionType):
            return  # a function says itself what it names of a module
        seen.add(id(thing))
        found.append(Kept(thing, name, owner))

    for name, owner in owners.items():
        keep(owner, name, None)
    for kept in found:  # grows meanwhile
        for name, part in named(kept.look, kept.parts).items():
            if name not in _OF_PYTORCH:
                keep(part, name, kept)
    return found


def _have_same_parts(kept: Iterable[Kept]) -> bool:
    """Whether all have the very same parts. In one loop, without calls of ours: it runs twice at every step."""
    for one in kept:
        if one.look is None:
            continue
        before, now = one.parts, one.look(one.thing)
        if isinstance(before, dict):
            if list(before) != list(now):
                return False
            before, now = before.values(), now.values()  # type: ignore[assignment,union-attr]
        if len(before) != len(now) or not all(map(is_, before, now)):
            return False
    return True


def _have_same_facts(kept: Iterable[Kept], exempt: set[int] = frozenset()) -> bool:  # type: ignore[assignment]
    """Whether what can be compared of all, but for some tensors, is as it was."""
    for one in kept:
        if one.measure is None or id(one.thing) in exempt:
            continue
        fact = one.measure(one.thing)
        if fact is not one.fact and (type(fact) is not tuple or fact != one.fact) and not same(one.fact, fact):
            return False
    return True


def _is_large(array: Any) -> bool:
    """Too large to be compared entry by entry; it is made read-only instead."""
    return bool(array.size > LONG and array.flags.writeable and can_be_locked(array))


def _views_below(array: Any) -> int:
    """How many arrays this one is a view of; they are made writeable again before it."""
    return 0 if not isinstance(array.base, np.ndarray) else 1 + _views_below(array.base)


def _readable(name: str) -> str:
    for hidden in (".__dict__", "._parameters", "._buffers", "._modules", ".value"):
        name = name.replace(hidden, "")
    return name.replace(".attribute ", ".")  # of TorchScript


# What a user put in place of PyTorch's own, or around it


class Entries:
    """What stands at some names of modules and classes, looked at in one call for each of them.

    A name that is new, such as a method that was inherited until now, shows by the number of all.
    """

    def __init__(self, homes: Sequence[Any], is_meant: Callable[[str, Any], bool]) -> None:
        self.names = [[name for name, value in vars(home).items() if is_meant(name, value)] for home in homes]
        self._looks = [
            (vars(home), itemgetter("__doc__", *names)) for home, names in zip(homes, self.names, strict=True)
        ]
        self._seen = self._now()

    def are_the_same(self) -> bool:
        return self._now() == self._seen

    def _now(self) -> list[Any]:
        with suppress(KeyError):  # one is gone
            return [(look(held), len(held)) for held, look in self._looks]
        return []


_OF_MANY_RECORDS = (
    *("tacit.gradients", "tacit.isolation", "tacit.kernels", "tacit.layers", "tacit.likelihoods", "tacit.losses"),
    *("tacit.mechanisms", "tacit.training"),
)
_PRINTING = ("__repr__", "__str__", "__format__")


def refuse_foreign_watchers() -> None:
    """Refuse what would see records together, and could mix or keep them: modes and hooks of a user's own around the
    private step, and functions that were put in place of PyTorch's where this package calls them.

    Modes of PyTorch itself (a default device, checkpoints, offloading) see tensors, and remember nothing.
    """
    _called_here().check()
    modes = [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]
    if torch._C._len_torch_dispatch_stack():
        modes += _get_current_dispatch_mode_stack()
    found = [type(mode).__name__ for mode in modes if not is_library(type(mode))]
    hooks: Any = torch._C._autograd._top_saved_tensors_default_hooks(True)
    found += [hook.__name__ for hook in hooks or () if not is_library(hook)]
    if found:
        raise LossesError(f"{found[0]} is active around the private step and would see records together; leave it")


_HOMES: Sequence[Any] = (torch, torch.Tensor, torch.nn.functional, torch.linalg)


class _Called:
    """Functions of PyTorch that compute many records at once, by the names under which they are called."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._approved: Entries | None = None

    def check(self) -> None:
        """Refuse a replaced one. It is asked at every step, and nearly always all is as it was."""
        if self._approved is not None and self._approved.are_the_same():
            return
        found = Entries(_HOMES, self._is_called)
        for home, names in zip(_HOMES, found.names, strict=True):
            for name in names:
                value = vars(home)[name]
                if isinstance(value, types.FunctionType) and not _is_of_torch(value):
                    raise LossesError(
                        f"{home.__name__}.{name} was replaced by {value.__module__}.{value.__name__}, which would see "
                        "records together: put PyTorch's own back, and call yours in the model or the losses"
                    )
        self._approved = found

    def _is_called(self, name: str, value: Any) -> bool:
        """By name, or by an operator such as ``tensor[0]``."""
        is_named = name in self._names or (name.startswith("__") and name not in _PRINTING)
        return is_named and callable(value) and not isinstance(value, type)


def _is_of_torch(function: types.FunctionType) -> bool:
    return str(function.__globals__.get("__name__")).startswith("torch")


@functools.cache
def _called_here() -> _Called:
    rooms = [module for name, module in sys.modules.items() if name.startswith(_OF_MANY_RECORDS)]
    return _Called(frozenset().union(*(names_in(code) for room in rooms for code in _codes_of(room, room.__name__))))


def _codes_of(space: Any, module: str) -> Iterator[Any]:
    """The code of all functions and classes that a module defines."""
    for value in vars(space).values():
        for name in ("__func__", "fget", "func", "__wrapped__"):
            value = getattr(value, name, None) or value
        if getattr(value, "__module__", None) != module:
            continue
        if isinstance(value, types.FunctionType):
            yield value.__code__
        elif isinstance(value, type):
            yield from _codes_of(value, module)
