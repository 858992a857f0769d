"""An individual Renyi filter: a record takes part until its own privacy is used up (Feldman and Zrnic 2021).

At each step the Renyi divergence A(lambda, q, r_t(x)) that the step would cost record x is computed for *every* record,
drawn or not, from what was released before and the record itself. A record whose sum would pass the budget is left out
from then on. So no record's sum ever exceeds the budget, whatever the outputs were, and the whole run is
(lambda + 1, budget)-Renyi private: a rigorous number for every record, though most of them could go on far longer than
the worst case. Which records are out is private; nothing tells.

The price is one pass over all records per step.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tacit.accountants import check_delta
from tacit.accountants.bayesian import MOMENTS, privacy_costs
from tacit.accountants.renyi.conversion import conversion_cost
from tacit.errors import InputError, check_positive
from tacit.ledger import Ledger, LedgerHeader
from tacit.losses import RecordGroup
from tacit.mechanisms import GaussianSumMechanism as Mechanism
from tacit.randomness import Randomness
from tacit.sampling import Records
from tacit.training.evidence import SumOfRecords, rate_and_noise
from tacit.training.plan import PrivacyPlan
from tacit.training.reading.items import same_records
from tacit.training.reading.samples import Drawn
from tacit.training.reading.source import DataSource

_GRID = 513
_SOME, _ROUNDING = 0.05, 1e-2  # chance shows in more than a few records, and by more than rounding
_SLACK = 1e-9  # relative room for rounding in the sums


@dataclass(frozen=True, slots=True)
class IndividualFilter:
    """No record's own (epsilon, delta) may exceed this.

    Args:
        epsilon, delta: the budget of each single record.
        moment: lambda, fixed before the run; None takes the one at which the first step could be repeated most often.
    """

    epsilon: float
    delta: float
    moment: int | None = None

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)
        check_delta(self.delta)
        if self.moment is not None and (isinstance(self.moment, bool) or self.moment not in MOMENTS):
            raise InputError(f"moment must be one of {MOMENTS[0]} to {MOMENTS[-1]} in the table, found {self.moment!r}")

    def allowed(self, moment: int) -> float:
        """The sum of lambda D at this order that the budget admits."""
        return moment * (self.epsilon - float(conversion_cost((moment + 1.0,), self.delta)[0]))

    def chosen(self, probability: float, noise_multiplier: float) -> int:
        """lambda, from the budget and the first event alone."""
        if self.moment is not None:
            return self.moment
        costs = privacy_costs(probability, 1 / noise_multiplier)[0]
        repeats = [self.allowed(moment) / cost for moment, cost in zip(MOMENTS, costs, strict=True)]
        if max(repeats) <= 0:
            raise InputError(f"epsilon {self.epsilon:g} at delta {self.delta:g} is too small for any order")
        return MOMENTS[int(np.argmax(repeats))]


def filter_header(header: LedgerHeader, wanted: IndividualFilter, plan: PrivacyPlan, first: Mechanism) -> LedgerHeader:
    """Declare the filter in the ledger, before the first step."""
    moment = wanted.chosen(*rate_and_noise(plan, first))
    return replace(header, filter_order=moment + 1.0, filter_divergence=wanted.allowed(moment) / moment)


class FilteredRun:
    """The sums of all records in one run, and who still takes part. Private."""

    def __init__(
        self,
        wanted: IndividualFilter,
        clipped_sum: SumOfRecords,
        plan: PrivacyPlan,
        source: DataSource,
        ledger: Ledger,
        randomness: Randomness,
    ) -> None:
        if ledger.steps:
            raise InputError("an individual filter cannot go on with a ledger that has charges: its sums are not kept")
        if not isinstance(plan.unit, Records):
            raise InputError("an individual filter watches records, but the plan protects another unit")
        if source.views is not None:
            raise InputError("an individual filter needs one view of each record")
        self._wanted, self._clipped_sum, self._plan, self._randomness = wanted, clipped_sum, plan, randomness
        self._records = source.all(randomness)
        if not all(map(_same_group, self._records, source.all(randomness))):  # the step would see other records
            raise InputError("an individual filter needs records without chance; random transforms must be off")
        self._spent = np.zeros(len(source))
        assert ledger.header.filter_order is not None  # the engine has declared it
        self._moment = round(ledger.header.filter_order) - 1
        self._checked = False

    @property
    def spent(self) -> NDArray[np.float64]:
        """The Renyi sum of each record so far."""
        return self._spent

    def admit(self, drawn: Drawn, params: Mapping[str, Tensor]) -> Drawn:
        """Charge every record that may still take part; the sample without those that may not."""
        q, z = rate_and_noise(self._plan, drawn.mechanism)
        shares = self._shares(drawn.mechanism, params)
        grid = np.linspace(0, 1, _GRID)
        costs = np.interp(shares**2, grid**2, privacy_costs(q, grid / z, [self._moment])[:, 0])  # convex: from above
        active = (self._spent + costs) * (1 + _SLACK) <= self._wanted.allowed(self._moment)
        self._spent[active] += costs[active]
        return drawn.only(np.flatnonzero(active[drawn.units]))

    def _shares(self, mechanism: Mechanism, params: Mapping[str, Tensor]) -> NDArray[np.float64]:
        """The share of every record at this step, drawn or not."""
        norms = self._squared_norms(mechanism, params)
        if not self._checked:
            # by chance inside the losses a record could move the release further than what was charged for it
            again = self._squared_norms(mechanism, params)
            if float(((norms - again).abs() > _ROUNDING * norms).any(1).double().mean()) > _SOME:
                raise InputError("an individual filter needs losses without chance; dropout must be off")
            self._checked = True
        shares: NDArray[np.float64] = mechanism.shares(norms).cpu().numpy()
        return shares

    def _squared_norms(self, mechanism: Mechanism, params: Mapping[str, Tensor]) -> Tensor:
        chance = self._randomness.record_chance(np.arange(len(self._spent)))
        return self._clipped_sum(self._records, params, mechanism, chance).squared_norms


def _same_group(one: RecordGroup, other: RecordGroup) -> bool:
    return np.array_equal(one.places, other.places) and same_records(one.batch, other.batch)
