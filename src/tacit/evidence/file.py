"""Evidence as a private side-car file, bound to its ledger by the ledger's hash, never the other way round."""

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from tacit.errors import InputError, LedgerError
from tacit.evidence.evidence import Evidence, Stretch
from tacit.ledger import Head, verify_ledger
from tacit.storage import digests
from tacit.storage.files import replace_file

FORMAT = "tacit-evidence-2"
_COLUMNS = ("probability", "noise_multiplier", "steps", "first", "last")


def evidence_path(run: str | PathLike[str], kind: str) -> Path:
    """Where a run's evidence of a kind lies: beside its ledger."""
    run = Path(run)
    return (run if run.is_dir() else run.parent) / f"evidence.{kind}.safetensors"


def save_evidence(evidence: Evidence, path: str | Path) -> None:
    """Write atomically, readable by the owner alone: the file says how single people were treated."""
    path = Path(path)
    table = np.array([[getattr(s, name) for name in _COLUMNS] for s in evidence.stretches], dtype=np.float64)
    tensors: dict[str, NDArray[Any]] = {
        "shares": np.ascontiguousarray(evidence.shares),
        "stretches": table.reshape(-1, len(_COLUMNS)),
    }
    facts = {
        "format": FORMAT,
        "kind": evidence.kind,
        "ledger_count": str(evidence.head.count),
        "ledger_hash": evidence.head.hash,
        "private": "yes: depends on single records, do not publish",
        digests.NAME: digests.UNKNOWN,
    }
    replace_file(path, digests.with_digest(save(tensors, facts)))


def load_evidence(path: str | Path) -> Evidence:
    """Read evidence back; damaged or foreign files are refused. Safetensors hold numbers only."""
    try:
        with safe_open(str(path), framework="np") as file:
            facts = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        digests.check_digest(Path(path).read_bytes())
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not readable evidence: {error}") from error
    if facts.get("format") != FORMAT or set(tensors) != {"shares", "stretches"}:
        raise InputError(f"{path} holds no Tacit evidence (its format is {facts.get('format')!r})")
    try:
        stretches = tuple(_stretch(row) for row in tensors["stretches"].tolist())
        head = Head(int(facts["ledger_count"]), facts["ledger_hash"])
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path} is damaged evidence: {error}") from error
    return Evidence(head, facts["kind"], tensors["shares"], stretches)  # the kind is checked there


def _stretch(row: list[float]) -> Stretch:
    probability, noise, steps, first, last = row
    return Stretch(probability, noise, int(steps), int(first), int(last))


def check_bound(evidence: Evidence, run: str | PathLike[str]) -> None:
    """Refuse evidence of another ledger: its head must be a record of this one."""
    verify_ledger(run)  # a damaged one says so itself
    try:
        verify_ledger(run, since=evidence.head)
        known = evidence.head.count > 0
    except LedgerError:
        known = False
    if not known:
        raise InputError(f"the evidence was not gathered under the ledger of {run}; it names another head")
