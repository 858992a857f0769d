"""A registry: the ledgers of one data set in one file, so that a deleted or rolled-back run still counts as spent.

A ledger that is opened as a :class:`RegisteredLedger` enters itself before its first charge, and never charges more
than it announced to the registry: some blocks at a time, more of them the longer it runs. When it is closed, the
registry learns its head and what it really charged. The registry is a hash-chained file like a ledger, with a head and
a lock of its own. The lock is held for one change at a time, so that many runs may use it at once.
"""

import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tacit.errors import LedgerError
from tacit.ledger.chain import Chain, Head, Record, follow_file, head_of, seal
from tacit.ledger.charges import Charge, charges_from_json, charges_to_json
from tacit.ledger.events import SamplingEvent
from tacit.ledger.ledger import Ledger, LedgerHeader, counted
from tacit.storage.append_only import FileStorage, head_path
from tacit.storage.files import read_bytes, read_parts

FORMAT = 1
_PATIENCE = 60.0  # seconds to wait for other runs, which hold the registry for one change at a time
_AHEAD = 4  # blocks that repeat are announced for a quarter of what was charged so far
_OPEN = b'{"format":'  # how the first line of a registry begins
_UNREADABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError)

Counts = Counter[SamplingEvent]


@dataclass(frozen=True, slots=True)
class RegisteredLedger(os.PathLike[str]):
    """Where a ledger lies, and the registry of the data set that it is entered in. Give it wherever a ledger is named.

    Args:
        path: the ledger's file.
        registry: the registry's file, made if there is none.

    Example:
        >>> import tempfile
        >>> from tacit.ledger import GaussianSumQuery, LedgerFile, PoissonSample, registered_runs
        >>> event = PoissonSample(probability=0.01, queries=(GaussianSumQuery(1.0, 1.1),))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     place = RegisteredLedger(f"{folder}/ledger.jsonl", f"{folder}/registry.jsonl")
        ...     with LedgerFile(place, LedgerHeader(dataset="demo")) as ledger:
        ...         block = ledger.reserve([Charge(event, 20)])
        ...     Path(place).unlink()
        ...     [(run.state, run.ledger.steps) for run in registered_runs(place.registry)]
        [('missing', 20)]
    """

    path: str | Path
    registry: str | Path

    def __fspath__(self) -> str:
        return os.fspath(self.path)


@dataclass(slots=True)
class Entry:
    """What a registry knows of one ledger.

    Args:
        name: the ledger's path, seen from the registry's folder if it lies below it.
        time: when it was entered.
        planned_steps: how many steps it had declared by then.
        head, charges: the ledger's, when the registry last heard of it.
        announced: what it may have charged since then; empty once it was closed.
    """

    name: str
    time: str
    header: LedgerHeader
    planned_steps: int
    head: Head
    charges: Counts
    announced: Counts = field(default_factory=Counter)

    @property
    def spent(self) -> Counts:
        """No less than what was charged through the registry."""
        return self.charges + self.announced

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> "Entry":
        return cls(
            str(facts["ledger"]), str(facts["time"]), LedgerHeader.from_json(facts["header"]),
            int(facts["planned_steps"]), head_of(facts["head"]), counted(charges_from_json(facts["charges"])),
        )  # fmt: skip


class Entries:
    """Folds the records of a registry, in order, into its entries."""

    def __init__(self) -> None:
        self.found: list[Entry] = []
        self._opened = False

    def read(self, records: Iterable[Record]) -> None:
        for record in records:
            if not isinstance(record, dict) or not (self._opened or record.get("record") == "registry"):
                raise LedgerError("this file is no registry but another one, perhaps a ledger")
            try:
                self._apply(record)
            except _UNREADABLE as error:
                raise LedgerError(f"a record of the registry cannot be read: {error}") from error

    def _apply(self, record: Mapping[str, Any]) -> None:
        match record["record"]:
            case "registry":
                if record["format"] != FORMAT:
                    raise LedgerError(f"the registry has format {record['format']}, this version reads {FORMAT}")
                self._opened = True
            case "run":
                self.found.append(Entry.from_json(record))
            case "announce":
                entry = self._entry(record)
                entry.announced += counted(charges_from_json(record["charges"]))
            case "close":
                entry = self._entry(record)
                entry.charges, entry.announced = counted(charges_from_json(record["charges"])), Counter()
            case kind:
                raise LedgerError(f"the registry holds a record of an unknown kind {kind!r}; it may have been a charge")

    def _entry(self, record: Mapping[str, Any]) -> Entry:
        """The entry that a record is about; it always brings the ledger's present head."""
        number = record["run"]
        if type(number) is not int or number < 1:
            raise LedgerError(f"a record of the registry is about run {number!r}, which there is not")
        entry = self.found[number - 1]
        entry.head = head_of(record["head"])
        return entry


def read_registry(path: str | Path) -> list[Entry]:
    """Read and verify a registry; needs no lock. Damage, and a rollback that its head shows, are refused."""
    path = Path(path)
    head, parts = read_bytes(head_path(path)), read_parts(path)
    if parts is None:
        raise LedgerError(f"no registry at {path}; name the file that runs were given by --registry")
    entries, chain = Entries(), Chain(str(path))
    follow_file(chain, parts, head, entries)
    if not chain.head.count:
        raise LedgerError(f"{path} holds no record of a registry")
    return entries.found


