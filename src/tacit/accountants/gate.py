"""A budget as a hard stop: what the next block would cost is known before any data is read (failure-modes F12, F13).

A fixed schedule is checked by RDP and, where that is too loose, by the certified PLD bound. An adaptive one is checked
by a Renyi filter, because losses then may not simply be added up. Several runs share a ledger in one of two ways: the
ledger is opened as adaptive, or its budget is split beforehand (:meth:`Budget.split`) and every run has its own share.
A gate cannot see whether a later run was designed after a look at an earlier one: whoever opens the ledger declares it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tacit.accountants.budget import Budget
from tacit.accountants.conversion import epsilon_from_rdp
from tacit.accountants.moments import Array
from tacit.accountants.pld_accountant import ledger_bracket
from tacit.accountants.rdp import ROUNDING
from tacit.accountants.renyi import ORDERS, renyi_curve
from tacit.accountants.renyi_filter import RenyiFilter
from tacit.accountants.search import most_within
from tacit.accountants.statement import check_ledger
from tacit.errors import BudgetError, RefusedError
from tacit.ledger import BallsInBinsStep, Charge, Ledger, LedgerHeader, SamplingEvent

Counts = Mapping[SamplingEvent, int]

# Some whole orders, a tenth of the work of all: any of them gives an upper bound, which often suffices
_QUICK = tuple(order for order in ORDERS if order in (2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 19, 24, 32, 44, 63))


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
        self._spent, self._quick = _Spent(), _Spent(_QUICK)
        self._known_good: Counts = {}
        self._previous: Counts = {}
        self._filter: RenyiFilter | None = None

    def __call__(self, ledger: Ledger, charges: Sequence[Charge]) -> None:
        ledger = replace(ledger, charges=ledger.charges[self._paid_elsewhere :])
        block = replace(ledger, charges=tuple(charge for charge in charges if charge.steps))
        check_ledger(block, self.budget.delta)
        if not block.charges:
            return
        after, limit = replace(ledger, charges=ledger.charges + block.charges), self.budget.epsilon
        in_passes = any(isinstance(charge.event, BallsInBinsStep) for charge in after.charges)
        if ledger.header.schedule == "adaptive":
            within = self._filter_admits(ledger, block, after if in_passes else None)
        elif in_passes:  # they follow the order of steps, so counts do not suffice
            within = self._renyi_epsilon(renyi_curve(after)) <= limit
        else:
            within = self._counts_fit(ledger, block)
        if not within:
            raise BudgetError(
                f"the next block of {block.steps} steps would exceed the budget of epsilon {self.budget.epsilon:g} at "
                f"delta {self.budget.delta:g} after {ledger.steps} charged steps; stop here, or add noise"
            )

    def _filter_admits(self, ledger: Ledger, block: Ledger, whole: Ledger | None) -> bool:
        if self._filter is None:
            first = (ledger.charges or block.charges)[0]
            self._filter = RenyiFilter.opened(self.budget.epsilon, self.budget.delta, first, ledger)
            self._spent = _Spent((self._filter.order,))
        if whole is not None:
            return self._filter.admits(self._filter.spent(whole))
        self._spent.update(ledger)
        return self._filter.admits(float(self._spent.curve_with(block)[0]))

    def _renyi_epsilon(self, curve: Array, orders: tuple[float, ...] = ORDERS) -> float:
        return epsilon_from_rdp(curve, orders, self.budget.delta)[0] * (1 + ROUNDING)

    def _counts_fit(self, ledger: Ledger, block: Ledger) -> bool:
        spent, more, limit = self._spent.update(ledger), block.merged(), self.budget.epsilon
        if self._plan:
            whole = _plus(spent, replace(ledger, charges=self._plan).merged())
            self._plan, self._known_good = (), whole if self._fits(whole) else {}
        if self._is_known_good(more):
            return True
        self._quick.update(ledger)
        if self._renyi_epsilon(self._quick.curve_with(block), _QUICK) <= limit:
            return True
        if self._renyi_epsilon(self._spent.curve_with(block)) <= limit:
            return True
        cost = self._pld_epsilon(_plus(spent, more))
        if cost > limit or more != self._previous:
            self._previous = more
            return cost <= limit
        # a block that repeats: find out, once, how often it still may; epsilon grows about like the root of the steps
        guess = int(((limit / cost) ** 2 - 1) * (1 + ledger.steps / block.steps)) if cost > 0 else 0
        times = most_within(lambda n: self._pld_epsilon(_plus(spent, more, n)), limit, 1 + guess)
        self._known_good = _plus(spent, more, times)
        return True

    def _is_known_good(self, more: Counts) -> bool:
        """Whether all that is spent, and more, is among what was found to fit; only what is new is compared."""
        spent, fresh = self._spent.counts, self._spent.fresh
        within = all(
            spent[event] + more.get(event, 0) <= self._known_good.get(event, 0) for event in fresh | more.keys()
        )
        if within:
            fresh.clear()
        return within

    def _fits(self, counts: Counts) -> bool:
        """By RDP, which is quicker for many distinct events, or by the tighter PLD; both are upper bounds."""
        curve = renyi_curve(Ledger.planned([Charge(event, count) for event, count in counts.items()]))
        return self._renyi_epsilon(curve) <= self.budget.epsilon or self._pld_epsilon(counts) <= self.budget.epsilon

    def _pld_epsilon(self, counts: Counts) -> float:
        ledger = Ledger.planned([Charge(event, count) for event, count in counts.items()])
        try:
            return ledger_bracket(ledger, self.budget.delta).upper
        except RefusedError:  # only the Renyi bound is proved for these events
            return self._renyi_epsilon(renyi_curve(ledger))


class _Spent:
    """Counts and Renyi curve of a growing ledger, adding only what is new."""

    def __init__(self, orders: tuple[float, ...] = ORDERS) -> None:
        self._orders = orders
        self._reset()

    def _reset(self) -> None:
        self.counts: Counter[SamplingEvent] = Counter()
        self.fresh: set[SamplingEvent] = set()  # not yet compared with what is known to fit
        self._curve: Array = np.zeros(len(self._orders))
        self._seen: tuple[Charge, ...] = ()
        self._pending: tuple[Charge, ...] = ()  # counted, but not yet in the curve

    def update(self, ledger: Ledger) -> Counts:
        if ledger.charges[: len(self._seen)] != self._seen:
            self._reset()  # the last block was settled at fewer steps, or this is another ledger: count afresh
        new = ledger.charges[len(self._seen) :]
        for charge in new:
            self.counts[charge.event] += charge.steps
            self.fresh.add(charge.event)
        self._pending += new
        self._seen = ledger.charges
        return self.counts

    def curve_with(self, block: Ledger) -> Array:
        """The curve of all that is spent and of a block; evaluated only when asked for, as counts often suffice."""
        if self._pending:
            self._curve = self._curve + _block_curve(self._pending, self._orders)
            self._pending = ()
        return self._curve + _block_curve(block.charges, self._orders)


@lru_cache(maxsize=1024)
def _block_curve(charges: tuple[Charge, ...], orders: tuple[float, ...]) -> Array:
    return renyi_curve(Ledger(LedgerHeader(), charges), orders)


def _plus(counts: Counts, more: Counts, times: int = 1) -> Counts:
    total = Counter(counts)
    for event, count in more.items():
        total[event] += times * count
    return total
