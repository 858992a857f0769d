"""The privacy statement: what is guaranteed, to whom, on what it rests, and how to check it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tacit.accountants import Budget, Guarantee, Refusal, attack_probability, guarantees
from tacit.ledger import Charge, Head, Ledger
from tacit.release.gate import rigorous_bound
from tacit.storage.json_files import finite

FORMAT = 1
PRIVATE_NUMBERS = (
    "private diagnostics, computed from private records and not themselves private; typical records only; "
    "no worst-case guarantee"
)
_NEIGHBOURS = {
    "add_remove": "two data sets are neighbours if one {unit} is added or removed",
    "replace_one": "two data sets are neighbours if one {unit} is replaced by another",
}
VERIFY = (
    "sha256sum --check SHA256SUMS",
    "tacit release --check .",
    "tacit account . --delta {delta:g}",
    "compare the ledger's head with the one that the publisher keeps elsewhere: tacit ledger head .",
)


@dataclass(frozen=True, slots=True)
class PrivacyStatement:
    """All that is said about a release. It follows from a ledger, a budget and the flags alone.

    Args:
        best: the headline, a rigorous worst-case bound.
        results: what every accountant says, refusals included.
        also: sentences beside those of the headline.
        diagnostics: Bayesian numbers by kind of evidence, only if they were asked for.
    """

    ledger: Ledger
    head: Head
    budget: Budget
    best: Guarantee
    results: Sequence[Guarantee | Refusal]
    also: tuple[str, ...] = ()
    diagnostics: Mapping[str, Sequence[Guarantee | Refusal]] = field(default_factory=dict)

    @property
    def assumptions(self) -> tuple[str, ...]:
        return self.best.assumptions + self.also

    def to_json(self) -> dict[str, Any]:
        header = self.ledger.header
        found = {
            "format": FORMAT,
            **{name: getattr(self.best, name) for name in ("notion", "neighbours", "unit", "epsilon", "delta")},
            "accountant": self.best.accountant,
            "is_bound": self.best.is_bound,
            "best_guess": attack_probability(self.best.epsilon, self.best.delta),
            "assumptions": list(self.assumptions),
            "if_the_stop_followed_outputs": _at_declared_maximum(self.ledger, self.best.delta),
            "budget": {"epsilon": self.budget.epsilon, "delta": self.budget.delta},
            "accountants": [one.to_json() for one in self.results],
            "ledger": {
                "head": {"count": self.head.count, "hash": self.head.hash},
                "dataset": header.dataset,
                "dataset_size": header.dataset_size,
                "schedule": header.schedule,
                "steps": self.ledger.steps,
                "planned_steps": self.ledger.planned_steps,
                "runs": self.ledger.runs,
            },
            "verify": [line.format(delta=self.best.delta) for line in VERIFY],
        }
        if self.diagnostics:
            numbers = {kind: [one.to_json() for one in said] for kind, said in self.diagnostics.items()}
            found["private_diagnostics"] = {"what": PRIVATE_NUMBERS, **numbers}
        return dict(finite(found))


def _at_declared_maximum(ledger: Ledger, delta: float) -> float | None:
    """Epsilon of all planned steps, for a run that stopped early; None where there is no single event to repeat.

    A stop that followed the outputs is post-processing of the run at its declared length.
    """
    events, missing = list(ledger.merged()), ledger.planned_steps - ledger.steps
    if ledger.header.schedule != "fixed" or missing <= 0 or len(events) != 1:
        return None
    whole = Ledger(ledger.header, (*ledger.charges, Charge(events[0], missing)), ledger.planned_steps, ledger.runs)
    return rigorous_bound(guarantees(whole, delta)).epsilon


def in_words(facts: Mapping[str, Any]) -> str:
    """The statement as Markdown, from its JSON alone, so that the two cannot say different things."""
    epsilon, delta, ledger = facts["epsilon"], facts["delta"], facts["ledger"]
    relation = _NEIGHBOURS[facts["neighbours"]].format(unit=facts["unit"])
    lines = [
        "# Privacy statement",
        "",
        f"Everything in this bundle is ({epsilon:.4g}, {delta:g})-differentially private: a rigorous upper bound for",
        f"the worst case, over all data and all outputs ({facts['accountant']} accountant; {relation}).",
        f"Who guesses whether one {facts['unit']} was in the data is right at most {facts['best_guess']:.2%} of the",
        "time, whatever else they know, from an even start.",
        "",
        f"It covers all {ledger['steps']} steps charged in the ledger of '{ledger['dataset']}'. The budget was epsilon",
        f"{facts['budget']['epsilon']:g} at delta {facts['budget']['delta']:g}.",
        "",
        "## It rests on",
        "",
        *(f"- {sentence}" for sentence in (*facts["assumptions"], *_always(facts))),
        "",
        "## What every accountant says",
        "",
        "| accountant | epsilon | what it is |",
        "|---|---|---|",
        *(_row(one) for one in facts["accountants"]),
        "",
        *_diagnostics(facts.get("private_diagnostics")),
        "## How to check it",
        "",
        f"The ledger's head is record {ledger['head']['count']}, `{ledger['head']['hash']}`.",
        "",
        *(f"- `{line}`" if line.startswith(("sha", "tacit")) else f"- {line}" for line in facts["verify"]),
    ]
    return "\n".join(lines) + "\n"


def _always(facts: Mapping[str, Any]) -> list[str]:
    found = ["the run was made by the code that wrote the ledger, on a machine that the publisher trusts"]
    if facts["if_the_stop_followed_outputs"] is not None:
        found.append(
            f"the run stopped early; if the stop followed the outputs, read epsilon as "
            f"{facts['if_the_stop_followed_outputs']:.4g}, that of its declared length"
        )
    return found


def _row(one: Mapping[str, Any]) -> str:
    if "refused" in one:
        return f"| {one['accountant']} | refused | {one['refused']} |"
    what = "upper bound" if one["is_bound"] else "approximation, not a bound"
    epsilon = "none" if one["epsilon"] is None else f"{one['epsilon']:.6g}"
    return f"| {one['accountant']} | {epsilon} | {what} |"


def _diagnostics(found: Mapping[str, Any] | None) -> list[str]:
    if found is None:
        return []
    lines = ["## Private diagnostics: not a guarantee", "", f"Included on request: {found['what']}.", ""]
    for kind, said in found.items():
        if kind != "what":
            lines += [f"- {kind}, {_row(one).strip('| ').replace(' | ', ', ')}" for one in said]
    return [*lines, ""]
