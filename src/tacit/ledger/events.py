"""What a ledger says happened: sampling events that hold Gaussian sum queries, posterior samples, and
the best of several trials.

These are raw public facts (McMahan et al., sections 2 and 3): which policy chose the records, and for each group of
vectors what one record could do to the sum and how much noise was added to it. No conclusion is stored, and nothing
that depends on the data. An accountant reads the facts and draws the conclusions.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from tacit.errors import (
    InputError,
    check_count,
    check_inside,
    check_positive,
    check_share,
    is_number,
)
from tacit.ledger.sums import MOST, GaussianSumQuery, merged_noise_multiplier

Neighbours = Literal["add_remove", "replace_one"]
Unit = Literal["record", "microbatch", "user"]


@dataclass(frozen=True, slots=True)
class PoissonSample:
    """Each unit takes part independently with the same probability; probability 1 is the full batch."""

    probability: float
    queries: tuple[GaussianSumQuery, ...]

    kind: ClassVar[str] = "poisson"
    neighbours: ClassVar[Neighbours] = "add_remove"

    def __post_init__(self) -> None:
        check_share("probability", self.probability)
        _refuse_grid(self.queries, self.kind)

    @property
    def noise_multiplier(self) -> float:
        return merged_noise_multiplier(self.queries)


@dataclass(frozen=True, slots=True)
class DiscretePoissonSample:
    """A Poisson sample whose sums lie on a grid and have discrete Gaussian noise (Canonne, Kamath, Steinke 2020).

    An event of its own, because not every formula for the Gaussian holds for it: an accountant that does not know it
    refuses it by name. Shifts and noise are whole multiples of ``grid``.
    """

    probability: float
    queries: tuple[GaussianSumQuery, ...]

    kind: ClassVar[str] = "discrete_poisson"
    neighbours: ClassVar[Neighbours] = "add_remove"

    def __post_init__(self) -> None:
        check_share("probability", self.probability)
        for query in self.queries:
            if query.grid is None or query.slack:
                raise InputError("a discrete_poisson event needs queries with a grid and no slack")
            if query.multiplicity != 1 and self.probability < 1:
                raise InputError("strict numerics protect records inside microbatches only without sampling")

    @property
    def noise_multiplier(self) -> float:
        return merged_noise_multiplier(self.queries)


@dataclass(frozen=True, slots=True)
class ThresholdedSample:
    """Sums of all units of which only those above a threshold are shown, among cells that nobody declared.

    Which cells there are is private, so a unit that alone is in a cell could be seen by its name. The threshold is so
    high that this happens with a chance of at most ``failure``, which comes on top of delta; but for that, it is the
    Gaussian release of its queries (docs/maths.md, section 13).
    """

    failure: float
    queries: tuple[GaussianSumQuery, ...]

    kind: ClassVar[str] = "thresholded"
    neighbours: ClassVar[Neighbours] = "add_remove"

    def __post_init__(self) -> None:
        check_inside("failure", self.failure)
        _refuse_grid(self.queries, self.kind)

    @property
    def noise_multiplier(self) -> float:
        return merged_noise_multiplier(self.queries)

    @property
    def gaussian(self) -> PoissonSample:
        """The same release with declared cells."""
        return PoissonSample(1.0, self.queries)


@dataclass(frozen=True, slots=True)
class FixedSizeSample:
    """A uniformly random set of ``size`` units out of a public ``population``, without replacement.

    Both numbers are public, so the neighbours are *replace one*: the sum can move by twice the clip norm.
    """

    size: int
    population: int
    queries: tuple[GaussianSumQuery, ...]

    kind: ClassVar[str] = "fixed_size"
    neighbours: ClassVar[Neighbours] = "replace_one"

    def __post_init__(self) -> None:
        check_count("size", self.size)
        check_count("population", self.population)
        if self.size > self.population:
            raise InputError(f"size must be at most the population {self.population}, found {self.size}")
        _refuse_grid(self.queries, self.kind)

    @property
    def probability(self) -> float:
        return self.size / self.population

    @property
    def noise_multiplier(self) -> float:
        """Noise over the largest change of one unit's *contribution*; replacing one moves the sum by twice that."""
        return merged_noise_multiplier(self.queries)


@dataclass(frozen=True, slots=True)
class BallsInBinsStep:
    """One step of a pass in which each unit was thrown into one of ``bins`` batches, independently and uniformly.

    A pass is ``bins`` such steps. An accountant rounds a started pass up to a whole one.
    """

    bins: int
    queries: tuple[GaussianSumQuery, ...]

    kind: ClassVar[str] = "balls_in_bins"
    neighbours: ClassVar[Neighbours] = "add_remove"

    def __post_init__(self) -> None:
        check_count("bins", self.bins)
        _refuse_grid(self.queries, self.kind)

    @property
    def probability(self) -> float:
        return 1 / self.bins

    @property
    def noise_multiplier(self) -> float:
        return merged_noise_multiplier(self.queries)


