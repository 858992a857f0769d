"""Checkpoints: where a run is, so that it can go on after a stop, a crash or a kill.

A checkpoint names the head of the ledger, and going on needs a ledger that continues from it: a missing, older or other
ledger is refused, so epsilon never starts again at zero. It holds no key and no generator: a run goes on with fresh
randomness. It is a safetensors file with JSON in its header: reading one cannot run code. Its content is made of
releases, so it may be kept wherever the posterior may.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from tacit.errors import InputError, LedgerError
from tacit.ledger import Head, verify_ledger
from tacit.storage import digests
from tacit.storage.files import read_bytes, replace_file
from tacit.training.plan import PrivacyPlan

Json = Any
_KEY = "tacit_checkpoint"
_FORMAT = 2
_SMALLEST = 1e-30  # clip norms beyond it, either way, would let noise vanish in rounding


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
            other = isinstance(like, int | float) and isinstance(json, str)  # text in place of a number
            if other or isinstance(like, Tensor | Mapping) or is_dataclass(like):
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


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A run after ``step`` steps.

    Args:
        content: the method's state and what was kept, or whatever a user's own loop needs.
        head: the ledger's, when the checkpoint was made.
        plan: the fingerprint of the plan.
        charged_before: how many steps of the ledger are not part of this run, or were lost to it.
        clip_norm: where adaptive clipping has come to.
    """

    step: int
    content: Any
    head: Head
    plan: str
    charged_before: int = 0
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        for name in ("step", "charged_before"):
            if type(getattr(self, name)) is not int or not 0 <= getattr(self, name) < 1 << 62:
                raise InputError(
                    f"a checkpoint's {name} is a whole number of at least 0, found {getattr(self, name)!r}"
                )
        if not (isinstance(self.clip_norm, float) and _SMALLEST < self.clip_norm < 1 / _SMALLEST):
            raise InputError(f"a checkpoint's clip_norm is a number above 0, found {self.clip_norm!r}")
        if not isinstance(self.plan, str) or not self.head.is_sound:
            raise InputError(f"a checkpoint names a plan and a ledger's head, found {self.plan!r} and {self.head!r}")

    def check(self, plan: PrivacyPlan) -> None:
        """Refuse another plan, and a ledger that does not go on from the checkpoint's head."""
        if plan_fingerprint(plan) != self.plan:
            raise InputError("the checkpoint was made under another plan; go on with the same one, or start anew")
        try:
            verify_ledger(plan.ledger, since=self.head)
        except LedgerError as error:
            raise LedgerError(f"the run cannot go on from its checkpoint: {error}") from error

    def write(self, path: str | Path) -> None:
        """Replace the file at ``path``: it holds the old checkpoint or the new one, never a part."""
        tensors: dict[str, Tensor] = {}
        facts = {
            "format": _FORMAT,
            "step": self.step,
            "content": take_apart(self.content, tensors),
            "head": {"count": self.head.count, "hash": self.head.hash},
            "plan": self.plan,
            "charged_before": self.charged_before,
            "clip_norm": self.clip_norm,
        }
        data = save(_unshared(tensors), {_KEY: json.dumps(facts), digests.NAME: digests.UNKNOWN})
        replace_file(Path(path), digests.with_digest(data))


def read_checkpoint(path: str | Path, like: Any = None) -> Checkpoint:
    """Read a checkpoint; ``like`` is an example of its content, needed where that holds a method's state."""
    try:
        data = read_bytes(Path(path))
        if data is None:
            raise InputError("there is no such file")
        tensors = load(data)
        digests.check_digest(data)
        facts = json.loads(_metadata(data)[_KEY])
        if facts["format"] != _FORMAT:
            raise InputError(f"it has format {facts['format']}, this version reads {_FORMAT}")
        return _checkpoint(facts, tensors, like)
    except (LedgerError, SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a readable checkpoint: {error or type(error).__name__}") from error


def _checkpoint(facts: dict[str, Any], tensors: dict[str, Tensor], like: Any) -> Checkpoint:
    return Checkpoint(
        step=facts["step"],
        content=put_together(facts["content"], tensors, like),
        head=Head(facts["head"]["count"], facts["head"]["hash"]),
        plan=facts["plan"],
        charged_before=facts["charged_before"],
        clip_norm=facts["clip_norm"],
    )


def _metadata(data: bytes) -> dict[str, str]:
    """The text beside the tensors: a safetensors file begins with the length of a JSON header, and the header."""
    length = int.from_bytes(data[:8], "little")
    found: dict[str, str] = json.loads(data[8 : 8 + length])["__metadata__"]
    return found


def plan_fingerprint(plan: PrivacyPlan) -> str:
    """A hash of all that must stay the same when a run goes on: not where the ledger lies, nor what only costs time."""
    facts = replace(plan, ledger="", physical_batch=1, block=1)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _unshared(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Safetensors holds no two names for the same memory."""
    seen: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        tensor = tensor.cpu().contiguous()
        memory = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.clone() if memory in seen or tensor.storage_offset() else tensor
        seen.add(memory)
    return apart
