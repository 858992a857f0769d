"""What an accountant says: a guarantee with everything needed to read it rightly, or a refusal with its reason."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from tacit.errors import InputError, RefusedError, check_count, is_number
from tacit.ledger import BallsInBinsStep, Ledger, Neighbours, SamplingEvent, Tuned, Unit

if TYPE_CHECKING:
    from tacit.evidence import Evidence

Notion = Literal["dp", "bayesian_dp"]
_BY_RENYI = ("balls_in_bins", "discrete_poisson", "fixed_size", "thresholded", "tuned")


@dataclass(frozen=True, slots=True)
class Guarantee:
    """(epsilon, delta) and what it means.

    Args:
        epsilon: the number to report; an upper bound if ``is_bound``.
        notion: "dp" (worst case over all data) or "bayesian_dp" (typical data); the two are never compared silently.
        lower: where known, a certified lower bound of the true epsilon of the recorded mechanisms.
        percentile: for statements about a share of the data, that share.
    """

    epsilon: float
    delta: float
    notion: Notion
    neighbours: Neighbours
    unit: Unit
    accountant: str
    assumptions: tuple[str, ...]
    is_bound: bool
    lower: float | None = None
    percentile: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "assumptions": list(self.assumptions)}


@dataclass(frozen=True, slots=True)
class Refusal:
    """An accountant that cannot read a ledger says so, and why; it never guesses."""

    accountant: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {"accountant": self.accountant, "refused": self.reason}


def best_bound(results: Iterable[Guarantee | Refusal]) -> Guarantee | None:
    """The headline: the smallest rigorous worst-case bound, if there is one.

    Several bounds at one delta hold together, so the smallest does; approximations and other notions never count.
    """
    bounds = [one for one in results if isinstance(one, Guarantee) and one.is_bound and one.notion == "dp"]
    return min(bounds, key=lambda one: one.epsilon, default=None)


def check_delta(delta: float, dataset_size: int | None = None) -> None:
    """delta must lie in (0, 1) and, where the number of units is declared, below one over it."""
    if not (is_number(delta) and 0 < delta < 1):
        raise InputError(f"delta must lie strictly between 0 and 1, found {delta!r}")
    if dataset_size is None:
        return
    check_count("dataset_size", dataset_size)
    if delta >= 1 / dataset_size:
        raise InputError(
            f"delta {delta:g} is not below 1/{dataset_size}: it would allow the full publication of a record; "
            f"choose a smaller one, such as {0.1 / dataset_size:.1g}"
        )


class Accountant(Protocol):
    """Reads a ledger and says what it cost. Pure: the same ledger and delta give the same guarantee.

    Raises:
        InputError: delta cannot be used.
        RefusedError: the ledger holds an event, or was run in a way, for which this accountant has no honest number.
    """

    @property
    def name(self) -> str: ...

    def guarantee(self, ledger: Ledger, *, delta: float) -> Guarantee: ...


class EvidenceAccountant(Protocol):
    """Reads a ledger together with evidence about records (the private side-car): typical and single records.

    Raises: as an :class:`Accountant`; and RefusedError where the evidence is missing or cannot carry the statement.
    """

    @property
    def name(self) -> str: ...

    def guarantee(self, ledger: Ledger, evidence: "Evidence", *, delta: float) -> Guarantee: ...


def check_ledger(ledger: Ledger, delta: float) -> None:
    """Refuse, before any computation, a delta that means nothing and events of another kind of neighbour."""
    check_delta(delta, ledger.header.dataset_size)
    for charge in ledger.charges:
        if charge.event.neighbours != ledger.header.neighbours:
            raise RefusedError(
                f"a {charge.event.kind} event speaks of {charge.event.neighbours} neighbours, "
                f"but the ledger was opened for {ledger.header.neighbours}; use one ledger for each"
            )


def refuse_event(accountant: str, event: SamplingEvent) -> RefusedError:
    """The error of an accountant that has no proved formula for an event."""
    kind = getattr(event, "kind", type(event).__name__)
    other = "; rdp reads them" if kind in _BY_RENYI and accountant != "rdp" else ""
    return RefusedError(f"{accountant} cannot read {kind} events: no bound proved for them is built in{other}")


def refuse_adaptive(accountant: str, ledger: Ledger) -> None:
    """Composing privacy losses needs events that were fixed beforehand, not chosen after a look at outputs."""
    if ledger.header.schedule == "adaptive":
        raise RefusedError(f"{accountant} does not hold for an adaptive schedule; rdp states it as a Renyi filter")


def assumptions(ledger: Ledger) -> tuple[str, ...]:
    """The sentences without which no number about this ledger may be shown."""
    sentences = list(ledger.header.assumptions)
    if ledger.hypothetical:
        sentences.append("hypothetical: no run was recorded")
    if ledger.header.randomness == "seeded":
        sentences.append("seeded randomness: not releasable")
    if ledger.header.filter_order is not None:
        sentences.append(f"an individual Renyi filter of order {ledger.header.filter_order:g} watched every record")
    if ledger.steps < ledger.planned_steps and ledger.header.schedule == "fixed":
        sentences.append("holds if the early stop ignored the outputs")
    if ledger.runs > 1 and ledger.header.schedule == "fixed":
        sentences.append("holds if the settings of later runs were fixed before the outputs of earlier ones were seen")
    if any(isinstance(charge.event, Tuned) for charge in ledger.charges):
        sentences.append(
            "search: settings and the number of trials were drawn from chance alone, and only the best trial is known; "
            "how long the search took tells their number and is not covered"
        )
    if any(isinstance(charge.event, BallsInBinsStep) for charge in ledger.charges):
        sentences.append("every balls-in-bins pass was finished or charged in full before the next began")
    return tuple(sentences)


def statement(
    ledger: Ledger,
    *,
    accountant: str,
    epsilon: float,
    delta: float,
    is_bound: bool,
    lower: float | None = None,
    also: tuple[str, ...] = (),
    notion: Notion = "dp",
    percentile: float | None = None,
) -> Guarantee:
    """A guarantee about this ledger (worst-case unless said), with its unit, its neighbours and its sentences."""
    if math.isnan(epsilon):
        raise ArithmeticError(f"{accountant} came to no number; nothing is reported")
    if math.isinf(epsilon):
        raise RefusedError(f"{accountant} finds no finite epsilon: the noise is too small for so many steps; add noise")
    return Guarantee(
        epsilon=max(0.0, float(epsilon)),
        delta=delta,
        notion=notion,
        neighbours=ledger.header.neighbours,
        unit=ledger.header.unit,
        accountant=accountant,
        assumptions=assumptions(ledger) + also,
        is_bound=is_bound,
        lower=lower,
        percentile=percentile,
    )
