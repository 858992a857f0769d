"""``release_run``: check everything, then publish whole or not at all.

The order is: read once, check, write beside the target, note the release in the ledger, rename. A refusal or a crash
before the rename leaves nothing under the asked name.
"""

import gzip
import io
import json
import os
import shutil
import tarfile
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit.accountants.bayesian import bayesian_guarantees
from tacit.errors import InputError, LedgerError, RefusedError, StorageError
from tacit.evidence import load_evidence
from tacit.ledger import Head, Ledger, LedgerFile, ledger_path, read_ledger, verify_ledger
from tacit.ledger.chain import seal
from tacit.ledger.manifest import file_hash, read_artefacts, read_manifest
from tacit.release.artefacts import (
    RUN_FACTS,
    check_content,
    check_side_files,
    facts_of,
    published,
    refuse_unlisted,
    releasable,
)
from tacit.release.facts import check_facts
from tacit.release.gate import bound_within, check_ledger_facts, check_run_facts, chosen_budget
from tacit.release.statement import PrivacyStatement, in_words
from tacit.runs.facts import QUERIES
from tacit.storage.disk import the_disk
from tacit.storage.files import read_bytes, reason_of

SUMS = "SHA256SUMS"


@dataclass(frozen=True, slots=True)
class Released:
    """Where the bundle lies, what is in it, what was left behind, and what it says."""

    path: Path
    files: tuple[str, ...]
    left_behind: tuple[str, ...]
    statement: PrivacyStatement


def release_run(
    run: str | Path,
    out: str | Path,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    ledger: str | Path | None = None,
    include_bayesian: bool = False,
    accept_derived_schema: bool = False,
) -> Released:
    """Release a run's artefacts with a privacy statement, if its ledger proves that they cost no more than the budget.

    Args:
        run: the run's folder, with ``ledger.jsonl`` and the ``artefacts.json`` of :func:`write_manifest`.
        out: a folder to make, or a file ending in ``.tar.gz``.
        epsilon, delta: the budget; by default the one that the ledger declared.
        ledger: where it lies, if several runs share it; by default in the run's folder.
        include_bayesian: also state what the private evidence says, marked as no worst-case guarantee.
        accept_derived_schema: release although bounds or categories were read off the private data, and say so.

    Raises:
        RefusedError, LedgerError, InputError: something does not hold; nothing was written.
    """
    run, out = Path(run), Path(out)
    _check_target(run, out)
    path = run / "ledger.jsonl" if ledger is None else ledger_path(ledger)
    prepared = _prepare(run, path, epsilon, delta, include_bayesian, accept_derived_schema)
    with LedgerFile(path, prepared.statement.ledger.header, create=False) as file:
        if file.ledger.charges != prepared.statement.ledger.charges:
            raise LedgerError("the ledger was charged while it was being read; wait until the run has ended")
        line, head = seal(prepared.record, file.head)
        statement = replace(prepared.statement, head=head)
        data = read_bytes(path)
        assert data is not None  # it is open
        files = _with_sums(prepared.artefacts, statement, data + line, head)
        try:
            with _beside(out) as temporary:
                _write(files, temporary)
                file.release(prepared.record)
                os.rename(temporary, out)
            the_disk().sync_folder(out.parent)
        except OSError as error:
            raise StorageError(f"the bundle {out} cannot be written: {reason_of(error)}") from error
    return Released(out, tuple(files), prepared.left_behind, statement)


@dataclass(frozen=True, slots=True)
class _Prepared:
    artefacts: dict[str, bytes]
    left_behind: tuple[str, ...]
    statement: PrivacyStatement
    record: dict[str, Any]


def _check_target(run: Path, out: Path) -> None:
    if not run.is_dir():
        raise InputError(f"a release needs a run's folder, found none at {run}")
    if out.exists() or out.is_symlink():
        raise InputError(f"{out} exists already; a release is never written over anything")
    if not out.parent.is_dir():
        raise InputError(f"the folder {out.parent} does not exist; make it first")
    if out.parent.resolve().is_relative_to(run.resolve()):
        raise InputError(f"{out} lies inside the run's own folder; choose a place outside")


