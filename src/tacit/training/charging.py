"""What each step of a run is charged for: the ledger, the mechanism of every step, blocks reserved ahead of them.

The mechanism that a step is charged for is the very object that its release uses: both are taken from here.
"""

import math
import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from tacit.accountants import BudgetGate
from tacit.distributed import Ranks, SharedLedger, has_lost, open_ledger
from tacit.errors import InputError
from tacit.ledger import Charge, Ledger, LedgerFile, LedgerHeader, SamplingEvent
from tacit.mechanisms import GaussianSumMechanism
from tacit.training.plan import PrivacyPlan, whole_passes


class ChargedAhead:
    """The blocks of one loop that have steps left; those that are used up are forgotten, however long it runs.

    Example:
        >>> ahead = ChargedAhead(steps_per_pass=1)
        >>> ahead.charge(number=3, steps=20)
        >>> ahead.begin()
        >>> ahead.begun()
        {3: 1}
    """

    def __init__(self, steps_per_pass: int) -> None:
        self._each = steps_per_pass
        self._blocks: deque[tuple[int, int]] = deque()
        self._begun = 0  # steps of these blocks
        self.mechanisms: dict[int, GaussianSumMechanism] = {}  # of charged steps whose samples are still to come
        self._has_ended = False
        self._one_thread = threading.Lock()  # a step begins before the end, and is counted, or not at all

    def charge(self, number: int, steps: int) -> None:
        """A block, by its number in the ledger."""
        self._blocks.append((number, steps))

    def begin(self) -> None:
        """The next step, unless the loop was settled: nobody would pay for it."""
        with self._one_thread:
            if self._has_ended:
                raise InputError("this loop has ended: its PrivateGradient was closed, or the program is ending")
            self._begun += 1
            if self._begun == self._blocks[0][1]:
                self._blocks.popleft()
                self._begun = 0

    def end(self) -> None:
        """From now on no step can begin, so that what has begun is what is paid for."""
        with self._one_thread:
            self._has_ended = True

    def begun(self) -> dict[int, int]:
        """Of each block that is not used up, by its number, the steps that have begun; passes are whole."""
        left, found = whole_passes(self._begun, self._each), {}
        for number, steps in self._blocks:
            if left < steps:
                found[number] = left
            left = max(0, left - steps)
        return found


