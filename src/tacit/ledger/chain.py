"""The hash chain: canonical JSON Lines, each line carrying the hash of the line before it and its own."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
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


Record = bytes | dict[str, Any]
"""A record as it is read: of a reserve, the most frequent one by far, only the text of its charges."""


class Chain:
    """Follows the lines of a ledger, each checked against the one before it.

    Afterwards ``head`` is that of the last whole line, ``whole_bytes`` the length up to there, and ``torn`` what comes
    after: only an unfinished last line is forgiven (a crash in the middle of an append).
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.head = Head(0, GENESIS)
        self.whole_bytes = 0
        self.torn = b""

    @property
    def torn_bytes(self) -> int:
        return len(self.torn)

    def follow(self, parts: Iterable[bytes], *heads: Head) -> Iterator[Record]:
        """The records in the bytes that come next; the chain must pass through all ``heads``.

        Raises:
            LedgerError: names the first line that is wrong.
        """
        count, previous, rest = self.head.count, self.head.hash, self.torn
        known = {head.count for head in heads}
        for head in heads:
            _check_passed(head, count, previous, self.where)
        for part in parts:
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                count += 1
                digest = _reserve_hash(line, previous)
                if digest is None:
                    record = _open_line(line, previous, f"{self.where}, line {count}")
                    previous = record["hash"]
                    yield record
                else:
                    previous = digest
                    yield line[len(_CHARGES) : -_SEALED - 1]
                if count in known:
                    for head in heads:
                        _check_passed(head, count, previous, self.where)
                self.whole_bytes += len(line) + 1
        self.head, self.torn = Head(count, previous), rest
        for head in heads:
            if head.count > count:
                raise LedgerError(
                    f"{self.where}: has {count} records where its head knows {head.count}; it was rolled back or "
                    "truncated"
                )


def verify(data: bytes, head: Head | None, *, where: str) -> Chain:
    """Check every line and the head; raise :class:`LedgerError` naming the first line that is wrong."""
    chain = Chain(where)
    for _ in chain.follow([data], *([] if head is None else [head])):
        pass
    return chain


# A reserve has one spelling: its charges, then names and values of known length. So its bytes are hashed as they are,
# and need not be understood to be verified. All other lines, and every line that is wrong, take the long way.
_CHARGES = b'{"charges":'
_SEALED = len('"hash":"","previous":"","record":"reserve"}') + 2 * len(GENESIS)


def _reserve_hash(line: bytes, previous: str) -> str | None:
    """The hash of a reserve that follows ``previous``; None for any other line."""
    charges, rest = line[:-_SEALED], f'"previous":"{previous}","record":"reserve"}}'.encode()
    digest = hashlib.sha256(charges + rest).hexdigest()
    if line != b'%b"hash":"%b",%b' % (charges, digest.encode(), rest) or not charges.startswith(_CHARGES):
        return None
    return digest if charges.endswith(b"],") else None


def _open_line(line: bytes, previous: str, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
        spelled = canonical(record)  # refuses NaN and numbers beyond all bounds, such as 1e999
    except (ValueError, RecursionError) as error:
        raise LedgerError(f"{where}: not a ledger record; the file is damaged") from error
    if not isinstance(record, dict) or record.get("previous") != previous:
        raise LedgerError(f"{where}: does not follow the line before it; a record was changed, moved or removed")
    body = {name: value for name, value in record.items() if name != "hash"}
    if record.get("hash") != hashlib.sha256(canonical(body)).hexdigest() or spelled != line:
        raise LedgerError(f"{where}: its hash does not match its content; the record was changed")
    return record


def _check_passed(head: Head, count: int, digest: str, where: str) -> None:
    """Called wherever the chain comes to a head's count, and where it begins."""
    if head.count < 0 or (head.count == count and head.hash != digest):
        raise LedgerError(f"{where}, line {count}: differs from what the head file knows; the ledger was replaced")
