"""The Bayesian accountant (Triastcyn and Faltings 2020): what a record drawn like the data loses.

Its epsilon_mu stands beside the worst case, never for it.

Three compositions of the cost of a run:

    probes   log E_x[exp(sum_t A_t(x))], the same probes through all steps: no Holder step, T need not be known
    holder   sum_t (1/T) log E_x[exp(T A_t(x))], the paper's (theorem 1)
    mixture  delta_mu(epsilon) = E_x[delta_x(epsilon)], by privacy loss distributions: the tightest

Chernoff then gives epsilon_mu = min over lambda of (cost + log 1/(delta_mu - gamma))/lambda, and the improved
conversion takes lambda log(1 + 1/lambda) + log(lambda + 1) off the numerator. gamma is what estimating from a sample
may cost: a union over orders (and steps, for holder).
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from tacit.accountants.bayesian.cost import MOMENTS, privacy_costs
from tacit.accountants.bayesian.estimators import ESTIMATORS, EstimatorName, mean_upper
from tacit.accountants.bayesian.exposure import Exposure, check_evidence, exposure_of
from tacit.accountants.bayesian.record_losses import DIRECTIONS, record_deltas
from tacit.accountants.bayesian.sentences import WORST, Spent, estimator_sentence, evidence_sentences
from tacit.accountants.guarantee import Guarantee, check_ledger, statement
from tacit.accountants.pld.accountant import PLDAccountant, ledger_deltas
from tacit.accountants.renyi.conversion import Conversion
from tacit.errors import InputError, RefusedError, check_choice, check_count, check_inside
from tacit.evidence import Evidence
from tacit.ledger import Ledger
from tacit.types import Floats

Composition = Literal["probes", "holder", "mixture"]

_GRID = 257
_POINTS = 400  # epsilons at which a mixture is tried, fixed by the ledger alone


@dataclass(frozen=True, slots=True)
class BayesianAccountant:
    """(epsilon_mu, delta_mu)-Bayesian differential privacy of a ledger, from evidence about held-out probes.

    Args:
        composition: how the costs of steps are put together; "mixture" is the tightest, "holder" the paper's.
        estimator: "betting" is sound; "student_t" (the paper's) and "binary" are heuristics below the worst case.
        gamma: what estimating may cost in all, out of delta; None takes a tenth of delta.
        percentile: state (epsilon, delta) for this share of the data by Markov's inequality (Triastcyn and Faltings,
            4.4.1): never above the worst case, and usually not below it either; :class:`IndividualAccountant` says far
            more.
        conversion: "improved", or the paper's "classic".
    """

    composition: Composition = "probes"
    estimator: EstimatorName = "betting"
    gamma: float | None = None
    percentile: float | None = None
    conversion: Conversion = "improved"
    moments: tuple[int, ...] = MOMENTS

    name: ClassVar[str] = "bayesian"

    def __post_init__(self) -> None:
        check_choice("composition", self.composition, get_args(Composition))
        check_choice("estimator", self.estimator, ESTIMATORS)
        check_choice("conversion", self.conversion, get_args(Conversion))
        for name in ("gamma", "percentile"):
            if getattr(self, name) is not None:
                check_inside(name, getattr(self, name))
        if not self.moments:
            raise InputError("moments must hold at least one order, found none")
        for moment in self.moments:
            check_count("moments", moment)

    def guarantee(self, ledger: Ledger, evidence: Evidence, *, delta: float) -> Guarantee:
        """The smaller of the estimate and the DP number: what holds for every record holds for a typical one."""
        epsilon = self.estimate(ledger, evidence, delta=delta)
        worst = PLDAccountant().guarantee(ledger, delta=delta).epsilon
        estimator: EstimatorName = "betting" if self.composition == "mixture" else self.estimator
        trust = estimator_sentence(estimator, evidence.records, self._spent(ledger, delta))
        return statement(
            ledger,
            accountant=f"{self.name} {self.composition}" + ("" if estimator == "betting" else f" {estimator}"),
            epsilon=min(epsilon, worst),
            delta=delta,
            is_bound=False,
            also=(
                *evidence_sentences(ledger, evidence),
                trust,
                *((WORST,) if ledger.steps and worst <= epsilon else ()),
            ),
            notion="bayesian_dp",
            percentile=self.percentile,
        )

    def estimate(self, ledger: Ledger, evidence: Evidence, *, delta: float) -> float:
        """What the evidence alone says, as the paper reports it: from few records it may exceed the DP number."""
        check_ledger(ledger, delta)
        self._check(evidence)
        if not ledger.steps:
            return 0.0
        delta_mu, spent = self._delta_mu(delta), self._spent(ledger, delta)
        match self.composition:
            case "mixture":
                return mixture_epsilon(exposure_of(ledger, evidence, self.name), ledger, delta_mu, spent.gamma)
            case "probes":
                costs = self._probe_cost(exposure_of(ledger, evidence, self.name), spent.each)
            case _:
                costs = self._holder_cost(ledger, evidence, spent.each)
        return float(chernoff_epsilons(costs, self.moments, delta_mu - spent.gamma, self.conversion).min())

    def _delta_mu(self, delta: float) -> float:
        """The delta of the mean over records; a percentile pays for Markov's inequality.

        Triastcyn and Faltings, 4.4.1.
        """
        return delta if self.percentile is None else (1 - self.percentile) * delta

    def _spent(self, ledger: Ledger, delta: float) -> Spent:
        """gamma, and over how many estimates it is shared: all orders, and for holder all steps."""
        delta_mu = self._delta_mu(delta)
        gamma = delta_mu / 10 if self.gamma is None else self.gamma
        if not 0 < gamma < delta_mu:
            raise InputError(f"gamma must lie between 0 and delta_mu {delta_mu:g}, found {gamma!r}")
        orders = len(self.moments)
        match self.composition:
            case "mixture":
                return Spent(gamma)
            case "probes":
                return Spent(gamma, orders, f" ({orders} orders together)")
            case _:
                steps = _horizon(ledger)
                return Spent(gamma, orders * steps, f" ({orders} orders of {steps} steps together)")

    def _probe_cost(self, exposure: Exposure, each: float) -> Floats:
        costs, worst = exposure.costs(self.moments)
        bound = ESTIMATORS[self.estimator]
        return np.array([bound(costs[:, k], float(worst[k]), each) for k in range(len(self.moments))])

    def _holder_cost(self, ledger: Ledger, evidence: Evidence, each: float) -> Floats:
        """sum_t (1/T) log E[exp(T A_t)]; T is the number declared, so that stopping early is sound (maths.md 8 b)."""
        horizon = _horizon(ledger)
        bound, total = ESTIMATORS[self.estimator], np.zeros(len(self.moments))
        grid = np.linspace(0, 1, _GRID)
        curves = {(q, z): privacy_costs(q, grid / z, self.moments) for q, z in _covered(evidence)}
        for item, shares in evidence.between():
            costs = curves[item.probability, item.noise_multiplier]
            for k in range(len(self.moments)):
                # A is convex in r^2, so the chord is above it
                values = np.interp(np.square(shares.astype(float)), grid**2, costs[:, k])
                total[k] += item.steps * bound(horizon * values, horizon * float(costs[-1, k]), each) / horizon
        return total + self._uncovered_cost(ledger, evidence)

    def _uncovered_cost(self, ledger: Ledger, evidence: Evidence) -> Floats:
        whole = exposure_of(ledger, evidence, self.name)
        every = whole.costs(self.moments)[1]
        covered = np.zeros(len(self.moments))
        for (q, z), steps in _covered(evidence).items():
            covered += steps * privacy_costs(q, 1 / z, self.moments)[0]
        return np.maximum(every - covered, 0.0)

    def _check(self, evidence: Evidence) -> None:
        check_evidence(evidence)
        if evidence.kind == "members" and (self.estimator == "betting" or self.composition == "mixture"):
            raise RefusedError(
                "the members' own norms are no fresh draws, so nothing sound follows for the population: "
                "give held-out probes, or the paper's estimator student_t"
            )


def _horizon(ledger: Ledger) -> int:
    """The declared number of steps, so that stopping early is sound."""
    return max(ledger.planned_steps, ledger.steps, 1)


def _covered(evidence: Evidence) -> dict[tuple[float, float], int]:
    """Steps by sampling probability and noise multiplier: few kinds, of many stretches."""
    steps: dict[tuple[float, float], int] = {}
    for item in evidence.stretches:
        kind = (item.probability, item.noise_multiplier)
        steps[kind] = steps.get(kind, 0) + item.steps
    return steps


def chernoff_epsilons(
    costs: Floats, moments: tuple[int, ...], delta: float, conversion: Conversion = "improved", percentile: float = 0.0
) -> Floats:
    """epsilon of each order, at least 0: classic as in Triastcyn and Faltings, corollary 1; improved as in maths.md 8.

    With a percentile, Markov's inequality on exp(lambda R(x)) adds log 1/(1 - percentile) inside.

    Example:
        >>> float(chernoff_epsilons(np.array([2.0]), (9,), 1e-5, percentile=0.99)[0].round(6))
        1.651918
    """
    m = np.asarray(moments, dtype=float)
    classic = (costs - math.log(delta) - math.log1p(-percentile)) / m
    if conversion == "classic":
        return np.asarray(np.maximum(classic, 0.0))
    return np.asarray(np.maximum(classic - np.log1p(1 / m) - np.log1p(m) / m, 0.0))


def mixture_delta(exposure: Exposure, epsilons: Floats, delta: float, weights: Floats | None = None) -> Floats:
    """E_x[delta_x(epsilon)] for a known distribution over the exposure's records."""
    w = np.full(exposure.records, 1 / exposure.records) if weights is None else weights
    return np.asarray(np.max([w @ record_deltas(exposure, way, epsilons, delta) for way in DIRECTIONS], axis=0))


def mixture_epsilon(exposure: Exposure, ledger: Ledger, delta: float, gamma: float) -> float:
    """The smallest epsilon with E_x[delta_x(epsilon)] <= delta, by betting on the mean of delta_x in [0, delta_DP].

    Epsilons are tried from the worst case downwards and the first failure ends the search: a fixed sequence, which
    needs no union over epsilons.
    """
    top = PLDAccountant().guarantee(ledger, delta=delta - gamma).epsilon
    epsilons = np.linspace(top, 0.0, _POINTS + 1)
    worst = ledger_deltas(ledger, epsilons)
    deltas = np.max([record_deltas(exposure, way, epsilons, delta) for way in DIRECTIONS], axis=0)
    best = top
    for column in range(1, len(epsilons)):
        ceiling = float(worst[column])
        mean = mean_upper(np.minimum(deltas[:, column] / ceiling, 1.0), gamma) * ceiling
        if mean + gamma > delta:
            break
        best = float(epsilons[column])
    return best
