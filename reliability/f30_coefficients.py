"""F30: `tacit regress` stopped at every one of its durable writes, one after the other, and taken up again.

Every run must then be completed by ``--resume``, released and verified at what a run that nobody stopped costs, and say
how many parts of releases the stop has lost: one at most.
"""

import json
from collections.abc import Iterator

from reliability.f30_writes import TOTAL, MortalDisk, Stoppable, figures
from reliability.figures import Figure
from reliability.small_table import EPSILON, SmallTable, facts_of, left_over, tacit
from tacit.ledger import read_ledger
from tacit.regression.newton.plan import PARTS

STEPS = {"flag": 5 * PARTS, "number": 7 * PARTS}  # that are charged: stages, each in its parts


class Trial(Stoppable):
    """A run of ``tacit regress``."""

    def start(self, disk: MortalDisk) -> str:
        declared = ("--schema", self.table.schema(self.target), "--epsilon", EPSILON)
        return self.run(disk, *self._regress, *declared, *self.budget)

    def go_on(self, disk: MortalDisk) -> str:
        """What a user has at hand after a stop: the table and the folder; facts alone are no run."""
        begun = (self.out / "checkpoint.safetensors").exists()
        return self.run(disk, *self._regress, "--resume") if begun else self.start(disk)

    @property
    def _regress(self) -> tuple[object, ...]:
        return "regress", self.table.private, "--out", self.out

    @property
    def lost(self) -> int:
        return int(facts_of(self.out)["regression"]["lost"])

    @property
    def fault(self) -> str:
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
        if told != (self.lost > 0):
            return "it does not say what the stop has lost"
        return left_over(self.out)

    @property
    def fault_of_one_stop(self) -> str:
        return "" if self.lost <= 1 else f"{self.lost} parts are lost"


def prove(effort: float) -> Iterator[Figure]:
    names = ("logistic regression", "linear regression")
    yield from figures(effort, lambda place: SmallTable.write(place, rows=300), Trial, names)
