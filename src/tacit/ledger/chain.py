"""The hash chain: canonical JSON Lines, each line carrying the hash of the line before it and its own."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit.errors import LedgerError

GENESIS = "0" * 64
_HASH = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Head:
    """How many records a ledger has and the hash of the last: what must be kept elsewhere to see a rollback."""

    count: int
    hash: str

    def to_bytes(self) -> bytes:
        return canonical({"count": self.count, "hash": self.hash}) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> "Head":
        try:
            value = json.loads(data)
            head = cls(value["count"], value["hash"])
            if head.to_bytes() == data and head.is_sound:  # one spelling only, so that every changed bit is found
                return head
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        raise LedgerError("the ledger's head file is damaged; restore it or the ledger from a backup")

    @property
    def is_sound(self) -> bool:
        """Whether these can be the length and the last hash of a chain at all."""
        if type(self.count) is not int or not isinstance(self.hash, str) or not _HASH.fullmatch(self.hash):
            return False
        return self.count > 0 or (self.count == 0 and self.hash == GENESIS)


def canonical(value: Mapping[str, Any]) -> bytes:
    """One spelling for one value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True).encode()


def seal(record: Mapping[str, Any], head: Head) -> tuple[bytes, Head]:
    """The line that follows ``head``, and the new head."""
    body = {**record, "previous": head.hash}
    digest = hashlib.sha256(canonical(body)).hexdigest()
    return canonical({**body, "hash": digest}) + b"\n", Head(head.count + 1, digest)


@dataclass(frozen=True, slots=True)
class Chain:
    """The verified records of a ledger, and the length in bytes of its whole lines. What follows them was torn."""

    records: tuple[dict[str, Any], ...]
    hashes: tuple[str, ...]
    whole_bytes: int
    torn: bytes

    @property
    def torn_bytes(self) -> int:
        return len(self.torn)

    @property
    def head(self) -> Head:
        return Head(len(self.hashes), self.hashes[-1] if self.hashes else GENESIS)


def verify(data: bytes, head: Head | None, *, where: str) -> Chain:
    """Check every line and the head; raise :class:`LedgerError` naming the first line that is wrong.

    Only an unfinished last line is forgiven (a crash in the middle of an append); it is reported as torn.
    """
    whole = data.rfind(b"\n") + 1
    records: list[dict[str, Any]] = []
    hashes: list[str] = []
    for number, line in enumerate(data[:whole].splitlines(keepends=True), start=1):
        record = _open_line(line, hashes[-1] if hashes else GENESIS, f"{where}, line {number}")
        hashes.append(record["hash"])
        records.append(record)
    if head is not None:
        _check_head(head, hashes, where)
    elif len(records) > 1:
        raise LedgerError(f"{where}: the head file is missing, so a rollback could not be seen; restore it")
    return Chain(tuple(records), tuple(hashes), whole, data[whole:])


def _open_line(line: bytes, previous: str, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
        spelled = canonical(record) + b"\n"  # refuses NaN and numbers beyond all bounds, such as 1e999
    except (ValueError, RecursionError) as error:
        raise LedgerError(f"{where}: not a ledger record; the file is damaged") from error
    if not isinstance(record, dict) or record.get("previous") != previous:
        raise LedgerError(f"{where}: does not follow the line before it; a record was changed, moved or removed")
    body = {name: value for name, value in record.items() if name != "hash"}
    if record.get("hash") != hashlib.sha256(canonical(body)).hexdigest() or spelled != line:
        raise LedgerError(f"{where}: its hash does not match its content; the record was changed")
    return record


def _check_head(head: Head, hashes: list[str], where: str) -> None:
    if head.count > len(hashes):
        raise LedgerError(
            f"{where}: has {len(hashes)} records where its head knows {head.count}; it was rolled back or truncated"
        )
    if head.count < 0 or [GENESIS, *hashes][head.count] != head.hash:
        raise LedgerError(f"{where}, line {head.count}: differs from what the head file knows; the ledger was replaced")
