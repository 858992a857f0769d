"""Events as plain JSON values, as a ledger keeps them, and back."""

from collections.abc import Mapping
from typing import Any

from tacit.errors import InputError, LedgerError
from tacit.ledger.events import (
    BallsInBinsStep,
    DiscretePoissonSample,
    FixedSizeSample,
    NegativeBinomialTrials,
    PoissonSample,
    PoissonTrials,
    PosteriorSample,
    SamplingEvent,
    ShuffledStep,
    ThresholdedSample,
    Tuned,
)
from tacit.ledger.sums import GaussianSumQuery

_KINDS: dict[
    str,
    type[PoissonSample]
    | type[DiscretePoissonSample]
    | type[FixedSizeSample]
    | type[BallsInBinsStep]
    | type[ShuffledStep]
    | type[ThresholdedSample],
] = {
    DiscretePoissonSample.kind: DiscretePoissonSample,
    PoissonSample.kind: PoissonSample,
    FixedSizeSample.kind: FixedSizeSample,
    BallsInBinsStep.kind: BallsInBinsStep,
    ShuffledStep.kind: ShuffledStep,
    ThresholdedSample.kind: ThresholdedSample,
}


def event_to_json(event: SamplingEvent) -> dict[str, Any]:
    """The event as plain JSON values, under the name of its policy."""
    fields = {name: getattr(event, name) for name in event.__slots__ if name != "queries"}
    if isinstance(event, Tuned):
        trial = [{"steps": steps, "event": event_to_json(one)} for one, steps in event.trial]
        law = {name: getattr(event.trials, name) for name in ("law", *event.trials.__slots__)}
        return {"sampling": event.kind, "trials": law, "trial": trial}
    if isinstance(event, PosteriorSample):
        return {"sampling": event.kind, **fields}
    queries = [_query_to_json(query) for query in event.queries]
    return {"sampling": event.kind, **fields, "queries": queries}


def _query_to_json(query: GaussianSumQuery) -> dict[str, Any]:
    fields = {name: getattr(query, name) for name in query.__slots__}
    return fields if query.grid is not None else {name: item for name, item in fields.items() if name != "grid"}


def event_from_json(value: Mapping[str, Any]) -> SamplingEvent:
    """The inverse of :func:`event_to_json`; an unknown policy or field is refused by name."""
    kind = value.get("sampling") if isinstance(value, Mapping) else None
    if not isinstance(kind, str) or kind not in {*_KINDS, PosteriorSample.kind, Tuned.kind}:
        known = ", ".join(sorted([*_KINDS, PosteriorSample.kind, Tuned.kind]))
        raise LedgerError(f"unknown sampling event {kind!r}; this version reads {known}")
    fields = {name: item for name, item in value.items() if name != "sampling"}
    try:
        if kind == PosteriorSample.kind:
            return PosteriorSample(**fields)
        if kind == Tuned.kind:
            return _tuned(**fields)
        queries = tuple([GaussianSumQuery(**query) for query in fields.pop("queries")])
        return _KINDS[kind](**fields, queries=queries)
    except (TypeError, KeyError, AttributeError, ValueError, InputError) as error:
        raise LedgerError(f"a {kind} event cannot be read: {error}") from error


_LAWS: dict[str, type[PoissonTrials] | type[NegativeBinomialTrials]] = {
    PoissonTrials.law: PoissonTrials,
    NegativeBinomialTrials.law: NegativeBinomialTrials,
}


def _tuned(trials: Mapping[str, Any], trial: list[Mapping[str, Any]]) -> Tuned:
    numbers = {name: value for name, value in trials.items() if name != "law"}
    parts = tuple((event_from_json(part["event"]), part["steps"]) for part in trial)
    return Tuned(parts, _LAWS[trials["law"]](**numbers))  # type: ignore[arg-type]
