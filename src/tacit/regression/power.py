"""Before anything is paid: how wide intervals will be, and which epsilon shows an effect; from public numbers alone.

Tables are made up: numbers even over their range, one of them with the assumed effect, no other. They go through the
same releases as real ones. The effect is that of half a number's range: in log odds, log rates, or standard deviations
of what is left unexplained.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from tacit.errors import InputError, check_count, check_inside, check_positive
from tacit.regression.families import FamilyName
from tacit.regression.newton.sums import Rows
from tacit.regression.problem import RegressionProblem
from tacit.regression.regression import regress_in_memory
from tacit.tables import Flag, Number, Schema
from tacit.types import Floats

TABLES = 12
GRID = (0.1, 0.2, 0.35, 0.6, 1.0, 1.7, 3.0, 6.0, 12.0)
WANTED = 0.8
_RANGE = 6.0  # standard deviations on each side that a linear outcome is declared to have


@dataclass(frozen=True, slots=True)
class Expected:
    """What intervals to expect. ``width`` is None where most tables leave no interval to state."""

    epsilon: float
    width: float | None
    plain_width: float
    power: float

    def to_json(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon, "width": self.width, "width_without_privacy": self.plain_width,
                "power": self.power}  # fmt: skip


def expected(
    family: FamilyName, rows: int, columns: int, epsilon: float, effect: float, *, level: float = 0.95, seed: int = 0,
    spread: float | None = None,
) -> Expected:  # fmt: skip
    """Width of an interval and the chance that it leaves out 0, for an effect of this size; ``spread`` is declared."""
    _check(family, rows, columns, effect, level)
    problem = _problem(family, rows, columns, epsilon, spread)
    found = [_one(problem, rows, effect, np.random.default_rng([seed, number])) for number in range(TABLES)]
    stated = [stddev for stddev, _ in found if stddev is not None]
    unit, plain = float(ndtri((1 + level) / 2)), float(np.median([stddev for _, stddev in found]))
    if len(stated) <= TABLES // 2:
        return Expected(epsilon, None, 2 * unit * plain, 0.0)
    stddev = float(np.median(stated))
    power = float(ndtr(abs(effect) / stddev - unit) + ndtr(-abs(effect) / stddev - unit)) * len(stated) / TABLES
    return Expected(epsilon, 2 * unit * stddev, 2 * unit * plain, power)


def epsilon_for(
    family: FamilyName, rows: int, columns: int, effect: float, *, level: float = 0.95, spread: float | None = None
) -> float | None:
    """The epsilon at which the effect is seen with a chance of 80 %, between those of a grid; None beyond its end."""
    before: Expected | None = None
    for epsilon in GRID:
        now = expected(family, rows, columns, epsilon, effect, level=level, spread=spread)
        if now.power >= WANTED:
            if before is None or now.power <= before.power:
                return epsilon
            share = (WANTED - before.power) / (now.power - before.power)
            return float(math.exp(math.log(before.epsilon) + share * math.log(epsilon / before.epsilon)))
        before = now
    return None


def _check(family: str, rows: int, columns: int, effect: float, level: float) -> None:
    if family not in ("linear", "logistic", "poisson"):
        raise InputError(f"--plan knows linear, logistic and poisson regression, found {family!r}")
    check_count("rows", rows, 10_000_000)
    check_count("columns", columns, 300)
    check_positive("effect", abs(effect))
    check_inside("level", level)


def _problem(family: FamilyName, rows: int, columns: int, epsilon: float, spread: float | None) -> RegressionProblem:
    outcome = {"linear": Number("y", -_RANGE, _RANGE), "poisson": Number("y", 0, 20)}.get(family, Flag("y"))
    declared = (*(Number(f"x{i}", -1, 1) for i in range(columns)), outcome)
    return RegressionProblem(Schema(declared, records=rows), "y", epsilon, family_name=family, assume_spread=spread)


def _one(
    problem: RegressionProblem, rows: int, effect: float, chance: np.random.Generator
) -> tuple[float | None, float]:
    """The standard deviation of one made-up table's effect, and that without privacy."""
    x = np.concatenate([np.ones((rows, 1)), chance.uniform(-1, 1, (rows, len(problem.names) - 1))], axis=1)
    found = regress_in_memory(problem, Rows(x, _outcomes(problem, effect * x[:, 1], chance), np.ones(rows)),
                              chance.standard_normal)  # fmt: skip
    row = found.coefficients()[1]
    return (row.stddev if row.is_identified else None), row.sampling


def _outcomes(problem: RegressionProblem, eta: Floats, chance: np.random.Generator) -> Floats:
    match problem.family.name:
        case "linear":
            return np.clip((eta + chance.standard_normal(len(eta))) / _RANGE, -1, 1)
        case "poisson":
            return chance.poisson(np.exp(np.minimum(eta, 3.0))).astype(np.float64)
        case _:
            return (chance.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(np.float64)