class Charging:
    """The ledger of a run, and the mechanism of each of its steps.

    Args:
        mechanism: of every step, but for the noise where the method has its own.
        header: of the ledger, if it has to be made.
        stddev: a method's own noise on the sum at each step, in place of the plan's.
        beside: what the run will release apart from its steps; charged with the first block of them.
        goes_on: whether a run is taken up, whose ledger must be there: it is never made anew.
    """

    def __init__(
        self,
        plan: PrivacyPlan,
        mechanism: GaussianSumMechanism,
        header: LedgerHeader,
        ranks: Ranks,
        *,
        stddev: Callable[[int], float] | None,
        beside: Sequence[Charge],
        goes_on: bool,
    ) -> None:
        self.mechanism, self.goes_on, self.header = mechanism, goes_on, header
        self.charged_before = 0  # steps in the ledger that are not part of this run, or were lost to it
        self._plan, self._ranks, self._beside = plan, ranks, beside
        self._stddev = stddev
        self._stddevs = array("d")  # of each step, NaN before it was asked for; it is never asked for again
        self._last: int | None = None  # the last planned step
        self._at_once = plan.steps_at_once(1)  # so many are charged ahead, once their number is known
        self._gate: BudgetGate | None = None
        self._file: LedgerFile | SharedLedger | None = None

    # The ledger

    @property
    def file(self) -> LedgerFile | SharedLedger:
        """The ledger, made when it is first needed: a run that is refused before it begins leaves none behind."""
        if self._file is None:
            versions = self._plan.versions()
            self._file = open_ledger(self._ranks, self._plan.ledger, self.header, versions, create=not self.goes_on)
        return self._file

    @property
    def ledger(self) -> Ledger:
        """All that has been charged; before a ledger is made, nothing but what it will declare."""
        return Ledger(self.header) if self._file is None else self._file.ledger

    def released(self, loops: Iterable[ChargedAhead]) -> Ledger:
        """What was charged for the samples that were given out in these loops: never less than what was released."""
        begun = {number: steps for ahead in loops for number, steps in ahead.begun().items()}
        return self.ledger if self._file is None else self._file.ledger_if_settled(begun)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    # Steps

    def mechanism_at(self, step: int) -> GaussianSumMechanism:
        """The mechanism of a step. A method is asked for its noise once: charge and release read the same answer.

        Beyond the last planned step, to the end of its pass, steps are charged but never run: like the last one.
        """
        if self._stddev is None:
            return self.mechanism
        step = step if self._last is None else min(step, self._last)
        self._stddevs.extend([math.nan] * (step + 1 - len(self._stddevs)))
        if math.isnan(self._stddevs[step]):
            self._stddevs[step] = self._stddev(step)
        return self.mechanism.with_stddev(self._stddevs[step])

    def plan_steps(self, first: int, steps: int) -> None:
        """A run of so many steps begins after ``first`` of them; refused if the budget does not cover it."""
        self._last = steps - 1
        self._at_once = self._plan.steps_at_once(steps)
        if self._plan.budget is not None:  # given the whole schedule, the gate checks it once, not at every block
            whole = self._planned(first, self._whole_passes(steps - first))
            self._gate = BudgetGate(self._plan.budget, plan=[*whole, *self._due(first)])
            self._gate(self.ledger, [*self._planned(first, self._block(steps - first)), *self._due(first)])

    def declare(self, first: int, steps: int) -> None:
        """Write into the ledger, before anything is charged, how many steps the run will take or where it goes on."""
        if first == 0:
            self.file.plan(steps + sum(charge.steps for charge in self._beside))
        else:
            self.file.resume(first, paid_again=self.ledger.steps - self.charged_before - first)
        self.charged_before = self.ledger.steps - first + sum(charge.steps for charge in self._due(first))

    def is_due(self, step: int) -> bool:
        """Whether a block begins at this step of the loop."""
        return step % self._whole_passes(self._at_once) == 0

    def reserve_block(self, step: int, left: int, ahead: ChargedAhead) -> None:
        """Charge the block that begins at this step, when so many steps are left, and note it in ``ahead``."""
        number, mechanisms = self.reserve(step, self._block(left))
        ahead.charge(number, len(mechanisms))
        ahead.mechanisms.update(enumerate(mechanisms, start=step))

    def reserve(self, step: int, count: int) -> tuple[int, list[GaussianSumMechanism]]:
        """Check the budget, then charge the next ``count`` steps, by the very mechanisms that their releases use."""
        mechanisms = [self.mechanism_at(step + ahead) for ahead in range(count)]
        charges = self.charges(mechanisms)
        if self._gate is not None:
            self._gate(self.ledger, [*charges, *self._due(step)])
        number = self.file.reserve(charges)
        if self._due(step):
            self.file.reserve(self._due(step))
        return number, mechanisms

    def settle(self, ahead: ChargedAhead) -> None:
        """Give back what was reserved for steps that have not begun."""
        if has_lost() or self.file.broken:
            return  # the blocks stay charged in full; the error that broke it is on its way
        for number, steps in reversed(ahead.begun().items()):  # the last one first: what follows it is counted anew
            self.file.settle(number, steps)

    def charges(self, mechanisms: Iterable[GaussianSumMechanism]) -> list[Charge]:
        """Equal neighbours in the schedule share an entry."""
        return [Charge(event, sum(1 for _ in same)) for event, same in groupby(self._events(mechanisms))]

    def _events(self, mechanisms: Iterable[GaussianSumMechanism]) -> Iterator[SamplingEvent]:
        last: GaussianSumMechanism | None = None
        for mechanism in mechanisms:
            if mechanism is not last:
                last, event = mechanism, self._plan.sampling.event(mechanism.queries)
            yield event

    def _planned(self, step: int, count: int) -> list[Charge]:
        if self._stddev is None:  # the same event at every step
            return [Charge(self._plan.sampling.event(self.mechanism.queries), count)]
        return self.charges(self.mechanism_at(step + ahead) for ahead in range(count))

    def _due(self, step: int) -> Sequence[Charge]:
        """What is charged beside the block that begins at this step."""
        return self._beside if step == 0 else ()

    def _block(self, left: int) -> int:
        """How many steps are charged at once when so many are left."""
        return self._whole_passes(min(self._at_once, left))

    def _whole_passes(self, steps: int) -> int:
        """Steps that are drawn together are charged together, so that no later pass is taken for the rest of one."""
        return whole_passes(steps, self._plan.sampling.steps_per_pass)
