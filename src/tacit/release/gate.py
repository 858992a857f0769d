"""What must hold before a run is released. Every number is computed from the ledger; none is taken from a file.

The gate asks for a rigorous worst-case bound within the budget. An approximation, a Bayesian number or a guarantee
about a sampler that only comes close never opens it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from tacit.accountants import Budget, Guarantee, Refusal, best_bound, guarantees
from tacit.errors import InputError, RefusedError
from tacit.ledger import Ledger, PosteriorSample
from tacit.release.artefacts import DERIVED, is_derived
from tacit.runs.assumed import spread_sentence

DERIVED_SENTENCE = (
    "bounds or categories of the columns were read off the private data (derived_from_private_data): "
    "epsilon does not cover what they reveal"
)


def chosen_budget(ledger: Ledger, epsilon: float | None, delta: float | None) -> Budget:
    """What the release may cost: as asked, and never more than the ledger declared at opening."""
    declared = Budget.of(ledger)
    epsilon = epsilon if epsilon is not None else (declared.epsilon if declared else None)
    delta = delta if delta is not None else (declared.delta if declared else None)
    if epsilon is None or delta is None:
        raise InputError("the ledger declares no budget: say what the run may have cost with --epsilon and --delta")
    return Budget(epsilon, delta)


def check_ledger_facts(ledger: Ledger) -> None:
    """Refuse what no number can make releasable."""
    if ledger.header.randomness != "secure":
        raise RefusedError("the run was seeded: whoever knows the seed can take the noise away; train it again")
    if not ledger.steps:
        raise RefusedError("the ledger holds no charged step, so it cannot be the ledger of these artefacts")
    if any(isinstance(charge.event, PosteriorSample) and not charge.event.exact for charge in ledger.charges):
        raise RefusedError("a posterior sample came from a sampler that is not exact: no bound is known for it")


def rigorous_bound(results: Sequence[Guarantee | Refusal]) -> Guarantee:
    """The headline, which a release cannot do without."""
    best = best_bound(results)
    if best is None:
        reasons = "; ".join(f"{one.accountant}: {one.reason}" for one in results if isinstance(one, Refusal))
        raise RefusedError(f"no accountant has a rigorous bound for this ledger ({reasons or 'approximations only'})")
    return best


def bound_within(ledger: Ledger, asked: Budget) -> tuple[Guarantee, list[Guarantee | Refusal]]:
    """The headline and all accountants' words at the asked delta, if asked and declared budget both hold."""
    declared = Budget.of(ledger)
    if declared is not None and declared != asked:
        _within(rigorous_bound(guarantees(ledger, declared.delta)), declared, "declared at opening")
    results = guarantees(ledger, asked.delta)
    best = rigorous_bound(results)
    _within(best, asked, "asked for")
    return best, results


def _within(found: Guarantee, budget: Budget, whose: str) -> None:
    if not found.epsilon <= budget.epsilon:  # NaN is no permission either
        raise RefusedError(
            f"the ledger's bound is epsilon {found.epsilon:.6g} at delta {found.delta:g} ({found.accountant}), over "
            f"the {budget.epsilon:g} {whose}; nothing is released"
        )


def check_run_facts(ledger: Ledger, facts: dict[str, Any], best: Guarantee, accepted: bool) -> tuple[str, ...]:
    """The sentences that the run's own facts add; a smaller epsilon claimed there is refused, not corrected."""
    derived = is_derived(facts) or any(DERIVED in sentence for sentence in ledger.header.assumptions)
    if derived and not accepted:
        raise RefusedError(f"{DERIVED_SENTENCE}; declare the schema, or release with --accept-derived-schema")
    for epsilon, delta in _claims(_whole(facts)):
        found = best if delta in (None, best.delta) else rigorous_bound(guarantees(ledger, delta))
        if not found.epsilon <= epsilon:
            raise RefusedError(f"run.json claims epsilon {epsilon!r}, the ledger says {found.epsilon:.6g}")
    return ((DERIVED_SENTENCE,) if derived else ()) + _of_intervals(facts)


def _of_intervals(facts: dict[str, Any]) -> tuple[str, ...]:
    """What the intervals of a regression rest on, where that was declared and not contradicted; epsilon never does."""
    match facts:
        case {"regression": {"assume_spread": int() | float() as spread, "assumptions": [_, *_]}}:
            return (spread_sentence(spread),)
    return ()


def _whole(facts: dict[str, Any]) -> dict[str, Any]:
    """Where several runs share a ledger, a run's own epsilon is a share of what all of them cost together."""
    if facts.get("shared_ledger") is None:
        return facts
    return {**facts, "epsilon": facts.get("shared_epsilon")}


def _claims(facts: Any, top: bool = True) -> Iterator[tuple[float, Any]]:
    """Each (epsilon, delta) that the facts state; an approximation that is marked as one claims nothing."""
    match facts:
        case {"is_bound": False}:
            return
        case {"epsilon": int() | float() as epsilon} if top or "delta" in facts:
            yield epsilon, facts.get("delta")
    inner = facts.values() if isinstance(facts, dict) else facts if isinstance(facts, list) else ()
    for item in inner:
        yield from _claims(item, top=False)
