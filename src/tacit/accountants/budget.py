"""How much may be spent, how several runs share it, and the hard stop before a block would pass it.

What the next block would cost is known before any data is read. A fixed schedule is checked by RDP and, where that is
too loose, by the certified PLD bound. An adaptive one is checked by a Renyi filter, because losses then may not simply
be added up. Several runs share a ledger in one of two ways: the ledger is opened as adaptive, or its budget is split
beforehand (:meth:`Budget.split`) and every run has its own share. A gate cannot see whether a later run was designed
after a look at an earlier one: whoever opens the ledger declares it.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain

import numpy as np

from tacit.accountants.failures import as_gaussian, failure_of, without_failures
from tacit.accountants.guarantee import check_delta, check_ledger
from tacit.accountants.pld.accountant import ledger_bracket
from tacit.accountants.renyi.balls_in_bins import are_whole_passes, in_passes
from tacit.accountants.renyi.conversion import rdp_bound
from tacit.accountants.renyi.divergences import renyi_curve
from tacit.accountants.renyi.filter import RenyiFilter
from tacit.accountants.renyi.moments import ORDERS
from tacit.accountants.search import most_within
from tacit.errors import BudgetError, InputError, RefusedError, check_positive, is_number
from tacit.ledger import (
    Charge,
    Charges,
    GaussianSumQuery,
    Ledger,
    LedgerFile,
    LedgerHeader,
    PoissonSample,
    SamplingEvent,
)
from tacit.types import Floats

Counts = Mapping[SamplingEvent, int]
# Some whole orders, a tenth of the work of all: any of them gives an upper bound, which often suffices
_FEW_ORDERS = tuple(order for order in ORDERS if order in (2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 19, 24, 32, 44, 63))
_CACHED_CHARGES = 64  # blocks repeat, whole ledgers do not


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that all releases together may cost.

    Example:
        >>> Budget(1.0, 1e-5).split([0.25, 0.75])[0]
        Budget(epsilon=0.25, delta=2.5e-06)
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check_delta(self.delta)
        check_positive("epsilon", self.epsilon)

    @classmethod
    def of(cls, ledger: Ledger) -> "Budget | None":
        """The budget that a ledger declared at opening, if any."""
        header = ledger.header
        return None if header.epsilon is None or header.delta is None else cls(header.epsilon, header.delta)

    def split(self, shares: Sequence[float]) -> list["Budget"]:
        """One budget per run, declared before the first; by basic composition they never add up to more than this."""
        if not shares or not all(is_number(share) and share > 0 for share in shares) or math.fsum(shares) > 1:
            raise InputError(f"shares must be positive and add up to at most 1, found {shares!r}")
        return [Budget(self.epsilon * share, self.delta * share) for share in shares]


class BudgetGate:
    """Called with the ledger and the next charges before each block; raises :class:`BudgetError` instead of returning.

    Args:
        budget: what may be spent.
        plan: charges to come that were fixed beforehand; if all of them fit, each block is only compared with them.
        paid_elsewhere: how many of the ledger's first steps are paid from another share of a split budget.

    What was checked is remembered: most calls compare counts or add two curves, and look at nothing but what was
    charged since the last one.
    """

    def __init__(self, budget: Budget, *, plan: Sequence[Charge] = (), paid_elsewhere: int = 0) -> None:
        self.budget = budget
        self._plan = tuple(plan)
        self._spent = _Spent(paid_elsewhere)
        self._known_good: Counts = {}
        self._previous: Counts = {}
        self._filter: RenyiFilter | None = None
        self._gate_without_failures: BudgetGate | None = None

    def __call__(self, ledger: Ledger, charges: Sequence[Charge]) -> None:
        block = replace(ledger, charges=tuple(charge for charge in charges if charge.steps))
        check_ledger(block, self.budget.delta)
        if not block.charges:
            return
        self._spent.update(ledger)
        if self._spent.fails or failure_of(block.charges):
            self._without_failures(ledger, block)
            return
        if ledger.header.schedule == "adaptive":
            within = self._filter_admits(block)
        elif self._spent.in_passes or in_passes(block.charges):  # they follow the order of steps: counts do not suffice
            within = self._renyi_epsilon(self._spent.curve_with(block, ORDERS)) <= self.budget.epsilon
        else:
            within = self._counts_fit(block)
        if not within:
            raise BudgetError(
                f"the next block of {block.steps} steps would exceed the budget of epsilon {self.budget.epsilon:g} at "
                f"delta {self.budget.delta:g} after {self._spent.steps} charged steps; stop here, or add noise"
            )

    def _without_failures(self, ledger: Ledger, block: Ledger) -> None:
        """Ask a gate with what failures leave of delta about the releases as if none failed."""
        both = replace(ledger, charges=(*ledger.charges, *block.charges))
        delta = without_failures(both, self.budget.delta)[1]
        if self._gate_without_failures is None or self._gate_without_failures.budget.delta != delta:
            self._gate_without_failures = BudgetGate(
                Budget(self.budget.epsilon, delta), plan=self._plan, paid_elsewhere=self._spent.paid_elsewhere
            )
        self._gate_without_failures(replace(ledger, charges=as_gaussian(ledger.charges)), as_gaussian(block.charges))

    def _filter_admits(self, block: Ledger) -> bool:
        if self._filter is None:
            first = (*self._spent.charges[:1], *block.charges)[0]
            self._filter = RenyiFilter.opened(self.budget.epsilon, self.budget.delta, first, block)
        return self._filter.admits(float(self._spent.curve_with(block, (self._filter.order,))[0]))

    def _renyi_epsilon(self, curve: Floats, orders: tuple[float, ...] = ORDERS) -> float:
        return rdp_bound(curve, orders, self.budget.delta)

    def _counts_fit(self, block: Ledger) -> bool:
        spent, more, limit = self._spent.counts, block.merged(), self.budget.epsilon
        if self._plan:
            whole = _add_counts(spent, replace(block, charges=self._plan).merged())
            self._plan, self._known_good = (), whole if self._fits(whole) else {}
        if self._is_known_good(more):
            return True
        if any(
            self._renyi_epsilon(self._spent.curve_with(block, some), some) <= limit for some in (_FEW_ORDERS, ORDERS)
        ):
            return True
        if len(spent) > _MOST_EVENTS and self._pld_epsilon(_with_less_noise(_add_counts(spent, more))) <= limit:
            return True
        cost = self._pld_epsilon(_add_counts(spent, more))
        if cost > limit or more != self._previous:
            self._previous = more
            return cost <= limit
        # a block that repeats: find out, once, how often it still may; epsilon grows about like the root of the steps
        guess = int(((limit / cost) ** 2 - 1) * (1 + self._spent.steps / block.steps)) if cost > 0 else 0
        times = most_within(lambda n: self._pld_epsilon(_add_counts(spent, more, n)), limit, 1 + guess)
        self._known_good = _add_counts(spent, more, times)
        return True

    def _is_known_good(self, more: Counts) -> bool:
        """Whether all that is spent, and more, is among what was found to fit; only what is new is compared."""
        spent, fresh, good = self._spent.counts, self._spent.fresh, self._known_good
        within = all(spent[event] + more.get(event, 0) <= good.get(event, 0) for event in chain(more, fresh))
        if within:
            fresh.clear()
        return within

    def _fits(self, counts: Counts) -> bool:
        """By RDP, which is quicker for many distinct events, or by the tighter PLD; both are upper bounds."""
        curve = renyi_curve(Ledger.planned([Charge(event, count) for event, count in counts.items()]))
        if self._renyi_epsilon(curve) <= self.budget.epsilon:
            return True
        ways = (_with_less_noise(counts), counts) if len(counts) > _MOST_EVENTS else (counts,)
        return any(self._pld_epsilon(one) <= self.budget.epsilon for one in ways)

    def _pld_epsilon(self, counts: Counts) -> float:
        ledger = Ledger.planned([Charge(event, count) for event, count in counts.items()])
        try:
            return ledger_bracket(ledger, self.budget.delta).upper
        except RefusedError:  # only the Renyi bound is proved for these events
            return self._renyi_epsilon(renyi_curve(ledger))


def charge_within(budget: Budget | None, file: LedgerFile, charges: Sequence[Charge], *, planned: int = 0) -> None:
    """Charge a release to its ledger, unless the budget forbids it: nothing is written before the check.

    Args:
        planned: the steps that the run announces with it, where they were not announced before.
    """
    if budget is not None:
        BudgetGate(budget)(file.ledger, charges)
    if planned:
        file.plan(planned)
    file.reserve(charges)


class _Spent:
    """Counts and Renyi curves of a growing ledger, adding only what is new."""

    def __init__(self, paid_elsewhere: int) -> None:
        self.paid_elsewhere = paid_elsewhere
        self._seen = Charges()
        self._forget_all()

    def _forget_all(self) -> None:
        self.counts: Counter[SamplingEvent] = Counter()
        self.fresh: set[SamplingEvent] = set()  # not yet compared with what is known to fit
        self.steps = 0
        self.fails = False
        self.in_passes = False
        self._whole_passes = True  # whether passes, so far, were charged whole: then their costs simply add up
        self._curves: dict[tuple[float, ...], tuple[Charges, Floats]] = {}  # by orders, and what they are the curves of

    @property
    def charges(self) -> Sequence[Charge]:
        """All that is spent of this budget."""
        return _without_first_steps(self._seen, self.paid_elsewhere)

    def update(self, ledger: Ledger) -> None:
        charges = Charges.of(ledger.charges)
        new = charges.since(self._seen) if self.steps else None
        self._seen = charges
        if new is None:  # the first look, a block that was settled at fewer steps, or another ledger: count afresh
            self._forget_all()
            new = list(self.charges)
        for charge in new:
            self.counts[charge.event] += charge.steps
            self.fresh.add(charge.event)
            self.steps += charge.steps
        self.fails = self.fails or failure_of(new) > 0
        self.in_passes = self.in_passes or in_passes(new)
        self._whole_passes = self._whole_passes and are_whole_passes(new)

    def curve_with(self, block: Ledger, orders: tuple[float, ...]) -> Floats:
        """The curve of all that is spent and of a block; evaluated only when asked for, as counts often suffice."""
        if self.in_passes and not (self._whole_passes and are_whole_passes(block.charges)):
            return renyi_curve(replace(block, charges=(*self.charges, *block.charges)), orders)
        if orders in self._curves:
            before, curve = self._curves[orders]
            new: Sequence[Charge] = self._seen.since(before) or ()
        else:
            curve, new = np.zeros(len(orders)), self.charges
        if new:
            curve = curve + _block_curve(tuple(new), orders)
        self._curves[orders] = self._seen, curve
        return curve + _block_curve(tuple(block.charges), orders)


def _without_first_steps(charges: Charges, steps: int) -> Sequence[Charge]:
    """The charges without the first so many steps."""
    if not steps:
        return charges
    left, kept = steps, []
    for charge in charges:
        kept.append(Charge(charge.event, max(0, charge.steps - left)))
        left = max(0, left - charge.steps)
    return [charge for charge in kept if charge.steps]


def _block_curve(charges: tuple[Charge, ...], orders: tuple[float, ...]) -> Floats:
    return (_short_curve if len(charges) <= _CACHED_CHARGES else _curve)(charges, orders)


def _curve(charges: tuple[Charge, ...], orders: tuple[float, ...]) -> Floats:
    return renyi_curve(Ledger(LedgerHeader(), charges), orders)


_short_curve = lru_cache(maxsize=1024)(_curve)


_MOST_EVENTS = 64  # distinct events, each of which takes PLD about a millisecond
_NOISE_STEP = 1e-3  # relative


def _with_less_noise(counts: Counts) -> Counts:
    """Fewer distinct events that cost a little more: noise is rounded down, as if less of it had been added."""
    total: Counter[SamplingEvent] = Counter()
    for event, count in counts.items():
        total[_rounded_noise(event)] += count
    return total


@lru_cache(maxsize=2**17)
def _rounded_noise(event: SamplingEvent) -> SamplingEvent:
    if not isinstance(event, PoissonSample):
        return event
    noise = math.exp(_NOISE_STEP * math.floor(math.log(event.noise_multiplier) / _NOISE_STEP)) * (1 - 1e-12)
    return PoissonSample(event.probability, (GaussianSumQuery(1.0, min(noise, event.noise_multiplier)),))


def _add_counts(counts: Counts, more: Counts, times: int = 1) -> Counts:
    total = Counter(counts)
    for event, count in more.items():
        total[event] += times * count
    return total
