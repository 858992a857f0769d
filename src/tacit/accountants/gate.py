"""A budget as a hard stop: what the next block would cost is known before any data is read (failure-modes F12, F13).

A fixed schedule is checked by RDP and, where that is too loose, by the certified PLD bound. An adaptive one is checked
by a Renyi filter, because losses then may not simply be added up. Several runs share a ledger in one of two ways: the
ledger is opened as adaptive, or its budget is split beforehand (:meth:`Budget.split`) and every run has its own share.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from tacit.accountants.budget import Budget
from tacit.accountants.conversion import epsilon_from_rdp
from tacit.accountants.moments import Array
from tacit.accountants.pld import delta_bracket
from tacit.accountants.pld_accountant import pld_events
from tacit.accountants.rdp import ROUNDING
from tacit.accountants.renyi import ORDERS, renyi_curve
from tacit.accountants.renyi_filter import RenyiFilter
from tacit.accountants.search import most_within
from tacit.accountants.statement import check_ledger
from tacit.errors import BudgetError, RefusedError
from tacit.ledger import BallsInBinsStep, Charge, Ledger, LedgerHeader, SamplingEvent

Counts = Mapping[SamplingEvent, int]
_LOOK_AHEAD = 10**7  # blocks


class BudgetGate:
    """Called with the ledger and the next charges before each block; raises :class:`BudgetError` instead of returning.

    Args:
        budget: what may be spent.
        plan: charges to come that were fixed beforehand; if all of them fit, each block is only compared with them.
        paid_elsewhere: how many of the ledger's first charges are paid from another share of a split budget.

    What was checked is remembered, so that most calls compare counts or add two curves.
    """

    def __init__(self, budget: Budget, *, plan: Sequence[Charge] = (), paid_elsewhere: int = 0) -> None:
        self.budget = budget
        self._plan = tuple(plan)
        self._paid_elsewhere = paid_elsewhere
        self._spent = _Spent()
        self._known_good: Counts = {}
        self._previous: Counts = {}
        self._filter: RenyiFilter | None = None

    def __call__(self, ledger: Ledger, charges: Sequence[Charge]) -> None:
        ledger = replace(ledger, charges=ledger.charges[self._paid_elsewhere :])
        block = replace(ledger, charges=tuple(charge for charge in charges if charge.steps))
        check_ledger(block, self.budget.delta)
        if not block.charges:
            return
        after = replace(ledger, charges=ledger.charges + block.charges)
        if ledger.header.schedule == "adaptive":
            within = self._filter_admits(after)
        elif any(isinstance(charge.event, BallsInBinsStep) for charge in after.charges):
            within = self._renyi_fits(renyi_curve(after))  # passes follow the order of steps: counts do not suffice
        else:
            within = self._counts_fit(ledger, block)
        if not within:
            raise BudgetError(
                f"the next block of {block.steps} steps would exceed the budget of epsilon {self.budget.epsilon:g} at "
                f"delta {self.budget.delta:g} after {ledger.steps} charged steps; stop here, or add noise"
            )

    def _filter_admits(self, after: Ledger) -> bool:
        if self._filter is None:
            self._filter = RenyiFilter.opened(self.budget.epsilon, self.budget.delta, after.charges[0], after)
        return self._filter.admits(after)

    def _renyi_fits(self, curve: Array) -> bool:
        epsilon, _ = epsilon_from_rdp(curve, ORDERS, self.budget.delta)
        return epsilon * (1 + ROUNDING) <= self.budget.epsilon

    def _counts_fit(self, ledger: Ledger, block: Ledger) -> bool:
        spent, more = self._spent.update(ledger), block.merged()
        if self._plan:
            planned, self._plan = replace(ledger, charges=self._plan).merged(), ()
            self._known_good = _plus(spent, planned) if self._pld_fits(_plus(spent, planned)) else {}
        after = _plus(spent, more)
        if all(count <= self._known_good.get(event, 0) for event, count in after.items()):
            return True
        if self._renyi_fits(self._spent.curve + _block_curve(block.charges)):
            return True
        if not self._pld_fits(after):
            return False
        if more == self._previous:  # a block that repeats: find out, once, how often it still may
            times = most_within(lambda n: self._pld_fits(_plus(spent, more, n)), _LOOK_AHEAD)
            self._known_good = _plus(spent, more, times)
        self._previous = more
        return True

    def _pld_fits(self, counts: Counts) -> bool:
        charges = [Charge(event, count) for event, count in counts.items()]
        try:
            events = pld_events(Ledger.planned(charges))
        except RefusedError:  # only the Renyi bound is proved for these events
            return self._renyi_fits(renyi_curve(Ledger.planned(charges)))
        return delta_bracket(events, self.budget.epsilon).upper <= self.budget.delta


class _Spent:
    """Counts and Renyi curve of a growing ledger, adding only what is new."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self.counts: Counter[SamplingEvent] = Counter()
        self.curve: Array = renyi_curve(Ledger())
        self._seen: tuple[Charge, ...] = ()

    def update(self, ledger: Ledger) -> Counts:
        seen = len(self._seen)
        if seen and (len(ledger.charges) < seen or ledger.charges[seen - 1] is not self._seen[-1]):
            self._reset()  # the last block was settled at fewer steps, or this is another ledger: count afresh
        new = ledger.charges[len(self._seen) :]
        for charge in new:
            self.counts[charge.event] += charge.steps
        if new:
            self.curve = self.curve + _block_curve(new)
        self._seen = ledger.charges
        return self.counts


@lru_cache(maxsize=1024)
def _block_curve(charges: tuple[Charge, ...]) -> Array:
    return renyi_curve(Ledger(LedgerHeader(), charges))


def _plus(counts: Counts, more: Counts, times: int = 1) -> Counts:
    total = Counter(counts)
    for event, count in more.items():
        total[event] += times * count
    return total
