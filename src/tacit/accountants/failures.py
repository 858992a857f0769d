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


def failure_of(charges: Iterable[Charge]) -> float:
    """The chance that any of these releases fails, at most."""
    return math.fsum(one.steps * one.event.failure for one in charges if isinstance(one.event, ThresholdedSample))


def without_failures(ledger: Ledger, delta: float) -> tuple[Ledger, float]:
    """The ledger as if nothing failed, and what is left of delta; refused if nothing is."""
    failure = failure_of(ledger.charges)
    if not failure:
        return ledger, delta
    if ledger.header.schedule == "adaptive":
        raise RefusedError("levels found by a threshold need a ledger with a fixed schedule: declare the levels")
    left = (delta - failure) * (1 - 1e-12)
    if left <= 0:
        raise RefusedError(
            f"levels found by a threshold fail with a chance of up to {failure:.3g}, which is not below delta {delta:g}"
        )
    charges = tuple(
        Charge(event.gaussian if isinstance(event, ThresholdedSample) else event, charge.steps)
        for charge in ledger.charges
        for event in (charge.event,)
    )
    return replace(ledger, charges=charges), left
