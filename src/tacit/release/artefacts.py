"""Which files of a run may leave it: posteriors, models and the run's public facts, judged by content as by name.

Evidence and checkpoints stay at home: the first tells of single people, the second serves nobody but the run.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from tacit.errors import InputError, LedgerError, RefusedError
from tacit.evidence import check_bound, load_evidence
from tacit.ledger import Head, verify_ledger
from tacit.ledger.chain import head_of
from tacit.ledger.manifest import MANIFEST

RUN_FACTS = "run.json"
DERIVED = "derived_from_private_data"
_CHECKPOINT_KEY = "tacit_checkpoint"
_HEADER_LIMIT = 100_000_000  # as safetensors itself


def is_private(name: str) -> bool:
    """Whether a file's name says that it never leaves."""
    return name.startswith(("evidence", "checkpoint")) or "-private-" in name


def releasable(name: str) -> bool:
    return name == RUN_FACTS or (name.endswith(".safetensors") and not is_private(name))


def refuse_unlisted(run: Path, listed: Mapping[str, str]) -> None:
    """A model, or a run's facts, that the run did not list may come from anywhere; other files just stay at home."""
    for path in sorted(run.iterdir()):
        if releasable(path.name) and path.name not in listed:
            raise RefusedError(
                f"{path.name} is not listed in {MANIFEST}: the run did not write it; list it or remove it"
            )


def check_side_files(run: Path, ledger: Path) -> None:
    """Every head that a checkpoint or evidence knows must be in the ledger: else the ledger was rolled back."""
    for path in sorted(run.glob("checkpoint*.safetensors")):
        try:
            verify_ledger(ledger, since=_checkpoint_head(path))
        except LedgerError as error:
            raise LedgerError(f"{path.name} knows more than the ledger: {error}") from error
    for path in sorted(run.glob("evidence*.safetensors")):
        try:
            check_bound(load_evidence(path), ledger)
        except InputError as error:
            raise RefusedError(f"{path.name} does not belong to this ledger: {error}") from error


def _checkpoint_head(path: Path) -> Head:
    try:
        with safe_open(str(path), framework="np") as file:
            facts = json.loads((file.metadata() or {})[_CHECKPOINT_KEY])
        return head_of(facts["head"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, LedgerError) as error:
        raise RefusedError(f"{path.name} is damaged, so a rollback could not be seen: {error}") from error


def check_content(name: str, data: bytes) -> None:
    """Refuse what is private or no artefact at all, whatever it is called."""
    if name == RUN_FACTS:
        _refuse_bayesian(facts_of(data))
        return
    metadata = _metadata(name, data)
    if metadata.get("private") or str(metadata.get("format", "")).startswith("tacit-evidence"):
        raise RefusedError(f"{name} holds private evidence about single records; it is never released")
    if _CHECKPOINT_KEY in metadata:
        raise RefusedError(f"{name} holds a checkpoint; release the posterior instead")


def facts_of(data: bytes) -> dict[str, Any]:
    """The content of ``run.json``."""
    try:
        facts = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"{RUN_FACTS} is damaged: {error}") from error
    if not isinstance(facts, dict):
        raise RefusedError(f"{RUN_FACTS} must hold an object of public facts, found {type(facts).__name__}")
    return facts


def published(data: bytes) -> bytes:
    """``run.json`` as it leaves: without how long the run took, which no noise hides, and without paths."""
    facts = facts_of(data)
    kept = {name: item for name, item in facts.items() if name not in ("seconds", "public_test", "registry")}
    if isinstance(kept.get("shared_ledger"), str):
        kept["shared_ledger"] = Path(kept["shared_ledger"]).name
    return data if kept == facts else (json.dumps(kept, indent=1, ensure_ascii=False) + "\n").encode()


def is_derived(facts: Any) -> bool:
    """Whether anything in the facts says that it was read off private data."""
    return any(DERIVED in path and leaf not in (False, None) for path, leaf in _leaves(facts))


def _refuse_bayesian(facts: dict[str, Any]) -> None:
    for path, leaf in _leaves(facts):
        named = any(word in part.lower() for part in path for word in ("bayesian", "individual"))
        number = isinstance(leaf, int | float) and not isinstance(leaf, bool)
        if leaf == "bayesian_dp" or (named and number):
            raise RefusedError(f"{RUN_FACTS} states a Bayesian number at {'.'.join(path[1:])}: no worst-case guarantee")


def _leaves(value: Any, path: tuple[str, ...] = ("",)) -> Iterator[tuple[tuple[str, ...], Any]]:
    match value:
        case dict():
            for name, item in value.items():
                yield from _leaves(item, (*path, str(name)))
        case list():
            for item in value:
                yield from _leaves(item, path)
        case _:
            yield path, value


def _metadata(name: str, data: bytes) -> dict[str, Any]:
    """The header of safetensors, read from the very bytes that are published: a length, then JSON."""
    try:
        size = int.from_bytes(data[:8], "little")
        if len(data) < 8 or size > min(len(data) - 8, _HEADER_LIMIT):
            raise ValueError("its header does not fit")
        header = json.loads(data[8 : 8 + size])
        found = header.get("__metadata__", {})
        return dict(found)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise RefusedError(f"{name} is no safetensors file: {error}") from error