def _prepare(
    run: Path, path: Path, epsilon: float | None, delta: float | None, bayesian: bool, derived: bool
) -> _Prepared:
    """Every check, without a trace on disk."""
    chain, ledger = verify_ledger(path), read_ledger(path)
    check_side_files(run, path)
    manifest = read_manifest(run)
    verify_ledger(path, since=manifest.head)
    refuse_unlisted(run, manifest.files)
    contents = read_artefacts(run, manifest)
    artefacts = {name: data for name, data in contents.items() if releasable(name)}
    facts = facts_of(artefacts[RUN_FACTS]) if RUN_FACTS in artefacts else {}
    if not any(name != RUN_FACTS for name in artefacts) and facts.get("task") != QUERIES:  # whose answers are in it
        raise RefusedError("there is nothing to release: artefacts.json lists no posterior or model (.safetensors)")
    for name, data in artefacts.items():
        check_content(name, data)
    check_ledger_facts(ledger)
    budget = chosen_budget(ledger, epsilon, delta)
    best, results = bound_within(ledger, budget)
    also = check_run_facts(ledger, facts, best, derived)
    check_facts(ledger, facts, artefacts)
    if RUN_FACTS in artefacts:
        artefacts[RUN_FACTS] = published(artefacts[RUN_FACTS])
    diagnostics = _diagnostics(run, ledger, budget.delta) if bayesian else {}
    statement = PrivacyStatement(ledger, chain.head, budget, best, results, also, diagnostics)
    left = tuple(sorted(name for name in contents if name not in artefacts))
    return _Prepared(artefacts, left, statement, _record(artefacts, statement))


def _record(artefacts: dict[str, bytes], statement: PrivacyStatement) -> dict[str, Any]:
    """Public facts only: names and the budget. No hash and no size of an artefact, which follow the data (rule 3)."""
    budget = {"epsilon": statement.budget.epsilon, "delta": statement.budget.delta}
    return {"record": "release", "artefacts": sorted(artefacts), "budget": budget}


def _diagnostics(run: Path, ledger: Ledger, delta: float) -> dict[str, Any]:
    found = [load_evidence(path) for path in sorted(run.glob("evidence.*.safetensors"))]
    if not found:
        raise InputError(f"{run} has no evidence beside its ledger, so there is no Bayesian number to include")
    return {item.kind: bayesian_guarantees(ledger, item, delta) for item in found}


def _with_sums(artefacts: dict[str, bytes], statement: PrivacyStatement, ledger: bytes, head: Head) -> dict[str, bytes]:
    facts = statement.to_json()
    files = {
        **artefacts,
        "ledger.jsonl": ledger,
        "ledger.jsonl.head": head.to_bytes(),
        "statement.json": (json.dumps(facts, indent=2, sort_keys=True, allow_nan=False) + "\n").encode(),
        "statement.md": in_words(facts).encode(),
    }
    return {**dict(sorted(files.items())), SUMS: sums_of(files)}


def sums_of(files: dict[str, bytes]) -> bytes:
    """In the format of sha256sum, so that nobody needs Tacit to check it."""
    return "".join(f"{file_hash(data)}  {name}\n" for name, data in sorted(files.items())).encode()


class _beside:  # noqa: N801 (used as a function)
    """A temporary name beside the target, removed unless it was renamed."""

    def __init__(self, out: Path) -> None:
        self._out = out

    def __enter__(self) -> Path:
        self._folder = Path(tempfile.mkdtemp(prefix=f".{self._out.name}.", dir=self._out.parent))
        return self._folder / self._out.name

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _write(files: dict[str, bytes], path: Path) -> None:
    if path.name.endswith(".tar.gz"):
        _write_file(path, _archive(files))
        return
    path.mkdir()
    for name, data in files.items():
        _write_file(path / name, data)
    the_disk().sync_folder(path)


def _write_file(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _archive(files: dict[str, bytes]) -> bytes:
    """The same bytes for the same files: no times, no owners."""
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()
