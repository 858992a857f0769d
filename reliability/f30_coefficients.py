"""F30: `tacit regress` stopped at every one of its durable writes, one after the other, and taken up again.

Every run must then be completed by ``--resume``, released and verified at what a run that nobody stopped costs, and say
how many parts of releases the stop has lost: one at most.
"""

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from reliability.f30_writes import KINDS, TOTAL, Killed, MortalDisk, spaced
from reliability.figures import Figure
from reliability.small_table import EPSILON, SmallTable, facts_of, left_over, tacit
from tacit.ledger import read_ledger
from tacit.regression.newton.plan import PARTS
from tacit.storage.disk import using

STEPS = {"flag": 5 * PARTS, "number": 7 * PARTS}  # that are charged: stages, each in its parts


@dataclass(frozen=True, slots=True)
class Trial:
    """A regression that may be stopped; with ``shared`` it charges a ledger outside its folder."""

    table: SmallTable
    target: str
    shared: bool
    name: str

    @property
    def out(self) -> Path:
        return self.table.folder / f"regression-{self.name}"

    @property
    def ledger(self) -> Path:
        return self.table.folder / f"shared-{self.name}.jsonl" if self.shared else self.out / "ledger.jsonl"

    def start(self, disk: MortalDisk) -> str:
        more = ("--budget", self.ledger, "--budget-epsilon", TOTAL) if self.shared else ()
        return self._run(disk, "--schema", self.table.schema(self.target), "--epsilon", EPSILON, *more)

    def go_on(self, disk: MortalDisk) -> str:
        """What a user has at hand after a stop: the table and the folder; facts alone are no run."""
        begun = (self.out / "checkpoint.safetensors").exists()
        return self._run(disk, "--resume") if begun else self.start(disk)

    def _run(self, disk: MortalDisk, *more: object) -> str:
        with using(disk):
            said = tacit("regress", self.table.private, "--out", self.out, *more)
        return f"exit {said.code}: {said.err}" if said.code else ""

    @property
    def is_finished(self) -> bool:
        return (self.out / "artefacts.json").exists()

    @property
    def lost(self) -> int:
        return int(facts_of(self.out)["regression"]["lost"])

    @property
    def fault(self) -> str:
        """What is wrong with the completed run; nothing if all is well."""
        bundle = self.out.with_suffix(".bundle")
        for words in (
            ("release", self.out, "--out", bundle),
            ("release", "--check", bundle),
            ("summary", self.out),
            ("account", self.out, "--json"),
        ):
            said = tacit(*words)
            if said.code:
                return f"tacit {words[0]}: {said.err}"
        best = min(one["epsilon"] for one in json.loads(said.out)["guarantees"] if one.get("is_bound"))
        steps = read_ledger(self.ledger).steps
        if not best <= (TOTAL if self.shared else EPSILON) or steps != STEPS[self.target]:
            return f"it cost epsilon {best} in {steps} steps"
        if tacit("regress", self.table.private, "--resume", "--out", self.out).code != 2:
            return "it goes on though it is finished"
        told = any("stops lost" in word for word in facts_of(self.out)["warnings"])
        return left_over(self.out) or ("" if told == (self.lost > 0) else "it does not say what the stop has lost")


def stopped(table: SmallTable, target: str, shared: bool, some: Callable[[int], Iterable[int]]) -> Iterator[str]:
    """What went wrong in each of the runs stopped at ``some`` of the calls; nothing where all is well."""
    whole, disk = Trial(table, target, shared, f"{target}-{shared}-whole"), MortalDisk()
    if found := whole.start(disk) or whole.fault:
        raise RuntimeError(f"a run that nobody stops: {found}")
    for last in some(len(disk.calls)):
        trial = Trial(table, target, shared, f"{target}-{shared}-{last}")
        try:
            yield f"it was not stopped at call {last}: {trial.start(MortalDisk(last))}"
            continue
        except Killed:
            pass
        if trial.is_finished:  # only the folder's name was still to be synced
            yield "" if disk.calls[last - 1 :] == ["sync_folder"] else f"finished before call {last}"
            continue
        found = trial.go_on(MortalDisk()) or trial.fault or ("" if trial.lost <= 1 else f"{trial.lost} parts are lost")
        yield found and f"call {last}, {disk.calls[last - 1]}: {found}"


def prove(effort: float) -> Iterator[Figure]:
    every = min(40, max(1, round(1 / effort)))
    with tempfile.TemporaryDirectory() as place:
        for number, (target, shared) in enumerate(KINDS):
            table = SmallTable.write(Path(place) / str(number), rows=300)
            some = spaced(every) if every > 1 else lambda calls: range(1, calls + 1)
            found = list(stopped(table, target, shared, some))
            wrong = [one for one in found if one]
            model, whose = "logistic" if target == "flag" else "linear", "a shared" if shared else "its own"
            yield Figure("F30", f"{model} regression under {whose} ledger, stopped at "
                         f"{'every one' if every == 1 else 'some'} of its writes", len(found), len(wrong),
                         "; ".join(wrong[:1]), "completed, released, verified")  # fmt: skip
