"""What every accountant has in common: what it must check first, and the sentences that belong to its number."""

import math
from typing import Protocol

from tacit.accountants.guarantee import Guarantee, Notion, check_delta
from tacit.errors import RefusedError
from tacit.ledger import BallsInBinsStep, Ledger, SamplingEvent


class Accountant(Protocol):
    """Reads a ledger and says what it cost. Pure: the same ledger and delta give the same guarantee.

    Raises:
        InputError: delta cannot be used.
        RefusedError: the ledger holds an event, or was run in a way, for which this accountant has no honest number.
    """

    @property
    def name(self) -> str: ...

    def guarantee(self, ledger: Ledger, *, delta: float, evidence: object = None) -> Guarantee: ...


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


_BY_RENYI = ("balls_in_bins", "discrete_poisson", "fixed_size")


def refuse_adaptive(accountant: str, ledger: Ledger) -> None:
    """Failure-modes F13: composing privacy losses needs events that were fixed beforehand."""
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
