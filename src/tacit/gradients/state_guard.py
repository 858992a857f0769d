"""Nothing but the noisy sum leaves: what the losses change in the model, or in what they hold on to, is put back.

Data under vmap cannot be written into a parameter or a buffer (``isolation``). What is left is Python: an attribute
that is replaced (``self.mean = ...``), a list that collects, a number in a closure. All of these are compared around
every call, restored, and a change is refused by name: it would carry one record to the next, or out of the run.

What cannot be seen from here, such as a global of another module or a file, is the user's own affair
(docs/pitfalls.md).
"""

import types
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor, nn

from tacit.errors import InputError
from tacit.losses import ModelLosses

_MOST = 1 << 16  # entries of an array or a container that are copied
_DEPTH = 3
_OF_PYTORCH = ("_flat_weights", "_flat_weight_refs")  # recurrent layers keep them in step with swapped parameters


class StateGuard:
    """Compares and restores around a ``with`` block.

    Example:
        >>> model = nn.Linear(1, 1)
        >>> with StateGuard(ModelLosses(model, lambda model, x: model(x)[:, 0])):
        ...     model.seen = 3
        Traceback (most recent call last):
        ...
        tacit.errors.InputError: the losses changed model.seen; ...
    """

    def __init__(self, losses: Any) -> None:
        self._places = list(_holders(losses))

    def __enter__(self) -> None:
        self._before = [(name, holder, _copied(holder, _DEPTH)) for name, holder in self._places]

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        changed = [change for name, holder, before in self._before if (change := _restore(name, holder, before))]
        self._before = []
        if changed and error is None:
            raise InputError(
                f"the losses changed {changed[0]}; what sees private records may leave nothing behind, "
                "so it was put back: return it as a loss, or leave it out"
            )


def _holders(losses: Any) -> Iterator[tuple[str, Any]]:
    """Everything that keeps state and that the losses can reach by name."""
    function = losses
    if isinstance(losses, ModelLosses):
        for name, module in losses.model.named_modules():
            yield f"model.{name}" if name else "model", module.__dict__
        function = losses.user_losses
    yield from _of_function(function, "losses", set())


def _of_function(function: Any, name: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if id(function) in seen or isinstance(function, nn.Module | type):
        return
    seen.add(id(function))
    if isinstance(function, types.MethodType):
        yield from _of_function(function.__func__, name, seen)
        function = function.__self__
    if isinstance(function, types.FunctionType):
        yield f"{name}.__dict__", function.__dict__
        yield f"the defaults of {name}", list(function.__defaults__ or ())
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            yield variable, cell
            with_value = _content(cell)
            if isinstance(with_value, types.FunctionType | types.MethodType):
                yield from _of_function(with_value, variable, seen)
        used = set(function.__code__.co_names)
        values = {key: value for key, value in function.__globals__.items() if key in used}
        yield f"the globals of {name}", _Globals(function.__globals__, tuple(values))
        for key, value in values.items():
            if isinstance(value, types.FunctionType) and value.__module__ == function.__module__:
                yield from _of_function(value, key, seen)
    elif hasattr(function, "__dict__") and not isinstance(function, nn.Module | types.ModuleType):
        yield name, function.__dict__


class _Globals:
    """The variables of a module that a function names."""

    def __init__(self, variables: dict[str, Any], names: tuple[str, ...]) -> None:
        self.variables, self.names = variables, names


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable without a value yet
        return _NOTHING


_NOTHING = object()


def _same(one: Any, other: Any) -> bool:
    """The same thing, an equal number or word, or a list of such."""
    if one is other:
        return True
    if isinstance(one, weakref.ref) and isinstance(other, weakref.ref):
        return True  # carries nothing; recurrent layers make them anew when parameters are swapped
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(_same(*pair) for pair in zip(one, other, strict=True))
    return isinstance(one, int | float | str | bytes | complex) and bool(one == other)


def _copied(value: Any, depth: int) -> Any:
    """What is needed to see a change, and to undo it."""
    match value:
        case Tensor():
            return value._version, _version_of_grad(value), value.grad
        case types.CellType():
            content = _content(value)
            return content, _copied(content, depth)
        case _Globals():
            return {name: (value.variables[name], _copied(value.variables[name], depth)) for name in value.names}
        case dict() if depth:
            return {key: (part, _copied(part, depth - 1)) for key, part in value.items()}
        case list() | deque() if depth and len(value) <= _MOST:
            return [(part, _copied(part, depth - 1)) for part in value]
        case set() | bytearray() if len(value) <= _MOST:
            return value.copy()
        case np.ndarray() if value.size <= _MOST:
            return value.copy()
    return None


def _version_of_grad(tensor: Tensor) -> int | None:
    return None if not tensor.is_leaf or tensor.grad is None else tensor.grad._version


def _restore(name: str, value: Any, before: Any) -> str | None:
    """Put a value back to what it was; the name of the first thing that had changed."""
    match value:
        case Tensor():
            version, version_of_grad, grad = before
            if value.is_leaf and value.grad is not grad:
                value.grad = grad
                return f"{name}.grad"
            return name if (value._version, _version_of_grad(value)) != (version, version_of_grad) else None
        case types.CellType():
            return _restore_cell(name, value, before)
        case _Globals():
            return _restore_parts(name, value.variables, before, only=value.names)
        case dict() if before is not None:
            return _restore_parts(name, value, before)
        case list() | deque() if before is not None:
            return _restore_list(name, value, before)
        case set() | bytearray() if before is not None and value != before:
            value.clear()
            value.update(before) if isinstance(value, set) else value.extend(before)
            return name
        case np.ndarray() if before is not None and value.tobytes() != before.tobytes():
            value[...] = before
            return name
    return None


def _restore_cell(name: str, cell: Any, before: tuple[Any, Any]) -> str | None:
    content, inner = before
    if not _same(_content(cell), content):
        if content is _NOTHING:
            del cell.cell_contents
        else:
            cell.cell_contents = content
        return name
    return _restore(name, content, inner)


def _restore_parts(
    name: str, holder: dict[Any, Any], before: dict[Any, tuple[Any, Any]], only: tuple[str, ...] | None = None
) -> str | None:
    found = None
    for key in [key for key in holder if key not in before] if only is None else ():
        del holder[key]
        found = found or _join(name, key)
    for key, (part, inner) in before.items():
        if key not in holder or not _same(holder[key], part):
            holder[key] = part
            found = found or (None if key in _OF_PYTORCH else _join(name, key))
        inside = _restore(_join(name, key), part, inner)
        found = found or (None if key in _OF_PYTORCH else inside)
    return found


def _restore_list(name: str, holder: Any, before: list[tuple[Any, Any]]) -> str | None:
    found = None
    if len(holder) != len(before) or any(not _same(one, part) for one, (part, _) in zip(holder, before, strict=True)):
        holder.clear()
        holder.extend(part for part, _ in before)
        found = name
    for part, inner in before:
        inside = _restore(name, part, inner)
        found = found or inside
    return found


def _join(name: str, key: Any) -> str:
    """A module keeps its tensors in dictionaries of its own, which nobody wants to read of."""
    return name if key in ("_parameters", "_buffers", "_modules") else f"{name}.{key}"
