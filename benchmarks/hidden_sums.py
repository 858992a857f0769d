"""Columns whose sum hardly varies: are their coefficients refused? A section of docs/regression.md.

    OMP_NUM_THREADS=1 python -m benchmarks.hidden_sums [--sets 40]

Numbers as in benchmarks/coverage.py; a sum of them with random signs keeps a share of its variance. Effects are random,
and 2 along that sum. Where it keeps nothing, no coefficient is identified. Expected, written before the run: at most
5 % of the coefficients are stated there, and intervals hold as usual where it keeps all.
"""

import argparse
import math
from collections.abc import Sequence

import numpy as np

from benchmarks.coverage import DOCUMENT, columns, covariates, marks, percent, shares
from benchmarks.document import versions, write_section
from tacit.regression import Regression, RegressionProblem, regress_in_memory
from tacit.regression.families import FamilyName
from tacit.regression.newton.sums import Rows
from tacit.tables import Flag, Number, Schema, Table
from tacit.types import Floats

SETTINGS = [(3000, 10, 1.0), (3000, 20, 3.0), (10_000, 20, 0.5), (10_000, 50, 1.0)]
FAMILIES: tuple[FamilyName, ...] = ("linear", "logistic")
LEFT = (0.0, 0.09, 0.36, 1.0)  # of the variance of the sum
ALONG, RANGE, ROOM, LEVELS = 2.0, 12.0, 0.85, (0.5, 0.9, 0.95)


def one_set(family: FamilyName, n: int, d: int, epsilon: float, left: float, seed: int) -> list[str]:
    """For each level, whether the interval of each number's coefficient holds: 1 or 0, - where none is stated."""
    found, truth, numbers = fitted(family, n, d, epsilon, left, seed)
    return [marks(found.coefficients(level), truth)[numbers] for level in LEVELS]


def fitted(
    family: FamilyName, n: int, d: int, epsilon: float, left: float, seed: int, *, spread: float | None = None,
    along: float = ALONG,
) -> tuple[Regression, Floats, slice]:  # fmt: skip
    """A regression of such a table, its true coefficients, and which of them are of numbers."""
    chance = np.random.default_rng([n, d, int(100 * epsilon), seed, 77])
    declared = columns(d)
    outcome = Flag("y") if family == "logistic" else Number("y", -RANGE, RANGE)
    problem = RegressionProblem(
        Schema((*declared, outcome), records=n), "y", epsilon, 1e-5, family, assume_spread=spread
    )
    x = problem.design.x(Table(covariates(declared, n, chance)))
    numbers = slice(1, 1 + sum(isinstance(column, Number) for column in declared))
    signs = np.zeros(d)
    signs[numbers] = chance.choice([-1.0, 1.0], numbers.stop - 1) / math.sqrt(numbers.stop - 1)
    x[:, numbers] *= ROOM  # so that hardly any is cut off at the bounds
    away = np.outer((x - x.mean(0)) @ signs, signs)
    x = np.clip(x - (1 - math.sqrt(left)) * away, -1, 1)
    effects = 0.5 * chance.standard_normal(d) * min(1, (10 / d) ** 0.5)
    effects += (along - signs @ effects) * signs
    eta = x @ effects
    if family == "logistic":
        scale, y = 1.0, (chance.random(n) < 1 / (1 + np.exp(-eta))).astype(float)
    else:
        scale, y = RANGE, np.clip((eta + chance.standard_normal(n)) / RANGE, -1, 1)
    found = regress_in_memory(problem, Rows(x, y, np.ones(n)), chance.standard_normal)
    to_names, shift = problem.reported
    return found, to_names @ effects / scale + shift, numbers


def cell(family: FamilyName, n: int, d: int, epsilon: float, left: float, sets: int) -> str:
    """The share of coefficients that are stated, and how many of their intervals hold."""
    found = [one_set(family, n, d, epsilon, left, 1000 + seed) for seed in range(sets)]
    parts = [shares([one[level] for one in found]) for level in range(len(LEVELS))]
    return f"{parts[0][1]:.1%}: {percent([share for share, _ in parts])}"


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--sets", type=int, default=40)
    sets = options.parse_args(arguments).sets
    kept = " | ".join(f"{left:g}" for left in LEFT)
    lines = [f"| family | n | d | epsilon | tables | {kept} |", "|" + (5 + len(LEFT)) * "---|"]
    for n, d, epsilon in SETTINGS:
        for family in FAMILIES:
            cells = " | ".join(cell(family, n, d, epsilon, left, sets) for left in LEFT)
            lines.append(f"| {family} | {n:,} | {d} | {epsilon:g} | {sets} | {cells} |")
            print(lines[-1], flush=True)
    text = (
        "Of columns of which a sum keeps this share of its variance (0 to 1), the coefficients stated, and how many of "
        f"their 50 / 90 / 95 % intervals held (%). {versions('numpy')}.\n\n" + "\n".join(lines)
    )
    write_section(DOCUMENT, "sums", text)


if __name__ == "__main__":
    main()
