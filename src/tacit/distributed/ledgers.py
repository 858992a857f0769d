"""One ledger for all ranks: rank 0 writes the file, and the others follow its records in memory."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path

from tacit.distributed.ranks import Ranks
from tacit.ledger import Chain, Charge, Head, Ledger, LedgerFile, LedgerHeader
from tacit.ledger.replay import Replay
from tacit.storage.files import read_bytes


class SharedLedger:
    """A ledger file as seen from every rank. What rank 0 cannot write, no rank goes on from."""

    def __init__(
        self, ranks: Ranks, path: str | PathLike[str], header: LedgerHeader, versions: dict[str, str], *, create: bool
    ) -> None:
        self.path = Path(path)
        self._ranks = ranks
        self._file: LedgerFile | None = None
        self._replay, self._chain = Replay(), Chain(str(path))
        self._do(lambda: self._open(path, header, versions, create))

    def _open(self, path: str | PathLike[str], header: LedgerHeader, versions: dict[str, str], create: bool) -> None:
        self._file = LedgerFile(path, header, versions, create=create)

    @property
    def ledger(self) -> Ledger:
        """All that has been charged so far, on every rank."""
        return self._replay.ledger()

    def ledger_if_settled(self, steps: Mapping[int, int]) -> Ledger:
        return self._replay.ledger(steps)

    @property
    def head(self) -> Head:
        return self._chain.head

    @property
    def broken(self) -> bool:
        """Whether rank 0's file takes no more records, on every rank."""
        return bool(self._ranks.from_first(self._file is not None and self._file.broken))

    def reserve(self, charges: Sequence[Charge]) -> int:
        self._do(lambda: self._opened.reserve(charges))
        return self._chain.head.count

    def settle(self, number: int, steps: int) -> None:
        self._do(lambda: self._opened.settle(number, steps))

    def plan(self, steps: int) -> None:
        self._do(lambda: self._opened.plan(steps))

    def resume(self, step: int, paid_again: int) -> None:
        self._do(lambda: self._opened.resume(step, paid_again))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def _opened(self) -> LedgerFile:
        assert self._file is not None  # asked for on rank 0 only
        return self._file

    def _do(self, action: Callable[[], object]) -> None:
        """Write on rank 0, wait until its disk has it, and follow what was written."""
        self._ranks.together(lambda: action() if self._ranks.first else None)
        fresh = read_bytes(self.path, self._chain.whole_bytes) if self._ranks.first else None
        text = self._ranks.from_first(None if fresh is None else fresh.decode())
        for records in self._chain.follow([text.encode()]):
            self._replay.read(records)


def open_ledger(
    ranks: Ranks, path: str | PathLike[str], header: LedgerHeader, versions: dict[str, str], *, create: bool = True
) -> LedgerFile | SharedLedger:
    """The ledger of a run, whatever the number of ranks."""
    if ranks.alone:
        return LedgerFile(path, header, versions, create=create)
    return SharedLedger(ranks, path, header, versions, create=create)
