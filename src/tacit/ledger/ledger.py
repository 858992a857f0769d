"""A ledger as a value: a header of declared facts and the charges that were made under it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from tacit.errors import InputError, check_choice, check_count, check_inside, check_positive, check_texts
from tacit.ledger.charges import Charge, Charges
from tacit.ledger.events import Neighbours, SamplingEvent, Unit

Randomness = Literal["secure", "seeded"]
Schedule = Literal["fixed", "adaptive"]


@dataclass(frozen=True, slots=True)
class LedgerHeader:
    """What was declared when the ledger was opened. All of it is public.

    Args:
        unit: whose presence is protected.
        neighbours: which data sets count as neighbours.
        dataset: a declared name, never a hash, size or path of the data.
        dataset_size: the declared public number of units, or None.
        epsilon, delta: the declared budget, or None.
        schedule: "fixed" if every event was fixed before the run, "adaptive" if noise, rate or stop may follow outputs.
        randomness: "seeded" marks a run that can be repeated, hence must never be released.
        filter_order, filter_divergence: of an individual Renyi filter that left out every record whose own divergence
            at this order would have passed the other number; None without one.
        assumptions: further sentences that every statement about this ledger has to repeat.
    """

    unit: Unit = "record"
    neighbours: Neighbours = "add_remove"
    dataset: str = "unnamed"
    dataset_size: int | None = None
    epsilon: float | None = None
    delta: float | None = None
    schedule: Schedule = "fixed"
    randomness: Randomness = "secure"
    filter_order: float | None = None
    filter_divergence: float | None = None
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, allowed in (("unit", Unit), ("neighbours", Neighbours), ("schedule", Schedule),
                              ("randomness", Randomness)):  # fmt: skip
            check_choice(name, getattr(self, name), get_args(allowed))
        if not isinstance(self.dataset, str):
            raise InputError(f"dataset must be a declared name, found {self.dataset!r}")
        if self.epsilon is not None:
            check_positive("epsilon", self.epsilon)
        if self.delta is not None:
            check_inside("delta", self.delta)
        check_texts("assumptions", self.assumptions)
        if self.dataset_size is not None:
            check_count("dataset_size", self.dataset_size)
        if (self.filter_order is None) != (self.filter_divergence is None):
            raise InputError("filter_order and filter_divergence belong together: give both or neither")

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "LedgerHeader":
        return cls(**{**values, "assumptions": tuple(values["assumptions"])})


@dataclass(frozen=True, slots=True)
class Ledger:
    """All that accountants may look at.

    ``hypothetical`` marks a ledger of steps that were never run, as in ``tacit account --poisson``. ``planned_steps``
    is what runs declared before they started; fewer charged steps mean that a run stopped early. ``runs`` is how
    many there were: the settings of a later one may have been chosen after seeing an earlier one's outputs.
    """

    header: LedgerHeader = field(default_factory=LedgerHeader)
    charges: Sequence[Charge] = ()
    planned_steps: int = 0
    runs: int = 0
    hypothetical: bool = False

    @classmethod
    def planned(cls, charges: Iterable[Charge], header: LedgerHeader | None = None) -> "Ledger":
        """A hypothetical ledger, for questions asked before a run.

        Example:
            >>> from tacit.ledger import GaussianSumQuery, PoissonSample
            >>> event = PoissonSample(probability=0.01, queries=(GaussianSumQuery(1.0, 1.1),))
            >>> Ledger.planned([Charge(event, 1000)]).steps
            1000
        """
        charges = tuple(charges)
        if header is None:
            neighbours: Neighbours = charges[0].event.neighbours if charges else "add_remove"
            header = LedgerHeader(neighbours=neighbours)
        return cls(header, charges, sum(charge.steps for charge in charges), 1, hypothetical=True)

    @property
    def steps(self) -> int:
        return Charges.of(self.charges).steps

    def merged(self) -> Counter[SamplingEvent]:
        """Distinct events with how often each was released; composition does not depend on the order."""
        return +counted(self.charges)


def counted(charges: Iterable[Charge]) -> Counter[SamplingEvent]:
    """How many steps of each event there are."""
    counts: Counter[SamplingEvent] = Counter()
    for charge in charges:
        counts[charge.event] += charge.steps
    return counts
