"""Check 3: units are drawn at the rate that the ledger's event states, independently, or as the event says instead."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtr, chdtrc
from scipy.stats import binom

from tacit.audit.finding import Finding, Trial, rejected, smallest, turns_errors_into_findings, two_sided
from tacit.errors import InputError
from tacit.ledger import BallsInBinsStep, FixedSizeSample, GaussianSumQuery, PoissonSample
from tacit.randomness import Randomness
from tacit.sampling import SamplingPolicy

Taken = NDArray[np.bool_]  # [steps, units]

_LAGS = (1, 2, 3)
_FEW_UNITS, _LEAST_DRAWN = 4, 300
_NORMAL_FROM = 2000  # coincidences from which on a normal score is as good as counting
_QUERY = (GaussianSumQuery(1.0, 1.0),)


@turns_errors_into_findings("sampler")
def check_sampler(policies: Sequence[SamplingPolicy], decisions: int = 4_000_000, units: int = 200) -> Finding:
    """Rate, variance n q (1-q), single units, pairs and lags over so many decisions of "does this unit take part?"."""
    trials: list[Trial] = []
    broke: list[str] = []
    measured = []
    for policy in policies:
        name, rate = policy.event(_QUERY).kind, recorded_rate(policy)
        taken = draw_units(policy, units_of(policy, units), decisions // len(policies))
        trials += [replace(one, name=f"{one.name} ({name})") for one in sampling_trials(policy, taken)]
        broke += [f"{sentence} ({name})" for sentence in _exact_facts(policy, taken)]
        few_decisions = decisions // len(policies) // 10
        if policy.neighbours == "add_remove" and few_decisions * rate > _LEAST_DRAWN:
            few = draw_units(policy, _FEW_UNITS, few_decisions)  # few units: samples are often empty, and must stay so
            trials += [
                replace(one, name=f"{one.name} ({name}, {_FEW_UNITS} units)") for one in sampling_trials(policy, few)
            ]
        broke += [f"{sentence} ({name})" for sentence in _others_stay(policy, units_of(policy, units))]
        measured.append(f"{name} {taken.mean() / rate:.4f}")
    return Finding(
        "sampler",
        f"{len(policies)} policies, {len(trials)} tests",
        decisions,
        (*rejected(trials), *broke),
        f"rate over the ledger's: {', '.join(measured)}",
    )


def recorded_rate(policy: SamplingPolicy) -> float:
    """q, from the event that the policy writes into the ledger."""
    match policy.event(_QUERY):
        case PoissonSample(probability=q) | FixedSizeSample(probability=q) | BallsInBinsStep(probability=q):
            return q
        case event:
            raise InputError(f"a {event.kind} event states no rate that could be audited")


def units_of(policy: SamplingPolicy, units: int) -> int:
    """A declared population is what it is; elsewhere any number will do."""
    return round(policy.implied_size) if policy.neighbours == "replace_one" else units


def draw_units(policy: SamplingPolicy, units: int, decisions: int) -> Taken:
    """Whether unit u took part in step t, by whole passes, with secure randomness."""
    steps = max(16, decisions // units)
    steps = -(-steps // policy.steps_per_pass) * policy.steps_per_pass
    taken = np.zeros((steps, units), dtype=bool)
    for row, drawn in zip(taken, policy.draws(units, Randomness()), strict=False):
        row[drawn] = True
    return taken


def sampling_trials(policy: SamplingPolicy, taken: Taken) -> list[Trial]:
    """Statistical tests; which ones depends on what the policy's event promises."""
    event = policy.event(_QUERY)
    q = recorded_rate(policy)
    if q == 1:
        return []
    independent = not isinstance(event, BallsInBinsStep | FixedSizeSample)
    trials = [_single_units(taken, q), _trend(taken, q)] if policy.steps_per_pass == 1 else []
    if independent:
        trials += [_rate(taken, q), _variance(taken, q)]
    if policy.steps_per_pass > 1:
        in_first = taken[:: policy.steps_per_pass]  # a unit's bins in different passes are independent
        trials += [_rate(in_first, q), _variance(in_first, q), _single_units(in_first, q), _trend(in_first, q)]
    for lag in _LAGS:
        steps = lag * policy.steps_per_pass
        if steps < len(taken):
            trials.append(_products(f"lag of {steps} steps", taken[steps:], taken[:-steps], q))
    if not isinstance(event, FixedSizeSample):
        trials.append(_products("neighbouring units", taken[:, 1:], taken[:, :-1], q))
    return trials


