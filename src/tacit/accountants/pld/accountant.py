"""The default accountant: privacy loss distributions by the contour integral, certified on both sides (maths.md 3)."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from tacit.accountants.failures import as_gaussian, failure_of, without_failures
from tacit.accountants.guarantee import Guarantee, check_ledger, refuse_adaptive, refuse_event, statement
from tacit.accountants.pld import Bracket, PoissonGaussian, delta_curve, epsilon_bracket
from tacit.accountants.pld.bounds import resolved
from tacit.accountants.pld.lattice.replace_one import epsilon_of_samples
from tacit.accountants.renyi.conversion import rdp_bound
from tacit.accountants.renyi.discrete import rounding_gap
from tacit.accountants.renyi.fixed_size import fixed_size_log_moments
from tacit.accountants.renyi.moments import ORDERS, poisson_log_moments
from tacit.errors import RefusedError
from tacit.ledger import DiscretePoissonSample, FixedSizeSample, Ledger, PoissonSample
from tacit.types import Floats

_MOST_KINDS = 64  # of fixed-size samples on one lattice
_LARGEST_GAP = 0.01  # that strict numerics may add to epsilon, twice


UNRESOLVED = (
    "noise, rate, steps or delta are so extreme that the privacy loss distribution is not resolved: stated is a bound "
    "by Renyi moments, total variation or the release without sampling, which may be far above the truth"
)


@dataclass(frozen=True, slots=True)
class Releases:
    """What the engine reads of a ledger: sampled Gaussians, and how far the run may be from them.

    Args:
        gap: tau of :func:`rounding_gap`, 0 without strict numerics; epsilon grows by 2 tau, delta by the factor e^tau.
    """

    events: tuple[PoissonGaussian, ...]
    gap: float


def releases(ledger: Ledger, name: str = "pld") -> Releases:
    """The ledger as Poisson-sampled Gaussian releases; what is none is refused by name."""
    counts: dict[tuple[float, float], int] = {}
    strict: dict[DiscretePoissonSample, int] = {}
    for event, steps in ledger.merged().items():
        match event:
            case PoissonSample(probability=q, noise_multiplier=z):
                key = (q, z)
            case DiscretePoissonSample(probability=q, noise_multiplier=z):
                key = (q, z)
                strict[event] = steps
            case FixedSizeSample(size=size, population=population, noise_multiplier=z) if size == population:
                key = (1.0, z / 2)  # no sampling at all: a Gaussian whose sum moves by twice the clip norm
            case _:
                raise refuse_event(name, event)
        counts[key] = counts.get(key, 0) + steps
    gap = rounding_gap(strict) if strict else 0.0
    if gap > _LARGEST_GAP:
        raise RefusedError(
            f"{name} cannot read discrete_poisson events whose noise is so few steps of the grid wide: rounded "
            "Gaussian noise, for which a bound is proved, is too far from it; rdp reads them"
        )
    return Releases(tuple(PoissonGaussian(q, z, count) for (q, z), count in counts.items()), gap)


def ledger_bracket(ledger: Ledger, delta: float) -> Bracket:
    """Certified lower and upper bounds of the ledger's epsilon; an empty ledger costs nothing."""
    if failure_of(ledger.charges):
        sure = ledger_bracket(*without_failures(ledger, delta))
        return replace(sure, lower=0.0, two_sided=False)
    samples = _fixed_size_samples(ledger)
    if samples:
        return _samples_bracket(samples, delta)
    found = releases(ledger)
    if not found.events:
        return Bracket(0.0, 0.0)
    if not found.gap:
        return _bracket(found.events, delta)
    rounded = _bracket(found.events, delta * math.exp(-found.gap) * (1 - 1e-12))
    return Bracket(0.0, rounded.upper + 2 * found.gap, rounded.resolved, two_sided=False)


def ledger_deltas(ledger: Ledger, epsilons: Floats) -> Floats:
    """Certified upper bounds of delta at each epsilon."""
    if failure := failure_of(ledger.charges):
        return np.minimum(ledger_deltas(replace(ledger, charges=as_gaussian(ledger.charges)), epsilons) + failure, 1.0)
    found = releases(ledger)
    if not found.events:
        return np.zeros(len(epsilons))
    upper = delta_curve(found.events, np.maximum(epsilons - 2 * found.gap, 0.0))[1]
    short = np.maximum(math.expm1(2 * found.gap) - np.expm1(epsilons), 0.0)  # below epsilon 2 tau
    return np.asarray(np.minimum(upper * math.exp(found.gap) * (1 + 1e-12) + short, 1.0))


def _fixed_size_samples(ledger: Ledger) -> tuple[tuple[FixedSizeSample, int], ...]:
    """The ledger's samples of a fixed size with their steps, if it holds nothing else."""
    merged = ledger.merged()
    samples = [(e, n) for e, n in merged.items() if isinstance(e, FixedSizeSample) and e.probability < 1]
    return tuple(samples) if len(samples) == len(merged) else ()


@lru_cache(maxsize=64)
def _samples_bracket(samples: tuple[tuple[FixedSizeSample, int], ...], delta: float) -> Bracket:
    """At most what Renyi divergences say: a lattice may be too coarse, or too large to be made."""
    orders = np.array(ORDERS)
    moments = sum(n * fixed_size_log_moments(e.probability, e.noise_multiplier, orders) for e, n in samples)
    renyi = rdp_bound(moments / (orders - 1), ORDERS, delta)
    # replacing a unit moves the sum by twice its contribution
    events = [PoissonGaussian(e.probability, e.noise_multiplier / 2, n) for e, n in samples]
    if renyi == 0 or len(events) > _MOST_KINDS:
        return Bracket(0.0, renyi, renyi == 0, two_sided=False)
    found = resolved(lambda: epsilon_of_samples(events, delta, renyi))
    return Bracket(0.0, renyi if found is None else found, found is not None, two_sided=False)


@lru_cache(maxsize=64)
def _bracket(events: tuple[PoissonGaussian, ...], delta: float) -> Bracket:
    """Remembered, because several accountants and reports ask the same question."""
    found = epsilon_bracket(events, delta)
    if found.resolved:
        return found
    rows, orders = [(one.probability, one.noise_multiplier, one.count) for one in events], np.array(ORDERS)
    renyi = rdp_bound(poisson_log_moments(rows, orders) / (orders - 1), ORDERS, delta)
    return Bracket(found.lower, min(found.upper, renyi), resolved=False)


@dataclass(frozen=True, slots=True)
class PLDAccountant:
    """Reports the upper end of the bracket; the lower end goes with it."""

    name: ClassVar[str] = "pld"

    def guarantee(self, ledger: Ledger, *, delta: float) -> Guarantee:
        check_ledger(ledger, delta)
        refuse_adaptive(self.name, ledger)
        found = ledger_bracket(ledger, delta)
        return statement(
            ledger,
            accountant=self.name,
            epsilon=found.upper,
            delta=delta,
            is_bound=True,
            lower=found.lower if found.resolved and found.two_sided else None,
            also=() if found.resolved else (UNRESOLVED,),
        )
