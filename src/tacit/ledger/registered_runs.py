"""What became of the ledgers that a registry knows, and what each of them counts as spent."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from tacit.errors import LedgerError
from tacit.ledger.charges import Charge
from tacit.ledger.file import read_ledger
from tacit.ledger.ledger import Ledger, LedgerHeader
from tacit.ledger.registry import Counts, Entry, goes_on_from, read_registry
from tacit.storage.files import is_there

State = Literal["closed", "open", "grown", "missing", "replaced", "unreadable", "changed"]

MEANING: dict[State, str] = {
    "closed": "as registered",
    "open": "running, or stopped without closing: counted with what it announced",
    "grown": "charged without the registry too: counted as its ledger says",
    "missing": "the ledger is missing: counted as registered",
    "replaced": "another run has the ledger's place: counted as registered",
    "unreadable": "the ledger cannot be read: counted as registered",
    "changed": "the ledger was rolled back or replaced: counted as registered and, on top, as found",
}
assert set(MEANING) == set(get_args(State))


@dataclass(frozen=True, slots=True)
class RegisteredRun:
    """One ledger of a registry.

    Args:
        path: where the ledger lies, or lay.
        time: when it was entered, in UTC.
        ledger: what counts as spent: never less than what the registry was told.
    """

    path: Path
    time: str
    state: State
    ledger: Ledger

    @property
    def meaning(self) -> str:
        return MEANING[self.state]


def registered_runs(registry: str | Path) -> list[RegisteredRun]:
    """Hold every ledger of a registry against what the registry knows of it."""
    entries, folder = read_registry(registry), Path(registry).absolute().parent
    newest = {entry.name: entry for entry in entries}
    return [_compared_with_ledger(entry, folder / entry.name, newest[entry.name] is entry) for entry in entries]


def _compared_with_ledger(entry: Entry, path: Path, is_newest: bool) -> RegisteredRun:
    state, found = _state(entry, path, is_newest)
    if found is None:
        return RegisteredRun(path, entry.time, state, _ledger(entry, entry.spent, runs=1))
    charged = found.merged()
    spent = entry.spent + charged if state == "changed" else entry.spent | charged
    if state == "closed" and charged - entry.spent:
        state = "grown"
    ledger = found if spent == charged else _ledger(entry, spent, runs=found.runs)
    return RegisteredRun(path, entry.time, state, ledger)


def _state(entry: Entry, path: Path, is_newest: bool) -> tuple[State, Ledger | None]:
    """What the ledger looks like, and the ledger if it can be read and is this entry's."""
    if not is_newest:
        return "replaced", None
    if not is_there(path):
        return "missing", None
    try:
        found = read_ledger(path)
    except LedgerError:
        return "unreadable", None
    if not goes_on_from(path, entry.head):
        return "changed", found
    return ("open" if entry.announced else "closed"), found


def _ledger(entry: Entry, spent: Counts, runs: int) -> Ledger:
    charges = tuple(Charge(event, steps) for event, steps in spent.items())
    return Ledger(entry.header, charges, planned_steps=entry.planned_steps, runs=runs)


def joined(ledgers: list[Ledger]) -> Ledger:
    """All charges of ledgers with the same unit and neighbours, as one ledger that accountants read.

    Its number of runs says that later ones may have followed earlier ones, and one adaptive ledger makes it adaptive.
    """
    headers = [ledger.header for ledger in ledgers]
    counts: Counts = Counter()
    for ledger in ledgers:
        counts += ledger.merged()
    header = LedgerHeader(
        unit=headers[0].unit,
        neighbours=headers[0].neighbours,
        dataset=" and ".join(dict.fromkeys(header.dataset for header in headers)),
        dataset_size=max((header.dataset_size for header in headers if header.dataset_size), default=None),
        schedule="adaptive" if any(header.schedule == "adaptive" for header in headers) else "fixed",
        randomness="seeded" if any(header.randomness == "seeded" for header in headers) else "secure",
        assumptions=tuple(dict.fromkeys(sentence for header in headers for sentence in header.assumptions)),
    )
    charges = tuple(Charge(event, steps) for event, steps in counts.items())
    planned, runs = sum(ledger.planned_steps for ledger in ledgers), sum(max(1, ledger.runs) for ledger in ledgers)
    return Ledger(header, charges, planned_steps=planned, runs=runs)
