"""Check 4: how much does the real mechanism tell about a record that shouts as loudly as it can?

Every unit of the data set is a canary with a direction of its own, a gradient a thousand times too long, in a training
run of the real engine with real sampling. A canary's *score* at a step is the release, projected on its direction and
weighted such that all groups speak together: by the ledger, noise of standard deviation 1, and 1/z more if the canary
was drawn. Because clipped records only add up, the scores of one canary are those of a run that differs in it alone.

Which canaries were drawn is known here, so three parameters can be bounded, each with a third of the doubt:
the rate q (Clopper and Pearson), the shift (normal), and the noise (chi-square). They give the largest z and the
smallest q that the outputs still allow, and the accountant composes these into the epsilon that was surely leaked.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import chdtri, ndtri
from scipy.stats import beta

from tacit.accountants import get_accountant, ledger_bracket
from tacit.audit.finding import ALPHA, Finding, turns_errors_into_findings
from tacit.audit.noise.check import Queries, claimed_queries, claimed_stddevs
from tacit.audit.sampler import recorded_rate, units_of
from tacit.audit.subject import ROWS_OF_A_UNIT, Subject
from tacit.errors import RefusedError
from tacit.ledger import (
    Charge,
    GaussianSumQuery,
    Ledger,
    PoissonSample,
    PosteriorSample,
    SamplingEvent,
    Tuned,
    merged_noise_multiplier,
)
from tacit.sampling import PoissonSampling
from tacit.training import DataSource

LOUD = 1000.0  # times the clip norm
CONFIDENCE = 0.999
_CANARIES, _MOST_CANARIES, _DRAWN = 200, 2000, 10  # more of them where few are drawn
_MOST_NUMBERS = 40_000_000
_LARGEST_LEAK = 10.0  # a leak beyond that is counted as this: broken enough, and accountants need not go to extremes
ASSUMPTIONS = (
    "Gaussian outputs: a score is normal with the measured shift and noise, and steps are independent",
    "all units are treated alike, so that their scores may be pooled",
)


@dataclass(slots=True)
class Moments:
    """Count, sum and sum of squares of scores."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, scores: NDArray[np.float64]) -> None:
        self.count += scores.size
        self.total += float(scores.sum())
        self.squares += float((scores**2).sum())

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    @property
    def residue(self) -> float:
        """The sum of squared deviations from the mean."""
        return self.squares - self.count * self.mean**2


@dataclass(frozen=True, slots=True)
class Scores:
    """What the canaries saw at steps at which they were drawn, and at those at which they were not."""

    drawn: Moments
    not_drawn: Moments

    @property
    def count(self) -> int:
        return self.drawn.count + self.not_drawn.count


@dataclass(frozen=True, slots=True)
class Leak:
    """What the outputs surely show, as factors on what the ledger claims: above 1 is more than was paid for."""

    rate: float
    shift_over_noise: float
    likely_rate: float
    likely_shift_over_noise: float


@turns_errors_into_findings("canary")
def check_canary(subject: Subject, ledger: Ledger, delta: float, steps: int = 20_000) -> Finding:
    """Bound epsilon from below at 99.9 %, and compare with what the ledger claims for all its charges."""
    if not ledger.steps:
        return Finding("canary", "nothing was charged", 0, skipped="nothing was charged")
    scores = canary_scores(subject, steps)
    leak = measure(scores, subject, ledger)
    claim, lower = claimed_epsilon(ledger, delta), surely_leaked(ledger, leak, delta)
    if claim is None or lower is None:
        return Finding("canary", f"{steps} steps", scores.count, skipped="no accountant reads this ledger")
    broke: tuple[str, ...] = ()
    # Below 99.9 % of doubt a number is worth printing; an alarm needs the level of all other checks.
    if lower > claim and (surely_leaked(ledger, measure(scores, subject, ledger, 1 - ALPHA), delta) or 0.0) > claim:
        broke = (
            f"at least epsilon {lower:.4f} was leaked, the ledger claims {claim:.4f} at delta {delta:g} "
            f"(rate {leak.likely_rate:.3f}, shift over noise {leak.likely_shift_over_noise:.3f} of the ledger's)",
        )
    share = lower / claim if claim > 0 else 1.0
    return Finding(
        "canary",
        f"{scores.drawn.count:,} times drawn, {scores.not_drawn.count:,} times not, in {steps:,} steps",
        scores.count,
        broke,
        f"epsilon at least {lower:.4f} at {CONFIDENCE:.1%}, {share:.1%} of the claimed {claim:.4f}",
        ASSUMPTIONS,
    )


