"""The ledger as a file: charged before data is touched, chained, locked and durable.

Order of things (failure-modes, "The ledger"): lock, check the budget, append a reserve, sync, and only then sample,
clip, add noise and update. A crash can therefore only over-count, by at most one block.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tacit.errors import InputError, LedgerError
from tacit.ledger.chain import Chain, Head, follow_file, seal
from tacit.ledger.charges import Block, Charge, charges_to_json
from tacit.ledger.ledger import Ledger, LedgerHeader
from tacit.ledger.registry import RegisteredLedger, Registration
from tacit.ledger.replay import FORMAT, Replay
from tacit.storage.append_only import FileStorage, head_path
from tacit.storage.files import read_bytes, read_parts, reason_of


def ledger_path(path: str | PathLike[str]) -> Path:
    """A run's folder stands for the ``ledger.jsonl`` inside it."""
    path = Path(path)
    try:
        return path / "ledger.jsonl" if path.is_dir() else path
    except OSError as error:  # such as a name that is too long
        raise LedgerError(f"{str(path)[:100]} is no name for a ledger: {reason_of(error)}") from error


def is_begun(path: str | PathLike[str]) -> bool:
    """Whether a ledger holds a record. A full disk may leave a file without one, to which nothing was ever charged."""
    parts = read_parts(ledger_path(path))
    return parts is not None and any(b"\n" in part for part in parts)


def ledger_so_far(path: str | PathLike[str], header: LedgerHeader) -> Ledger:
    """What a ledger holds that a run may add to; nothing, under this header, where it was not begun."""
    return read_ledger(path) if is_begun(path) else Ledger(header)


def verify_ledger(path: str | PathLike[str], *, since: Head | None = None) -> Chain:
    """Check the hash chain and the head of a ledger; needs no lock, and does not ask what the records mean.

    ``since`` is a head kept elsewhere, as in a checkpoint: a ledger that does not go on from it is refused.
    """
    return _read(ledger_path(path), None, since)


def read_ledger(path: str | PathLike[str]) -> Ledger:
    """Read and verify a ledger; an unfinished last line is charged like the block before it.

    Raises:
        LedgerError: the file is missing, damaged, rolled back, or not a ledger; the message names the line.
    """
    replay = Replay()
    chain = _read(ledger_path(path), replay)
    for record in _void_records(chain, replay):
        replay.apply(record)
    return replay.ledger()


def _read(path: Path, replay: Replay | None, since: Head | None = None) -> Chain:
    head = read_bytes(head_path(path))  # before the ledger: a run that is writing must not look rolled back
    parts = read_parts(path)
    if parts is None:
        raise LedgerError(f"no ledger at {path}; name a ledger file or a run's folder")
    chain = Chain(str(path))
    follow_file(chain, parts, head, replay, *([] if since is None else [since]))
    if not chain.head.count:
        raise LedgerError(f"{path} holds no ledger record")
    return chain


