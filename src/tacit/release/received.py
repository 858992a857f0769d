"""``check_bundle``: verify a bundle that somebody else made, from its bytes alone.

Everything that the statement says is computed again from the ledger inside. What cannot be checked from a bundle is
said in the statement: that the code was run as the ledger tells, and that the ledger is the publisher's only one.
"""

import json
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.accountants import Budget
from tacit.errors import InputError, LedgerError, RefusedError
from tacit.ledger import Chain, Head, Ledger
from tacit.ledger.chain import Record
from tacit.ledger.manifest import plain_name
from tacit.ledger.replay import Replay
from tacit.release.artefacts import RUN_FACTS, check_content, facts_of, releasable
from tacit.release.bundle import SUMS, sums_of
from tacit.release.facts import check_facts
from tacit.release.gate import DERIVED_SENTENCE, bound_within, check_ledger_facts, check_run_facts
from tacit.release.statement import FORMAT, PRIVATE_NUMBERS, PrivacyStatement, in_words
from tacit.storage.files import read_bytes

_OWN = ("ledger.jsonl", "ledger.jsonl.head", "statement.json", "statement.md", SUMS)
_MOST_BYTES, _MOST_FILES = 4 << 30, 1000
_LAST_DIGITS = 1e-9  # relative; numerical libraries differ in the last digits from machine to machine


@dataclass(frozen=True, slots=True)
class CheckedBundle:
    """A bundle whose statement follows from its ledger. ``diagnostics`` says whether it adds unverifiable numbers."""

    statement: PrivacyStatement
    files: tuple[str, ...]
    diagnostics: bool


def check_bundle(path: str | Path) -> CheckedBundle:
    """Verify checksums, ledger, budget and every number of the statement.

    Raises:
        RefusedError, LedgerError, InputError: the first thing that does not hold.
    """
    files = _read(Path(path))
    _check_files(files)
    facts = _facts(files["statement.json"])
    ledger, head = _ledger(files)
    statement = _recomputed(ledger, head, facts, files)
    _compare(statement.to_json(), facts)
    if files["statement.md"] != in_words(facts).encode():
        raise RefusedError("statement.md says something else than statement.json")
    return CheckedBundle(statement, tuple(sorted(files)), "private_diagnostics" in facts)


def _read(path: Path) -> dict[str, bytes]:
    if path.is_dir():
        names = sorted(one.name for one in path.iterdir())
        if len(names) > _MOST_FILES:
            raise RefusedError(f"{path} holds {len(names)} files; a bundle has at most {_MOST_FILES}")
        return {name: _content(path / plain_name(name)) for name in names}
    try:
        with tarfile.open(path, "r:gz") as tar:
            return _members(tar)
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise InputError(f"{path} is no readable bundle: {error}") from error


def _content(path: Path) -> bytes:
    data = read_bytes(path)
    if data is None:
        raise RefusedError(f"{path.name} disappeared while the bundle was read")
    return data


def _members(tar: tarfile.TarFile) -> dict[str, bytes]:
    """Nothing is extracted: plain names, whole files, each once, and not more than a cap: archives are hostile."""
    files: dict[str, bytes] = {}
    room = _MOST_BYTES
    for entry in tar:
        room -= entry.size
        if not entry.isreg() or entry.name in files or room < 0 or len(files) >= _MOST_FILES:
            raise RefusedError(f"the archive holds {entry.name!r}, which no bundle has: a link, a copy, or too much")
        stream = tar.extractfile(entry)
        files[plain_name(entry.name)] = stream.read() if stream else b""
    return files


def _check_files(files: dict[str, bytes]) -> None:
    if missing := [name for name in _OWN if name not in files]:
        raise RefusedError(f"the bundle has no {missing[0]}")
    if files[SUMS] != sums_of({name: data for name, data in files.items() if name != SUMS}):
        raise RefusedError(f"{SUMS} does not match the files: one was changed, added or removed")
    for name, data in files.items():
        if name not in _OWN:
            if not releasable(name):
                raise RefusedError(f"{name} has no place in a bundle")
            check_content(name, data)


def _facts(data: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(data)
        known = facts["format"] == FORMAT
        Budget(facts["budget"]["epsilon"], facts["budget"]["delta"])
        list(facts["assumptions"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RefusedError(f"statement.json is damaged: {error}") from error
    if not known:
        raise RefusedError(f"statement.json has format {facts['format']!r}, this version reads {FORMAT}")
    return dict(facts)


def _ledger(files: dict[str, bytes]) -> tuple[Ledger, Head]:
    chain, replay = Chain("ledger.jsonl"), Replay()
    last: Record = {}
    for records in chain.follow([files["ledger.jsonl"]], Head.from_bytes(files["ledger.jsonl.head"])):
        replay.read(records)
        last = records[-1] if records else last
    if chain.torn_bytes or chain.head.to_bytes() != files["ledger.jsonl.head"]:
        raise LedgerError("the bundle's ledger does not end at its head")
    if not isinstance(last, dict) or last.get("record") != "release":
        raise LedgerError("the bundle's ledger does not end with its release")
    if sorted(name for name in files if name not in _OWN) != last.get("artefacts"):
        raise RefusedError("the bundle holds other artefacts than its ledger says were released")
    return replay.ledger(), chain.head


def _recomputed(ledger: Ledger, head: Head, facts: dict[str, Any], files: dict[str, bytes]) -> PrivacyStatement:
    check_ledger_facts(ledger)
    budget = Budget(facts["budget"]["epsilon"], facts["budget"]["delta"])
    best, results = bound_within(ledger, budget)
    accepted = DERIVED_SENTENCE in facts["assumptions"]  # said openly, or not at all
    own = facts_of(files[RUN_FACTS]) if RUN_FACTS in files else {}
    also = check_run_facts(ledger, own, best, accepted)
    check_facts(ledger, own, files)
    return PrivacyStatement(ledger, head, budget, best, results, also)


def _compare(computed: dict[str, Any], said: dict[str, Any]) -> None:
    extra = said.get("private_diagnostics")
    if extra is not None and (not isinstance(extra, dict) or extra.get("what") != PRIVATE_NUMBERS):
        raise RefusedError("statement.json holds Bayesian numbers that are not marked as what they are")
    for name in {*computed, *said} - {"private_diagnostics"}:
        if name not in said or name not in computed or not _same(computed[name], said[name]):
            raise RefusedError(f"statement.json: its {name} does not follow from the ledger")


def _same(one: Any, other: Any) -> bool:
    """Equal, but for the last digits of a number."""
    match one, other:
        case bool(), _:
            return one is other
        case float() | int(), float() | int() if not isinstance(other, bool):
            return abs(one - other) <= _LAST_DIGITS * max(abs(one), abs(other))
        case dict(), dict():
            return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
        case list(), list():
            return len(one) == len(other) and all(map(_same, one, other))
        case _:
            return bool(one == other)
