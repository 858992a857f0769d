"""What a run on a table releases beside its steps, or in place of them, as the ledger is charged for it."""

import math

from tacit.ledger import GaussianSumQuery, NegativeBinomialTrials, PoissonSample, PoissonTrials, Tuned

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
