"""The default settings of a private run on a table, from public numbers alone; measured once, on public data.

With mu the Gaussian-DP parameter of (epsilon, delta), n the declared number of units and d that of parameters of one
output, what a private model can learn is governed by one number:

    SNR = n mu / (C sqrt(d))        the signal of n clipped gradients over the noise that hides one of them

Noise accumulates with (learning rate x steps) whatever the steps are: where nothing pulls back, the noise on a record's
logit is (rate x steps) / (n mu / C). So n mu / C is what that product follows. Nothing here looks at a record, and
nothing is tried out on private data: tuning would have to be charged (failure-modes.md, F14).
docs/tables.md has the measurements behind the constants.
"""

import math
from functools import lru_cache

from tacit.accountants import gaussian_mu, get_accountant
from tacit.accountants.renyi.filter import cost_by_filter
from tacit.accountants.search import smallest_within
from tacit.errors import RefusedError
from tacit.ledger import (
    Charge,
    GaussianSumQuery,
    Ledger,
    NegativeBinomialTrials,
    PoissonSample,
    PoissonTrials,
    ThresholdedSample,
)
from tacit.tables.searches import Candidate, Search
from tacit.tables.settings import (
    Facts,
    Method,
    Recipe,
    Setting,
    score_event,
    search_event,
    spread_event,
    trial_score_noise,
)

MANY = 10_000  # records from which a smaller sampling probability is quicker at the same noise
ENOUGH = 40.0  # SNR below which a model learns little
SPREAD_SHARE = 0.1  # of mu^2, for the histogram of residuals that the intervals of a regression rest on
SCORE_SHARE = 0.1  # of mu^2, for scores on records that were held out
STEPS = {"classification": 300, "regression": 1000, "vi": 1000}
_LITTLE = 12.0  # SNR at clip norm 1 below which a model goes less far, not to be too sure
_LARGE = 250.0  # SNR at clip norm 1 from which less is cut
_FASTEST = 40.0  # learning rate of a linear classifier that is still stable