def canary_scores(subject: Subject, steps: int) -> Scores:
    """Run the engine on canaries alone and read every release as each of them would."""
    rare = min(_MOST_CANARIES, max(_CANARIES, round(_DRAWN / recorded_rate(subject.sampling))))
    units = units_of(subject.sampling, rare)
    width = max(2, min(units, rare, _MOST_NUMBERS // units))  # more units than that stay silent
    rows = 1 if subject.unit.unit == "record" else ROWS_OF_A_UNIT
    loud = torch.zeros(units, width, dtype=torch.float64)
    loud[:width] = canary_length(subject) * torch.eye(width, dtype=torch.float64)
    owners = np.repeat(np.arange(units), rows).tolist() if subject.unit.unit == "user" else None
    source = DataSource(loud.repeat_interleave(rows, 0), user_ids=owners)
    steps = -(-steps // subject.sampling.steps_per_pass) * subject.sampling.steps_per_pass
    scores = Scores(Moments(), Moments())
    queries: Queries = ()
    with subject.engine(width, torch.float64, steps) as audited:
        for sample in audited.private.samples(source, steps):
            norm, present = audited.private.clip_norm, np.zeros(width, dtype=bool)
            present[sample.units[sample.units < width]] = True
            released = audited.private.release(sample, audited.losses.params)
            queries = queries or claimed_queries(subject, audited)
            weights = _weights(subject, queries, norm)
            parts = [released[name].flatten() * weight for name, weight in weights.items()]
            score = torch.stack(parts).sum(0).numpy() * subject.sampling.denominator
            scores.drawn.add(score[present])
            scores.not_drawn.add(score[~present])
    return scores


def canary_length(subject: Subject) -> float:
    """The length of a canary's gradient: far above every clip norm of the subject."""
    return LOUD * max((query.clip_norm for query in subject.claimed or ()), default=1.0)


def _weights(subject: Subject, queries: Queries, norm: float) -> dict[str, float]:
    """a_g = z S_g / s_g^2: the score then has noise 1, and a shift of 1/z by a record that fills every clip."""
    stddevs = claimed_stddevs(subject, queries, norm)
    if len(queries) == len(stddevs):
        clips = {name: query.clip_norm * norm for name, query in zip(stddevs, queries, strict=True)}
    else:  # one group over all names: a canary's clipped vector is spread over them evenly
        clips = dict.fromkeys(stddevs, queries[0].clip_norm * norm / math.sqrt(len(stddevs)))
    z = 1 / math.hypot(*(clips[name] / stddev for name, stddev in stddevs.items()))
    return {name: z * clips[name] / stddev**2 for name, stddev in stddevs.items()}


def measure(scores: Scores, subject: Subject, ledger: Ledger, confidence: float = CONFIDENCE) -> Leak:
    """One-sided bounds of rate, shift and noise, which hold together with the given confidence (union bound)."""
    doubt = (1 - confidence) / 3
    queries = subject.claimed or ledger.charges[0].event.queries
    probability = recorded_rate(subject.sampling)
    drawn, silent = scores.drawn, scores.not_drawn
    rate = float(beta.ppf(doubt, drawn.count, silent.count + 1)) if drawn.count else 0.0
    degrees = max(1, scores.count - 2)
    squares = drawn.residue + silent.residue
    noise = math.sqrt(squares / float(chdtri(degrees, 1 - doubt)))  # the largest that so small a sum allows
    shift = drawn.mean - silent.mean if drawn.count else 0.0
    error = noise * math.sqrt(1 / max(1, drawn.count) + (1 / silent.count if silent.count else 0.0))
    least = max(0.0, shift + float(ndtri(doubt)) * error) / noise
    z = merged_noise_multiplier(queries)
    exact = not isinstance(subject.sampling, PoissonSampling)
    return Leak(
        rate=1.0 if exact else rate / probability,
        shift_over_noise=least * z,
        likely_rate=drawn.count / scores.count / probability,
        likely_shift_over_noise=shift / math.sqrt(squares / degrees) * z,
    )


def subject_queries(subject: Subject) -> Queries:
    """The queries that the engine writes for the subject."""
    with subject.engine(2) as audited:
        source = DataSource(torch.zeros(units_of(subject.sampling, 4), 2, dtype=torch.float64))
        next(audited.private.samples(source, subject.sampling.steps_per_pass))
        return claimed_queries(subject, audited)


def claimed_epsilon(ledger: Ledger, delta: float) -> float | None:
    """By PLD, or by Renyi where PLD has no formula."""
    for name in ("pld", "rdp"):
        try:
            return get_accountant(name).guarantee(ledger, delta=delta).epsilon
        except RefusedError:
            continue
    return None


def surely_leaked(ledger: Ledger, leak: Leak, delta: float) -> float | None:
    """The epsilon of the ledger with the factors of the leak on every event.

    A certified lower bound where PLD can read the events. Elsewhere the same accountant as for the claim is asked,
    which tells whether parameters are worse than recorded, but is not a lower bound of epsilon.
    """
    charges = tuple(Charge(_leaking(charge.event, leak), charge.steps) for charge in ledger.charges)
    found = replace(ledger, charges=charges)
    if not (leak.shift_over_noise > 0 and leak.rate > 0):
        return 0.0
    try:
        bracket = ledger_bracket(found, delta)
    except RefusedError:
        return claimed_epsilon(found, delta)
    return bracket.lower if bracket.two_sided else bracket.upper


def _leaking(event: SamplingEvent, leak: Leak) -> SamplingEvent:
    if isinstance(event, PosteriorSample):
        return event
    if isinstance(event, Tuned):
        return replace(event, trial=tuple((_leaking_sample(one, leak), steps) for one, steps in event.trial))
    if isinstance(event, PoissonSample):
        return _leaking_sample(event, leak)
    return replace(event, queries=_leaking_queries(event.queries, leak))


def _leaking_sample(event: PoissonSample, leak: Leak) -> PoissonSample:
    chance = min(1.0, max(event.probability * leak.rate, 1e-12))
    return replace(event, queries=_leaking_queries(event.queries, leak), probability=chance)


def _leaking_queries(queries: tuple[GaussianSumQuery, ...], leak: Leak) -> tuple[GaussianSumQuery, ...]:
    factor = min(max(leak.shift_over_noise, 1e-6), _LARGEST_LEAK)
    return tuple(replace(query, noise_stddev=query.noise_stddev / factor) for query in queries)


def claimed_ledger(subject: Subject, steps: int) -> Ledger:
    """The ledger that so many steps of the subject would leave."""
    return Ledger.planned([Charge(subject.sampling.event(subject.claimed or subject_queries(subject)), steps)])
