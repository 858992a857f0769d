"""F30: `tacit train` stopped at every one of its durable writes, one after the other, and taken up again.

Not at random: the calls of the disk are counted in a whole run, and then one run is stopped at each of them, with half
of a write done. Every run must then be completed by `--resume`, released and verified.
"""

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reliability.figures import Figure
from reliability.small_table import (
    EPSILON,
    STEPS,
    TARGETS,
    SmallTable,
    facts_of,
    fault_of_run,
    left_over,
    short_runs,
    tacit,
)
from tacit.storage.disk import OperatingSystem, using

TOTAL = 2.2  # of a shared ledger: a filter over one order is a little looser than what found the noise
LEAST = 20  # steps that a run keeps: a stop loses at most a block and, of a shared ledger, a histogram
KINDS = [(target, shared) for shared in (False, True) for target in TARGETS]


class Killed(BaseException):
    """No handler of an ordinary error sees it."""


class MortalDisk(OperatingSystem):
    """The real disk until call number ``last``, of which it does a half; after it nothing changes any more.

    So what a process does on its way out leaves no trace, as if it had been killed.
    """

    def __init__(self, last: int | None = None) -> None:
        self.last = last
        self.calls: list[str] = []

    def _live(self, name: str) -> None:
        self.calls.append(name)
        if self.last is not None and len(self.calls) >= self.last:
            raise Killed

    def write(self, file: int, data: bytes | memoryview) -> int:
        if len(self.calls) + 1 == self.last:
            os.write(file, bytes(data)[: len(data) // 2])
        self._live("write")
        return super().write(file, data)


def _mortal(name: str) -> Callable[..., Any]:
    real = getattr(OperatingSystem, name)

    def call(self: MortalDisk, *given: Any, **options: Any) -> Any:
        self._live(name)
        return real(self, *given, **options)

    return call


for _name in ("make_folder", "open_to_append", "open_new", "truncate", "sync_data", "rename", "remove", "sync_folder"):
    setattr(MortalDisk, _name, _mortal(_name))


@dataclass(frozen=True)
class Stoppable(ABC):
    """A run that may be stopped; with ``shared`` it charges a ledger outside its folder."""

    table: SmallTable
    target: str
    shared: bool
    name: str

    @abstractmethod
    def start(self, disk: MortalDisk) -> str: ...

    @abstractmethod
    def go_on(self, disk: MortalDisk) -> str: ...

    @property
    @abstractmethod
    def fault(self) -> str:
        """What is wrong with the completed run; nothing if all is well."""

    @property
    def fault_of_one_stop(self) -> str:
        """What is wrong besides, if it was stopped only once."""
        return ""

    @property
    def out(self) -> Path:
        return self.table.folder / f"run-{self.name}"

    @property
    def ledger(self) -> Path:
        return self.table.folder / f"shared-{self.name}.jsonl" if self.shared else self.out / "ledger.jsonl"

    @property
    def budget(self) -> tuple[object, ...]:
        return ("--budget", self.ledger, "--budget-epsilon", TOTAL) if self.shared else ()

    @property
    def is_finished(self) -> bool:
        return (self.out / "artefacts.json").exists()

    @staticmethod
    def run(disk: MortalDisk, *words: object) -> str:
        with using(disk):
            said = tacit(*words)
        return f"exit {said.code}: {said.err}" if said.code else ""


class Trial(Stoppable):
    """A run of ``tacit train``."""

    def start(self, disk: MortalDisk) -> str:
        return self.run(disk, *self.table.train(self.target, self.out, *self.budget))

    def go_on(self, disk: MortalDisk) -> str:
        """Without a ledger nothing was charged."""
        if self.ledger.exists() and (self.out / "run.json").exists():
            return self.run(disk, *self.table.resume(self.out))
        return self.start(disk)

    @property
    def fault(self) -> str:
        if found := left_over(self.out) or fault_of_run(self.out, self.table.test, TOTAL if self.shared else EPSILON):
            return found
        if not (self.out / "evaluation.json").exists() or tacit(*self.table.resume(self.out)).code != 2:
            return "it is not evaluated, or goes on though it is finished"
        return _unsaid(facts_of(self.out), self.target)


def _unsaid(facts: dict[str, Any], target: str) -> str:
    """Whether the run says what a stop has cost it."""
    lost = any("histogram" in word for word in facts["warnings"])
    if facts["steps"] < LEAST or (facts["spread"] is None) != (target == "flag" or lost):
        return f"{facts['steps']} steps, spread {facts['spread']}, {facts['warnings']}"
    cut = any("the budget ended" in word for word in facts["warnings"])
    return "" if (facts["steps"] < STEPS) == cut else "it was cut short and does not say so"


def stopped(
    table: SmallTable,
    target: str,
    shared: bool,
    some: Callable[[int], Iterable[int]],
    kind: type[Stoppable] = Trial,
) -> Iterator[str]:
    """What went wrong in each of the runs stopped at ``some`` of the calls; nothing where all is well."""
    whole, disk = kind(table, target, shared, f"{target}-{shared}-whole"), MortalDisk()
    if found := whole.start(disk) or whole.fault:
        raise RuntimeError(f"a run that nobody stops: {found}")
    for last in some(len(disk.calls)):
        trial = kind(table, target, shared, f"{target}-{shared}-{last}")
        try:
            yield f"it was not stopped at call {last}: {trial.start(MortalDisk(last))}"
            continue
        except Killed:
            pass
        if trial.is_finished:  # only the folder's name was still to be synced
            yield "" if disk.calls[last - 1 :] == ["sync_folder"] else f"finished before call {last}"
        else:
            found = trial.go_on(MortalDisk()) or trial.fault or trial.fault_of_one_stop
            yield found and f"call {last}, {disk.calls[last - 1]}: {found}"


def spaced(every: int) -> Callable[[int], Iterable[int]]:
    """One of so many calls, and five times as many at the end: residuals, posterior, evaluation, manifest."""

    def some(calls: int) -> list[int]:
        return sorted({*range(2, calls + 1, every), *range(max(1, calls - 30), calls + 1, max(1, every // 5))})

    return some


def figures(
    effort: float, write: Callable[[Path], SmallTable], kind: type[Stoppable], names: tuple[str, str]
) -> Iterator[Figure]:
    """One for each target and ledger; ``names`` are those of the two targets' runs."""
    every = min(40, max(1, round(1 / effort)))
    with tempfile.TemporaryDirectory() as place:
        for number, (target, shared) in enumerate(KINDS):
            table = write(Path(place) / str(number))
            some = spaced(every) if every > 1 else lambda calls: range(1, calls + 1)
            found = list(stopped(table, target, shared, some, kind))
            wrong = [one for one in found if one]
            name, whose = names[0] if target == "flag" else names[1], "a shared" if shared else "its own"
            yield Figure("F30", f"{name} under {whose} ledger, stopped at "
                         f"{'every one' if every == 1 else 'some'} of its writes", len(found), len(wrong),
                         "; ".join(wrong[:1]), "completed, released, verified")  # fmt: skip


def prove(effort: float) -> Iterator[Figure]:
    with short_runs():
        yield from figures(effort, SmallTable.write, Trial, ("classification", "regression"))
