"""What of an object itself can be compared, besides its parts, and how it is put back."""

import io
import itertools
import queue
import random
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from operator import length_hint
from typing import Any

import numpy as np
import torch
from torch import Tensor

LONG, _LONGEST = 4096, 1 << 16  # entries of a container that are looked into, and that are compared at all
_WHOLE = 1 << 20  # entries of what nobody else watches over that are compared
NOTHING = object()
PLAIN_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
PLAIN_VALUES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, np.generic)


def measurer(thing: Any) -> Callable[[Any], Any] | None:
    """What of a thing itself can be compared, besides its parts; None if it is nothing."""
    match thing:
        case np.ndarray():
            return _whole if LONG < thing.size <= _WHOLE and not can_be_locked(thing) else _some_of_array
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
        case dict() | list() | deque():
            return len if len(thing) <= LONG else _numbers_of
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
        case io.IOBase():
            return _written_so_far
        case ContextVar():
            return lambda variable: variable.get(NOTHING)
        case Iterator() if type(thing).__module__ in ("builtins", "itertools"):
            return lambda rest: length_hint(rest, -1)
        case _ if hasattr(type(thing), "hexdigest"):
            return lambda digest: digest.digest()
        case _ if (kind := f"{type(thing).__module__}.{type(thing).__name__}") in _SAID_BY:
            return _SAID_BY[kind]
        case _ if _has_memory(thing):
            return lambda some: memoryview(some).tobytes() if memoryview(some).nbytes <= _LONGEST else None
    return None


def _some_of_array(array: Any) -> Any:
    return array.flat[:: max(1, array.size // LONG)].copy()


def _whole(array: Any) -> int:
    return hash(array.tobytes())


def can_be_locked(array: Any) -> bool:
    """Whether an array that is made read-only can be made writeable again: so is whoever owns its memory."""
    owner = array
    while isinstance(owner, np.ndarray) and not owner.flags.owndata:
        owner = owner.base
    if isinstance(owner, np.ndarray):
        return bool(owner.flags.writeable)
    try:
        with memoryview(owner) as memory:
            return not memory.readonly
    except TypeError:  # a tensor, which says nothing of its memory
        return False


def of_inference(tensor: Tensor) -> int:
    """Tensors of ``torch.inference_mode`` count no versions: what they hold is compared, of large ones some of it."""
    flat = tensor.detach().cpu().reshape(-1)
    flat = flat[:: max(1, len(flat) // _WHOLE)].contiguous()
    return hash(flat.view(torch.uint8).numpy().tobytes())


# Objects of modules that need not be loaded, by what they say of themselves.
_SAID_BY: dict[str, Callable[[Any], Any]] = {
    "_thread.lock": repr,
    "_thread.RLock": repr,
    "decimal.Context": repr,
    "sqlite3.Connection": lambda connection: connection.total_changes,
    "pandas.core.frame.DataFrame": lambda frame: frame.to_json() if frame.size <= LONG else None,
    "pandas.core.series.Series": lambda series: series.to_json() if series.size <= LONG else None,
}


def _written_so_far(file: Any) -> int | None:
    """Where the writing of an open file stands; people read what is printed, and no code does."""
    if file in (sys.stdout, sys.stderr) or file.closed or not file.writable() or not file.seekable():
        return None
    return int(file.tell())


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