def recipe(facts: Facts) -> Recipe:
    """The settings for a table of this size at this budget.

    Example:
        >>> found = recipe(Facts(426, 31, 31, 1, "classification", "sgld", "linear", 1.0, 1e-5))
        >>> found.probability, found.steps, found.clip_norm, round(found.learning_rate, 1)
        (0.2, 300, 0.5, 3.2)
    """
    mu = gaussian_mu(facts.epsilon, facts.delta)
    regression = facts.task == "regression"
    probability = 0.2 if facts.units < MANY and not facts.units_asked else 0.05
    steps = STEPS["vi" if facts.method == "vi" else facts.task]
    spread_noise = 1 / (math.sqrt(SPREAD_SHARE) * mu) if regression else None
    score_noise = 1 / (math.sqrt(SCORE_SHARE) * mu) if facts.scored else None
    number = None if facts.search is None else facts.search.number
    accountant = facts.accountant if number is None else "rdp"
    noise = _noise(
        accountant, facts.epsilon, facts.delta, probability, steps, spread_noise, score_noise, number, facts.asked
    )
    if number is not None:
        mu = probability * math.sqrt(steps) / noise  # that of one trial
    what = "all steps" if number is None else "all trials together"
    at_one = facts.units * mu / math.sqrt(facts.parameters / facts.outputs)
    clip, clip_why = _clip(facts, at_one)
    snr = at_one / clip
    rate, rate_why = _rate(facts, mu, clip, steps)
    clip, rate = clip * facts.candidate.clip, rate * facts.candidate.rate
    prior, prior_why = _prior(facts)
    draws = 1 if facts.method == "sgd" else 50
    apart = max(1, steps // (2 * draws)) if facts.method in ("sgld", "sghmc") else 1
    settings = [
        Setting("delta", facts.delta, "the chance that the promise fails; below one over the number of records"),
        Setting("sampling probability", probability, _sampling_why(facts)),
        Setting("steps", steps, "enough small steps for a steady descent; more would cost time and change little"),
        Setting("noise multiplier", noise, f"the least noise that keeps {what} within epsilon ({accountant})"),
        Setting("clip norm", clip, clip_why),
        Setting("signal to noise", snr, f"n mu / (C sqrt(d)), mu {mu:.4g}; below {ENOUGH:g} there is too little data"),
        Setting("learning rate", rate, rate_why),
        Setting("prior standard deviation", prior, prior_why),
        Setting("draws", draws, _DRAWS_WHY[facts.method]),
        *_settings_beside(facts, spread_noise, score_noise),
    ]
    if facts.search is not None:
        settings += _search_settings(facts.search, facts.candidate, trial_score_noise(noise, probability, steps))
    return Recipe(
        probability, steps, noise, clip, rate, prior, draws, apart, spread_noise, snr, tuple(settings),
        _warnings(facts, snr), score_noise,
        None if number is None else search_event(noise, probability, steps, number),
    )  # fmt: skip


def _settings_beside(facts: Facts, spread_noise: float | None, score_noise: float | None) -> list[Setting]:
    """What a part of the budget buys apart from the steps."""
    asked = None if facts.asked is None else facts.asked.noise_multiplier
    found = [
        ("what was asked", asked, "what the schema left open: bounds, levels or the number of records"),
        ("the residuals' histogram", spread_noise, "a noisy histogram of residuals, on which the intervals rest"),
        ("the scores", score_noise, "noisy counts and sums on records that were held out, for scores"),
    ]
    return [
        Setting(f"noise on {what}", noise, f"a tenth of the budget buys {why}")
        for what, noise, why in found
        if noise is not None
    ]


def _search_settings(search: Search, candidate: Candidate, noise: float) -> list[Setting]:
    why = "one is drawn at random for each trial, and only the best trial is released"
    return [
        Setting("candidates", len(search.candidates), why),
        Setting("expected trials", search.trials, f"{search.law}; how many there were is secret"),
        Setting("noise on a trial's score", noise, f"on the sum of the {search.by} scores of all units"),
        Setting("chosen", str(candidate), "what the best trial changed of the defaults; clip norm and rate follow"),
    ]


@lru_cache(maxsize=64)
def _noise(
    accountant: str, epsilon: float, delta: float, probability: float, steps: int, spread_noise: float | None,
    score_noise: float | None, number: PoissonTrials | NegativeBinomialTrials | None = None,
    asked: PoissonSample | ThresholdedSample | None = None,
) -> float:  # fmt: skip
    """The least noise multiplier at which all charges together stay within the budget."""
    reader = get_accountant(accountant)
    fixed = [] if spread_noise is None else [Charge(spread_event(spread_noise), 1)]
    numbers = spread_noise is not None
    fixed += [] if score_noise is None else [Charge(score_event(score_noise, numbers=numbers), 1)]
    first = [] if asked is None else [Charge(asked, 1)]

    def cost(z: float) -> float:
        if number is None:
            sampled = Charge(PoissonSample(probability, (GaussianSumQuery(1.0, z),)), steps)
        else:
            sampled = Charge(search_event(z, probability, steps, number), 1)
        try:
            if first and accountant == "rdp":  # later runs may follow the answers
                return cost_by_filter([*first, *fixed, sampled], epsilon, delta)
            return reader.guarantee(Ledger.planned([*first, *fixed, sampled]), delta=delta).epsilon
        except RefusedError:
            return math.inf

    guess = probability * math.sqrt(steps) / gaussian_mu(epsilon, delta)
    return smallest_within(cost, epsilon, "noise_multiplier", max(guess, 0.5))


def _clip(facts: Facts, snr_at_one: float) -> tuple[float, str]:
    if facts.task == "regression":
        return 0.2, "a tenth of the declared range: a record further off counts like one at that distance"
    side = "below" if snr_at_one < _LARGE else "at least"
    why = f"of 1, the largest that a gradient can be: signal to noise {snr_at_one:.0f} at 1 is {side} {_LARGE:g}"
    return (0.5 if snr_at_one < _LARGE else 0.7), why


def _rate(facts: Facts, mu: float, clip: float, steps: int) -> tuple[float, str]:
    signal, d = facts.units * mu / clip, facts.parameters / facts.outputs
    if facts.method == "vi":
        return 0.03, "Adam's own scale: steps are nearly even under noise"
    if facts.task == "regression":
        why = "SNR / steps, at most 2 / sqrt(3), where squared error is still stable"
        return min(1.15, signal / math.sqrt(d) / steps), why
    cap = (_FASTEST if facts.model == "linear" else 4.0) * 300 / steps
    share = 10 * min(1.0, math.sqrt(signal * clip / math.sqrt(d) / _LITTLE))
    rate = min(share * signal / d**0.25 / steps, cap)
    return rate, f"{share:.2g} n mu / (C d^(1/4)) / steps, at most {cap:g}: on the mean loss"


def _prior(facts: Facts) -> tuple[float, str]:
    if facts.task == "regression":
        return 10.0, "weak: the target lies in [-1, 1] on the model's scale"
    if facts.model != "linear":
        return 1.0, "precision 1, for a network"
    return 10.0, "precision 0.01: weak; the noise asks for a short way instead"


def _sampling_why(facts: Facts) -> str:
    if facts.units_asked:
        return "the number of records was asked for, and what is charged must not follow it"
    return f"0.2 below {MANY:,} records, else 0.05: quick, and hardly any noise is lost by it"


_DRAWS_WHY: dict[Method, str] = {
    "sgld": "of the last half of the steps; every step is charged, so keeping more costs nothing",
    "sghmc": "of the last half of the steps; every step is charged, so keeping more costs nothing",
    "bbp": "of weights from the Gaussian that was learned",
    "vi": "of weights from the Gaussian that was learned",
    "dropout": "of dropout masks in every prediction",
    "sgd": "a point: no uncertainty about the weights is claimed",
}


def _warnings(facts: Facts, snr: float) -> tuple[str, ...]:
    enough = ENOUGH if facts.model == "linear" else ENOUGH / 4  # not every weight of a network matters
    if snr >= enough:
        return ()
    return (
        f"too little data for this epsilon: signal to noise is {snr:.0f}, below {enough:g}; expect a poor model, whose "
        "probabilities may be off by a tenth either way (to find out how clear the classes are would cost too much); "
        f"use about {math.ceil(facts.units * enough / snr / 100) * 100:,} records, fewer columns, more epsilon",
    )
