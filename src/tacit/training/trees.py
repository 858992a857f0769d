"""A state as tensors and JSON: what a checkpoint can hold without ever running code when it is read."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor

from tacit.errors import InputError

Json = Any


def take_apart(tree: Any, tensors: dict[str, Tensor]) -> Json:
    """The tree as JSON, its tensors being put into ``tensors``. Numbers, text, mappings, sequences and dataclasses.

    Example:
        >>> import torch
        >>> tensors = {}
        >>> take_apart({"w": torch.ones(2), "step": 3}, tensors), list(tensors)
        ({'map': [['w', {'tensor': '0'}], ['step', 3]]}, ['0'])
    """
    match tree:
        case Tensor():
            name = str(len(tensors))
            tensors[name] = tree.detach()
            return {"tensor": name}
        case None | bool() | int() | float() | str():
            return tree
        case Mapping():
            return {"map": [[take_apart(key, tensors), take_apart(value, tensors)] for key, value in tree.items()]}
        case tuple():
            return {"tuple": [take_apart(value, tensors) for value in tree]}
        case Sequence():
            return {"list": [take_apart(value, tensors) for value in tree]}
        case _ if is_dataclass(tree):
            return {"fields": {part.name: take_apart(getattr(tree, part.name), tensors) for part in fields(tree)}}
        case _:
            raise InputError(f"a checkpoint holds tensors, numbers and text, found {type(tree).__name__}")


def put_together(json: Json, tensors: Mapping[str, Tensor], like: Any = None) -> Any:
    """The tree again. Dataclasses are made as in ``like``, whose tensors also say which shapes and types are right."""
    match json:
        case {"tensor": name}:
            return _checked(tensors[name], like)
        case {"map": pairs}:
            inner = like if isinstance(like, Mapping) else {}
            keys = [put_together(key, tensors) for key, _ in pairs]
            if inner and set(inner) != set(keys):
                raise InputError(f"the checkpoint belongs to another model: it has {_named(keys)}, not {_named(inner)}")
            values = (put_together(value, tensors, inner.get(key)) for key, (_, value) in zip(keys, pairs, strict=True))
            return dict(zip(keys, values, strict=True))
        case {"tuple": values}:
            return tuple(put_together(value, tensors) for value in values)
        case {"list": values}:
            return [put_together(value, tensors) for value in values]
        case {"fields": parts}:
            if not is_dataclass(like) or isinstance(like, type) or set(parts) != {part.name for part in fields(like)}:
                raise InputError(f"the checkpoint holds another method's state, with {_named(parts)}")
            inner = {name: put_together(value, tensors, getattr(like, name)) for name, value in parts.items()}
            return type(like)(**inner)
        case None | bool() | int() | float() | str():
            if isinstance(like, Tensor | Mapping) or is_dataclass(like):
                raise InputError(
                    f"the checkpoint belongs to another model: {str(json)[:40]!r} stands where a "
                    f"{type(like).__name__} is expected"
                )
            return json
        case _:
            raise InputError(f"the checkpoint's content is in no form that was ever written, found {str(json)[:40]!r}")


def _checked(tensor: Tensor, like: Any) -> Tensor:
    if isinstance(like, Mapping) or is_dataclass(like):
        raise InputError(f"the checkpoint belongs to another model: a tensor stands where {type(like).__name__} does")
    if not isinstance(like, Tensor):
        return tensor
    if tensor.shape != like.shape or tensor.dtype != like.dtype:
        raise InputError(
            f"the checkpoint belongs to another model: a tensor of shape {list(tensor.shape)} and {tensor.dtype} "
            f"stands where {list(like.shape)} and {like.dtype} is expected"
        )
    return tensor.to(like.device)


def _named(names: Any) -> str:
    return ", ".join(map(str, names)) or "nothing"
