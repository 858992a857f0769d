"""Releases that may fail with a known chance: it is taken off delta, and the rest is accounted as if they did not.

A unit that is alone in an undeclared cell changes nothing but whether the cell is shown, which happens with a chance of
at most the failure p; any other unit moves a Gaussian sum. So either the whole interaction is within total variation p
of one in which that unit changes nothing there, or the Gaussian reading holds. Failures of several releases add up.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

from tacit.errors import RefusedError
from tacit.ledger import Charge, Ledger, ThresholdedSample

RESERVED = 0.2  # of delta, in a shared ledger that begins with a release that may fail


def failure_of(charges: Iterable[Charge]) -> float:
    """The chance that any of these releases fails, at most."""
    return math.fsum(one.steps * one.event.failure for one in charges if isinstance(one.event, ThresholdedSample))


def without_failures(ledger: Ledger, delta: float) -> tuple[Ledger, float]:
    """The ledger as if nothing failed, and what is left of delta; refused if nothing is."""
    failure = failure_of(ledger.charges)
    if not failure:
        return ledger, delta
    if ledger.header.schedule == "adaptive":
        failure = _reserved(ledger, failure)
    left = (delta - failure) * (1 - 1e-12)
    if left <= 0:
        raise RefusedError(
            f"levels found by a threshold fail with a chance of up to {failure:.3g}, which is not below delta {delta:g}"
        )
    return replace(ledger, charges=as_gaussian(ledger.charges)), left


def as_gaussian(charges: Iterable[Charge]) -> tuple[Charge, ...]:
    """The charges as if nothing could fail."""
    return tuple(
        Charge(event.gaussian if isinstance(event, ThresholdedSample) else event, charge.steps)
        for charge in charges
        for event in (charge.event,)
    )


def _reserved(ledger: Ledger, failure: float) -> float:
    """What an adaptive ledger sets aside for failures: fixed before the first output, as its filter is.

    A filter's order and limit may not follow outputs, so that delta may not shrink with later charges either. If the
    first charge can fail, RESERVED of delta is set aside for good, and failures may add up to that.
    """
    if not isinstance(ledger.charges[0].event, ThresholdedSample):
        raise RefusedError(
            "levels found by a threshold must be the first that a shared ledger is charged for; declare the levels, or "
            "open a ledger with this run"
        )
    reserved = RESERVED * (ledger.header.delta or 0.0)
    if failure > reserved * (1 + 1e-9):
        raise RefusedError(
            f"levels were asked for too often: their failures add up to {failure:.3g}, more than the {reserved:.3g} of "
            "delta that a shared ledger sets aside; declare the levels"
        )
    return reserved
