"""How the budget of a regression is shared out over its releases, and the noise that follows; public numbers only.

Each release has a share of the precision 1/z^2: noise of z / sqrt(share) on a sum of norm 1 for each record. With all
shares adding up to 1, all of it together is one Gaussian release of multiplier z, and z is the least one that a
certified accountant finds within (epsilon, delta).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from tacit.accountants import get_accountant
from tacit.accountants.gaussian import gaussian_mu
from tacit.accountants.search import smallest_within
from tacit.errors import RefusedError
from tacit.ledger import Charge, GaussianSumQuery, Ledger, PoissonSample
from tacit.regression.families import Family, Linear, Ordered, Poisson

Stages = tuple[Mapping[str, float], ...]
SLACK = 1e-5  # what rounding may add to one record's part of a sum, relative to its bound (sums.py)
_AMPLE = 0.5  # the multiplier at which epsilon is about 10
_FEW = 15  # parameters
_LOOSE = {"poisson": 2.0, "linear": 1.5}  # how much less closely than others a record's curvature is bounded
STEPS = 3  # corrections of the estimate before the last release
PARTS = 4  # that each release is drawn in, so that a stop loses one of them at most (kept.py)

# What was tried: shares from .02 to .4 in some ten layouts, on simulated tables (docs/regression.md).
_BOUNDED: Stages = (
    {"gram off": 0.08, "gram on": 0.03, "offset": 0.28},
    {"mean 1": 0.03, "curvature 1 off": 0.07, "curvature 1 on": 0.03},
    {"mean 2": 0.04},
    {"mean 3": 0.06},
    {"mean last": 0.26, "curvature last off": 0.07, "curvature last on": 0.04, "score size": 0.02},
)
_CLIPPED: Stages = (
    {"outcomes": 0.02},
    {"gram off": 0.10, "gram on": 0.04, "offset": 0.08},
    {"residuals 1": 0.02},
    {"score 1": 0.06, "curvature 1 off": 0.06, "curvature 1 on": 0.02, "residuals 2": 0.02},
    {"score 2": 0.10},
    {"score 3": 0.14},
    {"score last": 0.26, "curvature last off": 0.06, "curvature last on": 0.02, "score size": 0.01},
)
_SCORES = {"scores off": 0.07, "scores on": 0.04}
_EXPOSURE = {"exposure": 0.02}
_DECLARED_ON = {"gram": 0.12, "curvature": 0.06}  # where a declaration says what the rest of a matrix leaves open
_DECLARED_ROW = 0.06
_BLIND = 0.5  # times their share, of entries off the diagonal where they could show no sum of columns anyway
_MOST_NOISE = 0.5  # of their spectrum, over a column's own variance, up to which they could
_ORDERED: Stages = (
    *_BOUNDED[:-1],
    {"mean last": 0.25, "curvature last off": 0.06, "curvature last on": 0.03, **_SCORES},
)


@dataclass(frozen=True, slots=True)
class ReleasePlan:
    """Every release by name with its share of the precision, stage by stage, and the multiplier of all together.

    Example:
        >>> plan = ReleasePlan(({"a": 0.25}, {"b": 0.75}), multiplier=2.0)
        >>> round(plan.stddev("a") / (1 + SLACK), 9), [charge.steps for charge in plan.charges()]
        (4.0, [4, 4])
    """

    stages: Stages
    multiplier: float

    @property
    def is_ample(self) -> bool:
        """Whether the noise hardly matters (from epsilon 10 on): then no record is weighted down or clipped for it."""
        return self.multiplier <= _AMPLE

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for stage in self.stages for name in stage)

    def stddev(self, name: str) -> float:
        """Of the noise on a sum to which no record adds more than 1."""
        share = next(stage[name] for stage in self.stages if name in stage)
        return self.multiplier / math.sqrt(share) * (1 + SLACK)

    def charges(self, run: str | None = None) -> list[Charge]:
        """What the ledger is charged, all of it before a record is touched: a stage's releases in :data:`PARTS` parts.

        Where a later stage asks follows from earlier ones, what it may reveal does not: norms and noise are fixed here.
        ``run`` names the groups of a run that shares its ledger, so that it knows its own charges from those of others.
        """
        of_run = "" if run is None else f" of run {run}"
        stages = [tuple(self._query(name, name + of_run) for name in stage) for stage in self.stages]
        return [Charge(PoissonSample(1.0, queries), PARTS) for queries in stages]

    def part_stddev(self, name: str) -> float:
        """Of the noise on each of the parts, whose mean has :meth:`stddev`."""
        return math.sqrt(PARTS) * self.stddev(name)

    def _query(self, name: str, group: str) -> GaussianSumQuery:
        return GaussianSumQuery(1.0, self.part_stddev(name), SLACK, group=group)


def release_plan(
    family: Family, parameters: int, epsilon: float, delta: float, accountant: str = "pld", *, clustered: bool = False,
    declared: bool = False, blind: bool = False,
) -> ReleasePlan:  # fmt: skip
    """The least noise with which all releases stay within (epsilon, delta); in a shared ledger RDP must say so.

    Matrices grow faster than vectors with the number of parameters, and that of some families is bounded less closely,
    so entries off the diagonal get up to four times their share. Where a person may have several rows (``clustered``),
    the covariance of scores is no multiple of the curvature, and is released in place of its size. Where it is
    ``declared`` that no sum of columns hardly varies, the first row of matrices comes apart, that and the diagonal get
    more, and entries off it less where they are ``blind`` (:func:`is_blind`).
    """
    match family:
        case Ordered():
            stages = _ORDERED
        case Linear() | Poisson():
            stages = _CLIPPED
        case _:
            stages = _BOUNDED
    if clustered and not isinstance(family, Ordered):
        last = {name: share for name, share in stages[-1].items() if name != "score size"}
        stages = (*stages[:-1], last | _SCORES)
    if isinstance(family, Poisson) and family.longest:
        stages = (*stages[:1], {**stages[1], **_EXPOSURE}, *stages[2:])
    if declared:
        stages = _under_declaration(stages, _LOOSE.get(family.name, 1.0))
    more = _BLIND if blind else min(max(math.sqrt(parameters / _FEW), 1.0), 2.0) * _LOOSE.get(family.name, 1.0)
    asked = [{name: share * (more if name.endswith(" off") else 1) for name, share in one.items()} for one in stages]
    total = math.fsum(share for stage in asked for share in stage.values())
    even = tuple({name: share / total for name, share in stage.items()} for stage in asked)
    return ReleasePlan(even, _multiplier(epsilon, delta, accountant))


def is_blind(plan: ReleasePlan, reach: float, parameters: int, records: int) -> bool:
    """Whether entries off the diagonal could not show a sum of columns that keeps nothing, by public numbers alone.

    Their noise, z R^2 / sqrt(2 share), has the spectrum of d entries, sqrt(d) times as much; columns that are even over
    their bounds have the variance n (R^2 - 1) / d by themselves.
    """
    share = math.fsum(share for stage in plan.stages for name, share in stage.items() if name.endswith(" off"))
    columns = parameters - 1
    noise = plan.multiplier * reach**2 * math.sqrt(columns) / math.sqrt(2 * share)
    return noise > _MOST_NOISE * records * (reach**2 - 1) / columns


def _under_declaration(stages: Stages, loose: float) -> Stages:
    """Each matrix with a first row of its own; ``loose`` is how loosely a record's curvature is bounded."""
    found = []
    for stage in stages:
        one: dict[str, float] = {}
        for name, share in stage.items():
            matrix, _, part = name.rpartition(" ")
            kind = matrix.split(" ")[0]
            if kind not in _DECLARED_ON:
                one[name] = share
            elif part == "off":
                one |= {name: share, f"{matrix} row": _DECLARED_ROW}
            else:
                one[name] = _DECLARED_ON[kind] * (loose if kind == "curvature" else 1.0)
        found.append(one)
    return tuple(found)


@lru_cache(maxsize=256)
def _multiplier(epsilon: float, delta: float, accountant: str) -> float:
    reader = get_accountant(accountant)

    def cost(z: float) -> float:
        try:
            ledger = Ledger.planned(ReleasePlan(({"all": 1.0},), z).charges())
            return reader.guarantee(ledger, delta=delta).epsilon
        except RefusedError:
            return math.inf

    # a hair above, because the groups' sum of squares rounds
    return smallest_within(cost, epsilon, "noise multiplier", 1 / gaussian_mu(epsilon, delta)) * (1 + 1e-9)