class Registry:
    """A registry that is written to: each change locks it, reads what others added, adds its own and unlocks it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries = Entries()
        self._chain = Chain(str(path))
        self._storage: FileStorage | None = None

    def __enter__(self) -> list[Entry]:
        try:
            self._storage = _opened_in_turn(self.path, create=not self._chain.head.count)
            self._catch_up(self._storage)
        except BaseException:
            self.__exit__()
            raise
        return self.entries.found

    def __exit__(self, *_: object) -> None:
        if self._storage is not None:
            self._storage.close()
            self._storage = None

    def _catch_up(self, storage: FileStorage) -> None:
        head, chain = storage.read_head(), self._chain
        if chain.head.count and (head is None or Head.from_bytes(head).count < chain.head.count):
            raise LedgerError(f"{self.path} was removed or rolled back while this run went on; put it back")
        follow_file(chain, storage.read(chain.whole_bytes), head, self.entries)
        if chain.torn:
            begun, chain.torn = chain.torn.rstrip(b"\0"), b""  # a file may have grown before its content came
            if not chain.head.count and begun[: len(_OPEN)] != _OPEN[: len(begun)]:
                raise LedgerError(f"{self.path} is not a registry but another file; name a new one")
            storage.truncate(chain.whole_bytes)  # whoever announced it was told that it failed, or has ended
        if not chain.head.count:
            self.append({"record": "registry", "format": FORMAT})

    def append(self, record: Mapping[str, Any]) -> None:
        assert self._storage is not None  # inside the with block only
        line, head = seal(record, self._chain.head)
        self._storage.append(line)
        follow_file(self._chain, [line], None if head.count == 1 else head.to_bytes(), self.entries)
        self._storage.write_head(head.to_bytes(), durably=head.count == 1)


def _opened_in_turn(path: Path, *, create: bool) -> FileStorage:
    """The file, once other runs are done with it; one that this run has written to is never made anew."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return FileStorage(path, create=create)
        except LedgerError as error:
            if not isinstance(error.__cause__, BlockingIOError) or time.monotonic() > end:
                raise LedgerError(f"the registry cannot be used: {error}") from error
        time.sleep(0.01)


class Registration:
    """One opening of a ledger, as its registry sees it."""

    def __init__(self, place: RegisteredLedger) -> None:
        self._registry = Registry(Path(os.path.abspath(place.registry)))
        self._path = Path(os.path.abspath(place.path))
        self._process = os.getpid()
        self._number: int | None = None
        self._left: Counts = Counter()  # announced and not yet charged
        self._last: tuple[Charge, ...] = ()

    def announce(self, charges: Sequence[Charge], ledger: Ledger, head: Head) -> None:
        """Before a charge: tell the registry of it, unless it knows. Returns only when the registry's disk has it.

        What repeats is announced several times over; whatever is left of that is taken back at the end.
        """
        block = tuple(charges)
        needed = counted(block)
        if not needed <= self._left:
            steps = sum(charge.steps for charge in block)
            times = max(1, ledger.steps // _AHEAD // steps) if block == self._last and steps else 1
            more = [Charge(charge.event, times * charge.steps) for charge in block]
            with self._registry:
                number = self._enter(ledger, head) if self._number is None else self._number
                self._registry.append(_record("announce", number, head, more))
            self._number, self._last = number, block
            self._left += counted(more)
        self._left -= needed

    def close(self, ledger: Ledger, head: Head) -> None:
        """At the end: what was charged. If it cannot be written, what was announced stays spent."""
        if self._number is None or os.getpid() != self._process:
            return
        with suppress(LedgerError), self._registry:
            self._registry.append(_record("close", self._number, head, _charges(ledger)))

    def _enter(self, ledger: Ledger, head: Head) -> int:
        """The number of the ledger's entry: the one that it goes on from, or a new one."""
        name, found = self._name, self._registry.entries.found
        number = max((number for number, entry in enumerate(found, start=1) if entry.name == name), default=0)
        if number and goes_on_from(self._path, found[number - 1].head):
            if found[number - 1].spent != ledger.merged():  # it was killed, or charged without the registry
                self._registry.append(_record("close", number, head, _charges(ledger)))
            return number
        self._registry.append(
            {**_record("run", 0, head, _charges(ledger)), "ledger": name, "header": asdict(ledger.header),
             "time": f"{datetime.now(UTC):%FT%TZ}", "planned_steps": ledger.planned_steps}
        )  # fmt: skip
        return len(found)

    @property
    def _name(self) -> str:
        folder = self._registry.path.parent
        return str(self._path.relative_to(folder) if self._path.is_relative_to(folder) else self._path)


def goes_on_from(path: Path, head: Head) -> bool:
    """Whether the ledger at this path has this head or goes on from it."""
    parts = read_parts(path)
    try:
        for _ in Chain(str(path)).follow(parts or [], head):
            pass
    except LedgerError:
        return False
    return True


def _record(kind: str, number: int, head: Head, charges: Iterable[Charge]) -> dict[str, Any]:
    facts = {"record": kind, "head": {"count": head.count, "hash": head.hash}, "charges": charges_to_json(charges)}
    return facts | ({"run": number} if number else {})


def _charges(ledger: Ledger) -> list[Charge]:
    return [Charge(event, steps) for event, steps in ledger.merged().items()]
