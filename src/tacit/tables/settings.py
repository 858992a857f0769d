"""What a run on a table is set to and why, the public numbers that it follows from, and what it is charged for."""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tacit.accountants import check_delta
from tacit.errors import InputError, check_count, check_positive
from tacit.ledger import (
    Charge,
    GaussianSumQuery,
    NegativeBinomialTrials,
    PoissonSample,
    PoissonTrials,
    ThresholdedSample,
    Tuned,
)
from tacit.tables.schema import Task
from tacit.tables.searches import DEFAULTS, Candidate, Search

Method = Literal["sgld", "sghmc", "bbp", "dropout", "vi", "sgd"]
# How scores share their part of the budget: every one is a vector of sums to which no unit adds more than 1
CLASS_SHARES = {
    "right and wrong": 0.55,
    "probabilities": 0.2,
    "log-loss": 0.1,
    "squared log-loss": 0.03,
    "calibration": 0.07,
    "Brier": 0.05,
}
NUMBER_SHARES = {
    "units": 0.15,
    "squared errors": 0.4,
    "fourth powers": 0.1,
    "targets": 0.15,
    "squared targets": 0.2,
}
TRIAL_SHARE = 0.05  # of a trial's own mu^2, for the score that it is chosen by


@dataclass(frozen=True, slots=True)
class Setting:
    """A number of the run and why it is what it is."""

    name: str
    value: float | int | str | None
    why: str

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "value": self.value, "why": self.why}


@dataclass(frozen=True, slots=True)
class Recipe:
    """All settings of a run.

    ``spread_noise`` is that of the residuals' histogram, ``score_noise`` that of the scores on records that were held
    out, None where there is none. ``search`` is charged once for all trials, in place of the steps.
    """

    probability: float
    steps: int
    noise_multiplier: float
    clip_norm: float
    learning_rate: float
    prior_stddev: float
    draws: int
    keep_every: int
    spread_noise: float | None
    snr: float
    settings: tuple[Setting, ...]
    warnings: tuple[str, ...]
    score_noise: float | None = None
    search: Tuned | None = None

    @property
    def trial_noise(self) -> float | None:
        """On the sum of a trial's score over all units."""
        return None if self.search is None else self.search.trial[-1][0].queries[0].noise_stddev

    @property
    def beside(self) -> list[Charge]:
        """What the run releases apart from its steps."""
        spread = [] if self.spread_noise is None else [Charge(spread_event(self.spread_noise), 1)]
        if self.score_noise is None:
            return spread
        return [*spread, Charge(score_event(self.score_noise, numbers=self.spread_noise is not None), 1)]


@dataclass(frozen=True, slots=True)
class Facts:
    """The public numbers that a recipe follows from.

    Args:
        units: the declared number of records or users.
        features: of a record.
        parameters: of the model; those of one output count for the noise.
        outputs: one for two classes or a number, else one per class.
        accountant: "pld"; "rdp" where several runs share a budget adaptively.
        scored: records were held out, and a tenth of the budget says how good the model is on them.
        search: settings are searched for: one trial's noise, so that all of them stay within the budget.
        candidate: which settings the trial has.
        asked: what was released to fill in the schema, before all else.
        units_asked: the number of units is an answer, so that nothing that is charged for may follow it.
    """

    units: int
    features: int
    parameters: int
    outputs: int
    task: Task
    method: Method
    model: str
    epsilon: float
    delta: float
    accountant: str = "pld"
    scored: bool = False
    search: Search | None = None
    candidate: Candidate = DEFAULTS
    asked: PoissonSample | ThresholdedSample | None = None
    units_asked: bool = False

    def __post_init__(self) -> None:
        for name in ("units", "features", "parameters", "outputs"):
            check_count(name, getattr(self, name))
        check_positive("epsilon", self.epsilon)
        check_delta(self.delta, None if self.units_asked else self.units)
        if self.method not in get_args(Method):
            raise InputError(f"method must be one of {', '.join(get_args(Method))}, found {self.method!r}")


def default_delta(units: int) -> float:
    """1e-5, or a tenth of 1/n rounded down to a power of ten where that is smaller.

    Example:
        >>> default_delta(426), default_delta(48_842)
        (1e-05, 1e-06)
    """
    return 10.0 ** min(-5, math.floor(math.log10(0.1 / units)))


# What a run releases beside its steps, or in place of them


def search_event(noise: float, probability: float, steps: int, number: PoissonTrials | NegativeBinomialTrials) -> Tuned:
    """The steps of a trial, in units of the clip norm, and its score: one sum to which no unit adds more than 1."""
    step = PoissonSample(probability, (GaussianSumQuery(1.0, noise, group="gradients over the clip norm"),))
    score = GaussianSumQuery(1.0, trial_score_noise(noise, probability, steps), 1e-6, group="score")
    return Tuned(((step, steps), (PoissonSample(1.0, (score,)), 1)), number)


def trial_score_noise(noise: float, probability: float, steps: int) -> float:
    """The score's share of 1/noise^2, steps counted by their central limit q^2 T / noise^2."""
    return noise / (probability * math.sqrt(steps)) * math.sqrt((1 - TRIAL_SHARE) / TRIAL_SHARE)


def spread_event(noise: float) -> PoissonSample:
    """A histogram of all records, each in one bin: sensitivity 1."""
    return PoissonSample(1.0, (GaussianSumQuery(1.0, noise, group="residuals"),))


def score_event(noise: float, *, numbers: bool = False) -> PoissonSample:
    """Sums over the units that were held out. That these are not trained on is not made use of."""
    shares = NUMBER_SHARES if numbers else CLASS_SHARES
    queries = (GaussianSumQuery(1.0, noise / math.sqrt(share), 1e-6, group=name) for name, share in shares.items())
    return PoissonSample(1.0, tuple(queries))