def _rate(taken: Taken, q: float) -> Trial:
    drawn = int(taken.sum())
    return Trial("rate", float(_binomial(drawn, taken.size, q)), f"{drawn / taken.size / q:.4f} of the ledger's")


def _single_units(taken: Taken, q: float) -> Trial:
    counts = taken.sum(0)
    p = _binomial(counts, len(taken), q)
    worst = int(np.argmin(p))
    found = f"unit {worst} was drawn {counts[worst]} times, {len(taken) * q:.0f} expected"
    return Trial("rate of single units", smallest(p), found)


def _trend(taken: Taken, q: float) -> Trial:
    """Does a unit's place decide how often it is drawn? Counts against places, centred."""
    places = np.arange(taken.shape[1]) - (taken.shape[1] - 1) / 2
    z = float(taken.sum(0) @ places) / math.sqrt(len(taken) * q * (1 - q) * float(places @ places))
    return Trial("rate by place", two_sided(z), f"{z:.1f} standard errors from even")


def _variance(taken: Taken, q: float) -> Trial:
    """Squared deviations of the sizes; a gamma law with their first two moments, whose tail is nearly right."""
    steps, units = taken.shape
    right = units * q * (1 - q)
    fourth = right * (1 + 3 * (units - 2) * q * (1 - q))  # fourth central moment of a binomial
    degrees = steps * 2 * right**2 / (fourth - right**2)
    found = float(np.square(taken.sum(1) - units * q).mean()) / right
    p = 2 * min(float(chdtr(degrees, found * degrees)), float(chdtrc(degrees, found * degrees)))
    return Trial("variance of the size", min(1.0, p), f"{found:.4f} of n q (1-q)")


def _products(name: str, one: Taken, other: Taken, q: float) -> Trial:
    """Do two decisions that should be independent coincide too often, or too rarely?"""
    both, expected = int((one & other).sum()), one.size * q * q
    found = f"{both} coincidences, {expected:.0f} expected"
    if expected < _NORMAL_FROM:  # pairs that share a decision make the count vary by 1 + 2q more than a binomial one
        return Trial(name, float(_binomial(both, one.size, q * q)) ** (1 / (1 + 2 * q)), found)
    z = (both - q * (float(one.sum()) + float(other.sum())) + expected) / (q * (1 - q) * math.sqrt(one.size))
    return Trial(name, two_sided(z), found)


def _binomial(count: NDArray[np.int64] | int, tries: int, q: float) -> NDArray[np.float64]:
    both = 2 * np.minimum(binom.cdf(count, tries, q), binom.sf(np.asarray(count) - 1, tries, q))
    return np.asarray(np.minimum(1.0, both))


def _exact_facts(policy: SamplingPolicy, taken: Taken) -> list[str]:
    """What holds without chance: the size of a fixed-size sample, one batch a pass for every unit."""
    match policy.event(_QUERY):
        case FixedSizeSample(size=size) if (taken.sum(1) != size).any():
            return [f"a sample does not hold {size} units"]
        case BallsInBinsStep(bins=bins) if (taken.reshape(-1, bins, taken.shape[1]).sum(1) != 1).any():
            return ["a unit was not in exactly one batch of a pass"]
        case _:
            return []


def _others_stay(policy: SamplingPolicy, units: int) -> list[str]:
    """One unit more must not change who else is drawn, where the number of units is secret."""
    if policy.neighbours == "replace_one":
        return []
    fewer, more = (policy.draws(count, Randomness.seeded(3)) for count in (units, units + 1))
    for _ in range(8):
        one, other = next(fewer), next(more)
        if not np.array_equal(one, other[other < units]):
            return ["one unit more changed which others were drawn"]
    return []
