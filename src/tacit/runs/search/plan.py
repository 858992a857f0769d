"""What a search for settings would cost and could gain, from public numbers alone; said before anything is paid."""

import math
from dataclasses import dataclass, replace

from tacit.accountants import get_accountant
from tacit.ledger import Charge, Ledger, NegativeBinomialTrials, PoissonTrials
from tacit.runs.problem import Problem
from tacit.tables.recipes import ENOUGH

_USUAL_DIFFERENCE = 0.005  # what settings that are both sensible often differ by, as a share of right answers


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """A search beside a run with the default settings, at the same total.

    Args:
        noise, default_noise: noise multiplier of a step.
        trial_epsilon: what one trial costs by itself: what is left of epsilon for the model.
        score_noise: standard deviation of a trial's score, as a mean over the units.
        best_found: chance that the best candidate is tried at all.
        snr, default_snr: signal to noise of a model.
    """

    noise: float
    default_noise: float
    trial_epsilon: float
    score_noise: float
    best_found: float
    snr: float
    default_snr: float

    @property
    def verdict(self) -> str:
        """When the defaults are expected to win."""
        if self.snr < ENOUGH:
            return (
                f"the defaults are expected to win: a trial's signal to noise is {self.snr:.0f}, below {ENOUGH:g} "
                f"(defaults: {self.default_snr:.0f})"
            )
        if self.score_noise > _USUAL_DIFFERENCE:
            return (
                f"the defaults are expected to win: scores have noise of {self.score_noise:.1%} of the units, so a "
                "choice between settings that differ by less is a matter of chance"
            )
        return (
            "the defaults are expected to win, by a little, where they suit the table as they suit those that they "
            "were found on; a search is worth its price where something else may do far better, such as another model "
            f"(--try model=linear,mlp): scores can tell {2 * self.score_noise:.2%} of the units apart"
        )


def search_plan(problem: Problem) -> SearchPlan:
    """Compare a search with the same problem without one."""
    assert problem.search is not None
    found, alone = problem.recipe, replace(problem, search=None).recipe
    assert found.search is not None
    assert found.trial_noise is not None
    charges = [Charge(event, steps) for event, steps in found.search.trial]
    trial = get_accountant("pld").guarantee(Ledger.planned(charges), delta=problem.delta).epsilon
    missed = generating(problem.search.number, 1 - 1 / len(problem.search.candidates))
    return SearchPlan(
        found.noise_multiplier, alone.noise_multiplier, trial, found.trial_noise / problem.units, 1 - missed,
        found.snr, alone.snr,
    )  # fmt: skip


def generating(number: PoissonTrials | NegativeBinomialTrials, x: float) -> float:
    """E[x^K] of the number K of trials.

    Example:
        >>> round(generating(PoissonTrials(5.0), 0.0), 9), round(generating(NegativeBinomialTrials(1.0, 0.2), 0.5), 4)
        (0.0, 0.1667)
    """
    match number:
        case PoissonTrials(mean=mean):
            return math.exp(mean * (x - 1)) + math.exp(-mean) * (x - 1)
        case NegativeBinomialTrials(eta=eta, gamma=gamma):
            left = 1 - (1 - gamma) * x
            return math.log(left) / math.log(gamma) if abs(eta) < 1e-9 else (left**-eta - 1) / (gamma**-eta - 1)