@dataclass(frozen=True, slots=True)
class ShuffledStep:
    """One step of a pass over randomly permuted batches, recorded so that it can be refused by name."""

    batches: int
    queries: tuple[GaussianSumQuery, ...]

    kind: ClassVar[str] = "shuffled"
    neighbours: ClassVar[Neighbours] = "replace_one"

    def __post_init__(self) -> None:
        check_count("batches", self.batches)
        _refuse_grid(self.queries, self.kind)

    @property
    def noise_multiplier(self) -> float:
        return merged_noise_multiplier(self.queries)


@dataclass(frozen=True, slots=True)
class PosteriorSample:
    """One draw from a posterior over all units, exp(power * sum of log-likelihoods) times the prior (Wang et al. 2015).

    Adding a unit multiplies the density by exp(power * l(theta)) over its mean, and l lies in an interval of length
    ``log_likelihood_range`` whatever the unit and theta. So the privacy loss lies in an interval of length
    power * range that holds 0: the draw is epsilon-DP with that epsilon, if it really comes from that density.

    Args:
        log_likelihood_range: how far one unit's log-likelihoods lie apart at most, over all units and parameters.
        power: the log-likelihood's share, 1 for Bayes' rule.
        exact: whether the draw comes from that density; a Markov chain that stops only comes close.

    Example:
        >>> PosteriorSample(log_likelihood_range=5.0, power=0.1, exact=True).epsilon
        0.5
    """

    log_likelihood_range: float
    power: float
    exact: bool

    kind: ClassVar[str] = "posterior_sample"
    neighbours: ClassVar[Neighbours] = "add_remove"
    queries: ClassVar[tuple[GaussianSumQuery, ...]] = ()

    def __post_init__(self) -> None:
        check_positive("log_likelihood_range", self.log_likelihood_range)
        check_positive("power", self.power)
        if not isinstance(self.exact, bool):
            raise InputError(f"exact must be true or false, found {self.exact!r}")

    @property
    def epsilon(self) -> float:
        """The pure epsilon of an exact draw."""
        return self.power * self.log_likelihood_range


def _refuse_grid(queries: tuple[GaussianSumQuery, ...], kind: str) -> None:
    if any(query.grid is not None for query in queries):
        raise InputError(f"strict numerics are proved for Poisson sampling only, found a {kind} sample on a grid")


@dataclass(frozen=True, slots=True)
class PoissonTrials:
    """A number of trials from the Poisson distribution of this mean; where it says none, there is one."""

    mean: float

    law: ClassVar[str] = "poisson"

    def __post_init__(self) -> None:
        check_positive("mean", self.mean)


@dataclass(frozen=True, slots=True)
class NegativeBinomialTrials:
    """A number of trials from the truncated negative binomial: eta 0 is the logarithmic one, 1 the geometric."""

    eta: float
    gamma: float

    law: ClassVar[str] = "negative_binomial"

    def __post_init__(self) -> None:
        check_inside("gamma", self.gamma)
        if not (is_number(self.eta) and self.eta > -1):
            raise InputError(f"eta must be a finite number above -1, found {self.eta!r}")


@dataclass(frozen=True, slots=True)
class Tuned:
    """The best of a random number of trials; the others and how many there were are not released.

    Papernot and Steinke 2022. What a trial tries is drawn independently of the data, the same charges pay for each.

    Args:
        trial: what one trial takes from the data, its score included: events, each with its number of steps.
        trials: the distribution of their number.
    """

    trial: tuple[tuple[PoissonSample, int], ...]
    trials: PoissonTrials | NegativeBinomialTrials

    kind: ClassVar[str] = "tuned"
    neighbours: ClassVar[Neighbours] = "add_remove"
    queries: ClassVar[tuple[GaussianSumQuery, ...]] = ()

    def __post_init__(self) -> None:
        if not self.trial or not all(isinstance(event, PoissonSample) for event, _ in self.trial):
            raise InputError("a trial must be made of poisson events, and of at least one")
        for _, steps in self.trial:
            check_count("steps", steps, MOST)


SamplingEvent = (
    PoissonSample
    | DiscretePoissonSample
    | ThresholdedSample
    | FixedSizeSample
    | BallsInBinsStep
    | ShuffledStep
    | PosteriorSample
    | Tuned
)
