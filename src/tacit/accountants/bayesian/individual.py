"""Individual privacy: epsilon of each record, and what a share of people can be told (maths.md 8 d).

A record that never moves a release far has lost less than the worst case says. From probes, the epsilon that at least a
share p of the population stays below is an order statistic of theirs with a Clopper-Pearson bound; from members it is a
statement about the members. Single records' numbers are private and never leave.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from tacit.accountants.bayesian.accountant import chernoff_epsilons
from tacit.accountants.bayesian.cost import MOMENTS
from tacit.accountants.bayesian.exposure import check_evidence, exposure_of
from tacit.accountants.bayesian.percentiles import best_percentile, percentile_value
from tacit.accountants.bayesian.record_losses import record_epsilons
from tacit.accountants.bayesian.sentences import evidence_sentences
from tacit.accountants.guarantee import Guarantee, check_ledger, statement
from tacit.accountants.pld.accountant import PLDAccountant
from tacit.errors import InputError, RefusedError, check_choice, check_inside
from tacit.evidence import Evidence
from tacit.ledger import Ledger
from tacit.types import Floats

By = Literal["pld", "rdp"]
GAMMA = 1e-6


@dataclass(frozen=True, slots=True)
class IndividualAccountant:
    """(epsilon, delta) that a share of people has at least.

    Args:
        percentile: the share, such as 0.9.
        gamma: the chance that the sample of probes misleads.
        by: "pld" is the tighter; "rdp" adds up Renyi divergences, as an individual filter does.
    """

    percentile: float = 0.9
    gamma: float = GAMMA
    by: By = "pld"

    name: ClassVar[str] = "individual"

    def __post_init__(self) -> None:
        check_inside("percentile", self.percentile)
        check_inside("gamma", self.gamma)
        check_choice("by", self.by, get_args(By))

    def guarantee(self, ledger: Ledger, evidence: Evidence, *, delta: float) -> Guarantee:
        epsilons = individual_epsilons(ledger, evidence, delta, self.by)
        return self.read(ledger, evidence, epsilons, delta)

    def read(self, ledger: Ledger, evidence: Evidence, epsilons: Floats, delta: float) -> Guarantee:
        """The statement of this percentile, from the epsilons of the records."""
        check_evidence(evidence)
        if evidence.kind == "members":
            value, trust = float(np.quantile(epsilons, self.percentile, method="higher")), "percentiles of the members"
        else:
            level = percentile_value(epsilons, self.percentile, self.gamma)
            if level is None:
                best = best_percentile(evidence.records, self.gamma)
                raise RefusedError(
                    f"{evidence.records} probes cannot support the {self.percentile:.5%} percentile at gamma "
                    f"{self.gamma:g}; at most {best:.5%}"
                )
            value = level
            trust = f"percentiles of the population, but for a chance of {self.gamma:g} that the probes mislead"
        sentence = f"{trust}; each holds by itself, not all together"
        return statement(
            ledger,
            accountant=f"{self.name} {self.by}",
            epsilon=value,
            delta=delta,
            is_bound=False,
            also=(*evidence_sentences(ledger, evidence), sentence),
            notion="bayesian_dp",
            percentile=self.percentile,
        )


def individual_epsilons(ledger: Ledger, evidence: Evidence, delta: float, by: By = "pld") -> Floats:
    """epsilon of each record of the evidence, at most the worst case. Private."""
    check_ledger(ledger, delta)
    check_evidence(evidence)
    if not ledger.steps:
        return np.zeros(evidence.records)
    ceiling = PLDAccountant().guarantee(ledger, delta=delta).epsilon
    exposure = exposure_of(ledger, evidence, "individual")
    match by:
        case "pld":
            return record_epsilons(exposure, delta, ceiling)
        case "rdp":
            costs = exposure.costs()[0]
            return np.asarray(np.minimum(chernoff_epsilons(costs, MOMENTS, delta).min(axis=1), ceiling))
        case _:
            raise InputError(f"by must be pld or rdp, found {by!r}")


def percentile_curve(
    ledger: Ledger,
    evidence: Evidence,
    delta: float,
    percentiles: Sequence[float],
    *,
    gamma: float = GAMMA,
    epsilons: Floats | None = None,
) -> list[Guarantee]:
    """The statements of several percentiles, as far as the sample supports them; ``epsilons`` saves a second search."""
    epsilons = individual_epsilons(ledger, evidence, delta) if epsilons is None else epsilons
    most = 1 - 1 / evidence.records if evidence.kind == "members" else best_percentile(evidence.records, gamma)
    return [
        IndividualAccountant(percentile, gamma).read(ledger, evidence, epsilons, delta)
        for percentile in percentiles
        if percentile <= most
    ]
