"""What lies beside a ledger: checkpoints that name a head, and statements that name an epsilon."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from tacit.errors import InputError
from tacit.ledger import Head

_CHECKPOINT = "tacit_checkpoint"
_MOST_BYTES = 1 << 24  # a statement is small


def checkpoint_head(path: Path) -> Head | None:
    """The ledger's head that a checkpoint names; None for a file that is no checkpoint."""
    try:
        with safe_open(str(path), framework="np") as file:
            facts = (file.metadata() or {}).get(_CHECKPOINT)
    except (OSError, SafetensorError):
        return None
    if facts is None:
        return None
    try:
        head = json.loads(facts)["head"]
        return Head(int(head["count"]), str(head["hash"]))
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is a damaged checkpoint: {error}") from error


@dataclass(frozen=True, slots=True)
class Claim:
    """An (epsilon, delta) that somebody wrote down, and by which accountant if that is said."""

    where: str
    epsilon: float
    delta: float
    accountant: str | None = None


def claims_beside(folder: Path) -> list[Claim]:
    """Every (epsilon, delta) in the JSON files of a folder that is stated as a worst-case bound."""
    found = []
    for path in sorted(folder.glob("*.json")):
        if path.stat().st_size <= _MOST_BYTES:
            found += list(_walk(_content(path), path.name))
    return found


def _content(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError, OSError) as error:
        raise InputError(f"{path} cannot be read as JSON: {error}") from error


def _walk(value: Any, where: str) -> Iterator[Claim]:
    match value:
        case {"is_bound": False} | {"notion": "bayesian_dp"}:
            return
        case {"epsilon": int() | float() as epsilon, "delta": int() | float() as delta}:
            accountant = value.get("accountant")
            yield Claim(where, float(epsilon), float(delta), accountant if isinstance(accountant, str) else None)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in inner:
        yield from _walk(part, where)
