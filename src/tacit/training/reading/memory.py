"""How many rows fit into memory: computed at once, and held at once. It changes speed and memory only."""

import os
from dataclasses import dataclass
from pathlib import Path

_LEAST, _MOST = 16, 4096  # rows that are computed at once
_AMPLE = 2 * 2**30
_HELD = 1 / 4  # of the budget: what records may take before they are computed
_MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True)
class Fitting:
    """Rows that are computed at once, rows of a sample that are held at once, and of a usual sample; 0: not known."""

    computed: int = 256
    held: int = 4096
    usual: int = 0

    @classmethod
    def of(
        cls, budget: float, *, row: int, record: int, loads: int, computed: int | None = None, usual: int = 0
    ) -> "Fitting":
        """What fits into a budget of bytes.

        Args:
            row: bytes that the losses take for a row, while it is computed together with others; 0 if nobody knows.
            record: bytes of a row as it is read, with all its views.
            loads: how many portions there are at once: one that is computed, and what is loaded ahead.
            computed: how many rows are to be computed at once, if that was asked for.
            usual: the rows of a sample of the declared size.
        """
        usual = usual if computed is None else 0
        copies = 2 + loads  # items, what they are joined to, and the rows that the losses get
        if computed is None:
            fits = int(budget // (row + copies * record)) if row else cls().computed
            computed = min(_MOST, max(_LEAST, fits))
        return cls(computed, max(computed, int(_HELD * budget // (copies * max(1, record)))), usual)

    def at_once(self, rows: int) -> int:
        """How many of a sample's rows are computed at once. One that turns out larger than usual goes in two halves: a
        run takes the memory of a usual sample, not of the largest that chance gives it."""
        larger = max(2 * _LEAST, self.usual * 9 / 8) < rows <= 2 * self.usual  # beyond that it is usual after all
        return min(self.computed, -(-rows // 2)) if larger else self.computed


def memory_budget(mebibytes: int | None) -> float:
    """Bytes for records and what is computed of them: what is ample, unless the machine has little left."""
    return min(_AMPLE, _free() / 4) if mebibytes is None else mebibytes * 2**20


def _free() -> float:
    """Bytes that a process can have without taking them from another."""
    try:
        lines = dict(line.split(":") for line in _MEMINFO.read_text().splitlines())
        return 1024 * float(lines["MemAvailable"].split()[0])
    except (OSError, ValueError, KeyError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 4 * _AMPLE
