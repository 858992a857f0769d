"""Ledgers as dp-accounting events and back, so that anyone can check our numbers with another library.

dp-accounting keeps the ratio of noise to sensitivity only; what is lost (groups, clip norms) cannot come back.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from tacit.errors import InputError, RefusedError
from tacit.ledger import Charge, FixedSizeSample, GaussianSumQuery, Ledger, PoissonSample, SamplingEvent


def to_dp_event(ledger: Ledger) -> Any:
    """The ledger as one ``dp_accounting`` event."""
    dp = _library()
    return dp.ComposedDpEvent(
        [dp.SelfComposedDpEvent(_event(dp, event), steps) for event, steps in ledger.merged().items()]
    )


def from_dp_event(event: Any) -> Ledger:
    """A hypothetical ledger from a ``dp_accounting`` event; an event without a counterpart is refused by name."""
    return Ledger.planned(list(_charges(_library(), event, 1)))


def _library() -> Any:
    try:
        return import_module("dp_accounting")
    except ImportError as error:
        raise InputError("dp-accounting is not installed; run: pip install dp-accounting") from error


def _event(dp: Any, event: SamplingEvent) -> Any:
    match event:
        case PoissonSample(probability=1, noise_multiplier=z):
            return dp.GaussianDpEvent(z)
        case PoissonSample(probability=q, noise_multiplier=z):
            return dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(z))
        case FixedSizeSample(size=size, population=population, noise_multiplier=z):
            # replace-one: their multiplier is relative to the change of the sum, which is twice a contribution
            return dp.SampledWithoutReplacementDpEvent(population, size, dp.GaussianDpEvent(z / 2))
        case _:
            raise RefusedError(f"dp-accounting has no event for {event.kind}")


def _charges(dp: Any, event: Any, times: int) -> Iterator[Charge]:
    match event:
        case dp.NoOpDpEvent():
            return
        case dp.ComposedDpEvent():
            for part in event.events:
                yield from _charges(dp, part, times)
        case dp.SelfComposedDpEvent():
            yield from _charges(dp, event.event, times * event.count)
        case dp.GaussianDpEvent():
            yield Charge(PoissonSample(1.0, (GaussianSumQuery(1.0, event.noise_multiplier),)), times)
        case dp.PoissonSampledDpEvent():
            yield Charge(PoissonSample(event.sampling_probability, _queries(dp, event.event, 1.0)), times)
        case dp.SampledWithoutReplacementDpEvent():
            queries = _queries(dp, event.event, 2.0)
            yield Charge(FixedSizeSample(event.sample_size, event.source_dataset_size, queries), times)
        case _:
            raise RefusedError(f"a ledger has no event for {type(event).__name__}")


def _queries(dp: Any, event: Any, factor: float) -> tuple[GaussianSumQuery, ...]:
    """What was sampled, if it is one or several Gaussian releases of the same sample."""
    match event:
        case dp.GaussianDpEvent():
            return (GaussianSumQuery(1.0, factor * event.noise_multiplier),)
        case dp.ComposedDpEvent():
            return tuple(query for part in event.events for query in _queries(dp, part, factor))
        case _:
            raise RefusedError(f"a ledger has no sampled event for {type(event).__name__}")
