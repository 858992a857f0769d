"""What a run made, by hash: ``artefacts.json`` is written last, and holds for these bytes only.

It is the one mark of a finished run: whatever stops a run before it is there, the run can be taken up and completed.

The hashes stand beside the ledger and never in it: the ledger must be the same on neighbouring data (rule 3).
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import InputError, LedgerError, RefusedError
from tacit.ledger.chain import Head, canonical, head_of
from tacit.ledger.file import verify_ledger
from tacit.storage.files import read_bytes, replace_file

MANIFEST = "artefacts.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """The head of the ledger when the artefacts were written, and the SHA-256 of each by name."""

    head: Head
    files: dict[str, str]


def write_manifest(run: str | Path, names: Iterable[str], *, ledger: str | Path | None = None) -> None:
    """List the artefacts ``names`` of a run's folder with their hashes, whole or not at all.

    Call it after the last artefact is written; files made or changed later are not released. ``ledger`` is needed only
    where it lies elsewhere, because several runs share its budget.
    """
    run = Path(run)
    files = {name: file_hash(_content(run, name)) for name in sorted(set(names))}
    head = verify_ledger(run if ledger is None else ledger).head
    facts = {"format": FORMAT, "ledger_head": {"count": head.count, "hash": head.hash}, "files": files}
    replace_file(run / MANIFEST, canonical(facts) + b"\n")


def read_manifest(run: Path) -> Manifest:
    """The manifest of a run; without one nothing says which bytes the run made."""
    data = read_bytes(run / MANIFEST)
    if data is None:
        raise RefusedError(f"{run} has no {MANIFEST}: list what the run made with tacit.release.write_manifest first")
    try:
        facts = json.loads(data)
        head = head_of(facts["ledger_head"])
        files = {plain_name(name): str(value) for name, value in facts["files"].items()}
        known = facts["format"] == FORMAT
    except (ValueError, KeyError, TypeError, AttributeError, InputError, LedgerError) as error:
        raise RefusedError(f"{run / MANIFEST} is damaged; the artefacts cannot be told from others") from error
    if not known:
        raise RefusedError(f"{run / MANIFEST} has format {facts['format']!r}, this version reads {FORMAT}")
    return Manifest(head, files)


def read_artefacts(run: Path, manifest: Manifest) -> dict[str, bytes]:
    """The bytes of every listed artefact, read once, so that what was checked is what is published."""
    contents = {}
    for name, expected in manifest.files.items():
        contents[name] = _content(run, name)
        if file_hash(contents[name]) != expected:
            raise RefusedError(f"{name} is not what the run wrote: its hash differs from {MANIFEST}")
    return contents


def check_if_finished(run: Path) -> None:
    """Refuse a finished run whose files or ledger are not those that it wrote. What is not finished has no manifest."""
    if (run / MANIFEST).exists():
        manifest = read_manifest(run)
        read_artefacts(run, manifest)
        verify_ledger(run, since=manifest.head)


def file_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def plain_name(name: str) -> str:
    """A name that stays in its folder, or an error."""
    if not name or name.startswith(".") or "/" in name or "\\" in name or not name.isprintable():
        raise InputError(f"an artefact is a plain file name, found {name!r}")
    return name


def _content(run: Path, name: str) -> bytes:
    data = read_bytes(run / plain_name(name))
    if data is None:
        raise RefusedError(f"{run} has no artefact {name!r}; write it before it is listed or released")
    return data
