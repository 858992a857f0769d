"""The hash chain: canonical JSON Lines, each line carrying the hash of the line before it and its own."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

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


def head_of(facts: Mapping[str, Any]) -> Head:
    """A head as JSON elsewhere, held to the same rules as the head file."""
    return Head.from_bytes(canonical({"count": facts["count"], "hash": facts["hash"]}) + b"\n")


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

    def follow(self, parts: Iterable[bytes], *heads: Head) -> Iterator[list[Record]]:
        """The records in the bytes that come next, some at a time; the chain must pass through all ``heads``.

        A reserve has one spelling: its charges, then names and values of known length. So its bytes are hashed as they
        are, and need not be understood to be verified. Other lines, and every line that is wrong, take the long way.

        Raises:
            LedgerError: names the first line that is wrong.
        """
        count, previous, rest = self.head.count, self.head.hash.encode(), self.torn
        _check_heads(heads, count, previous, self.where)
        known = {head.count for head in heads}
        for part in parts:
            *lines, rest = (rest + part).split(b"\n")
            records: list[Record] = []
            for count, line in enumerate(lines, start=count + 1):  # noqa: B020 (it goes on from the part before)
                end = b'"previous":"%b","record":"reserve"}' % previous
                digest = hashlib.sha256(line[:-_SEALED] + end).hexdigest().encode()
                if line.endswith(b'],"hash":"%b",%b' % (digest, end)) and line.startswith(_CHARGES):
                    records.append(line[len(_CHARGES) : -_SEALED - 1])
                    previous = digest
                else:
                    record = _open_line(line, previous.decode(), f"{self.where}, line {count}")
                    records.append(record)
                    previous = record["hash"].encode()
                if count in known:
                    _check_heads(heads, count, previous, self.where)
            self.whole_bytes += sum(map(len, lines)) + len(lines)
            yield records
        self.head, self.torn = Head(count, previous.decode()), rest
        for head in heads:
            if head.count > count:
                raise LedgerError(
                    f"{self.where}: has {count} records where its head knows {head.count}; it was rolled back or "
                    "truncated"
                )


class ReadsRecords(Protocol):
    """What makes sense of the records of a file."""

    def read(self, records: Iterable[Record]) -> None: ...


def follow_file(
    chain: Chain, parts: Iterable[bytes], head: bytes | None, reader: ReadsRecords | None, *since: Head
) -> None:
    """Follow the next bytes of a file through the head beside it; without one, a rollback could not be seen."""
    heads = [] if head is None else [Head.from_bytes(head)]
    for records in chain.follow(parts, *heads, *since):
        if reader is not None:
            reader.read(records)
    if head is None and chain.head.count > 1:
        raise LedgerError(f"{chain.where}: the head file is missing, so a rollback could not be seen; restore it")


_CHARGES = b'{"charges":'
_SEALED = len('"hash":"","previous":"","record":"reserve"}') + 2 * len(GENESIS)


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


def _check_heads(heads: Iterable[Head], count: int, digest: bytes, where: str) -> None:
    """Called where the chain begins, and wherever it comes to a head's count."""
    for head in heads:
        if head.count < 0 or (head.count == count and head.hash.encode() != digest):
            raise LedgerError(f"{where}, line {count}: differs from what the head file knows; the ledger was replaced")