class LedgerFile:
    """A ledger open for writing. One writer at a time; every method returns only when the disk has the record.

    Args:
        path: the file; a :class:`RegisteredLedger` enters it in a registry before its first charge.
        header: what is declared; a ledger that was opened with another declaration is refused.
        create: whether to make it if there is none; what goes on from an earlier charge must not.

    Example:
        >>> import tempfile
        >>> from tacit.ledger import GaussianSumQuery, PoissonSample
        >>> event = PoissonSample(probability=0.01, queries=(GaussianSumQuery(1.0, 1.1),))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with LedgerFile(f"{folder}/ledger.jsonl", LedgerHeader(dataset="demo")) as ledger:
        ...         block = ledger.reserve([Charge(event, 20)])
        ...         ledger.settle(block, steps=7)
        ...     read_ledger(folder).steps
        7
    """

    def __init__(
        self,
        path: str | PathLike[str],
        header: LedgerHeader,
        versions: Mapping[str, str] | None = None,
        *,
        create: bool = True,
    ) -> None:
        self.path = Path(path)
        self._registration = Registration(path) if isinstance(path, RegisteredLedger) else None
        self._one_thread = threading.RLock()
        self._storage = FileStorage(self.path, create=create)
        try:
            self._recover(header, dict(versions or {}))
        except BaseException:
            self._storage.close()
            raise

    def _recover(self, header: LedgerHeader, versions: dict[str, str]) -> None:
        head = self._storage.read_head()
        self._replay, chain = Replay(), Chain(str(self.path))
        follow_file(chain, self._storage.read(), head, self._replay)
        self._head = chain.head
        if not chain.head.count:
            if chain.torn_bytes:
                self._refuse_foreign(chain.torn.rstrip(b"\0"))
                self._storage.truncate(0)  # a first line cut short: nothing was ever charged under it
            self._append({"record": "open", "format": FORMAT, "header": asdict(header), "versions": versions})
        else:
            self._check_same(header)
            if chain.torn_bytes:
                self._storage.truncate(chain.whole_bytes)
            for record in _void_records(chain, self._replay):
                self._append(record)
        if head != self._head.to_bytes():  # new, or a crash left it behind: from here on a rollback can be seen again
            self._storage.write_head(self._head.to_bytes(), durably=True)

    def _refuse_foreign(self, begun: bytes) -> None:
        """A file that is not the beginning of a ledger is somebody's, and stays as it is."""
        if begun[: len(_OPEN)] != _OPEN[: len(begun)]:
            raise LedgerError(f"{self.path} is not a ledger but another file; name a new one for the ledger")

    def _check_same(self, header: LedgerHeader) -> None:
        opened = self._replay.header
        for name in asdict(header):
            found, asked = getattr(opened, name), getattr(header, name)
            if found != asked:
                raise InputError(
                    f"ledger {self.path} was opened with {name} {found!r}, this run has {asked!r}; "
                    "use a ledger of its own or the same declaration"
                )

    @property
    def ledger(self) -> Ledger:
        """All that has been charged so far, as the value that accountants read."""
        return self.ledger_if_settled({})

    def ledger_if_settled(self, steps: Mapping[int, int]) -> Ledger:
        """The same as if blocks, by the numbers that :meth:`reserve` gave, had been settled at so many steps."""
        with self._one_thread:
            return self._replay.ledger(steps)

    @property
    def head(self) -> Head:
        return self._head

    @property
    def broken(self) -> bool:
        """Whether a write failed. Nothing more can be charged, nor settled, until the ledger is opened again."""
        return self._storage.broken

    def reserve(self, charges: Sequence[Charge]) -> int:
        """Charge a block of steps before any of its data is touched; returns the record's number."""
        neighbours = self._replay.header.neighbours
        for charge in charges:
            if charge.event.neighbours != neighbours:
                raise InputError(
                    f"a {charge.event.kind} sample protects {charge.event.neighbours} neighbours, "
                    f"this ledger was opened for {neighbours}"
                )
        self._storage.refuse_if_broken()  # before the lock, as in _append
        with self._one_thread:
            if self._registration is not None:
                self._registration.announce(charges, self.ledger, self.head)
            block = Block(tuple(charges))
            return self._append({"record": "reserve", "charges": self._replay.charges_to_json(block)}, block)

    def settle(self, number: int, steps: int) -> None:
        """A clean stop: lower a reserved block to the steps that were begun."""
        reserved = self._replay.block_steps(number)
        if not 0 <= steps <= reserved:
            raise InputError(f"settle takes 0 to {reserved} steps, found {steps}")
        if steps < reserved:
            self._append({"record": "settle", "reserve": number, "steps": steps})

    def plan(self, steps: int) -> None:
        """Declare, before a run starts, how many steps it will take at most."""
        self._append({"record": "note", "planned_steps": steps})

    def resume(self, step: int, paid_again: int) -> None:
        """Declare that a run goes on at ``step``; steps that were charged but lost count as a run of their own."""
        again = {"planned_steps": paid_again} if paid_again > 0 else {}
        self._append({"record": "note", "resumed_at": step, **again})

    def release(self, record: Mapping[str, Any]) -> None:
        """Note that artefacts left the house, by name: never their hash, which would depend on the data (rule 3)."""
        if record.get("record") != "release":
            raise InputError(f"a release is noted by a release record, found {record.get('record')!r}")
        self._append(record)

    def close(self) -> None:
        registration, self._registration = self._registration, None
        if registration is not None and not self.broken:
            registration.close(self.ledger, self.head)
        self._storage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, record: Mapping[str, Any], block: Block | None = None) -> int:
        """Add a record, one thread at a time, or two would follow the same line; returns its number."""
        self._storage.refuse_if_broken()  # before the lock: a forked process may have got it from a thread that is gone
        with self._one_thread:
            line, head = seal(record, self._head)
            self._storage.append(line)
            self._head = head
            self._replay.apply(record if block is None else block)
            self._storage.write_head(head.to_bytes())
            return head.count


def _void_records(chain: Chain, replay: Replay) -> list[dict[str, Any]]:
    """What stands for a torn tail: a whole block is charged for it, as if its reserve had been used.

    Nothing was released under it, since a release waits for the whole line. So nothing stands for a settle or a note
    cut short, nor for a tail too short to tell; otherwise a crash while settling would be paid for twice.
    """
    written = chain.torn.rstrip(b"\0")  # a file may have grown before its content came
    if b'{"'.startswith(written) or written.startswith(_NO_CHARGE):
        return []
    return [{"record": "void", "torn_bytes": chain.torn_bytes, "charges": charges_to_json(replay.torn_block)}]


_OPEN = b'{"format":'  # how the first line of a ledger begins
_NO_CHARGE = b'{"h'  # names in a line are sorted: a record that charges begins with "charges", the others with "hash"
