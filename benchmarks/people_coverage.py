"""How often intervals hold the truth where people have several rows: the table of "People with several rows".

    python -m benchmarks.people_coverage [--sets 300] [--only poisson]

People have 1 to 8 rows. Errors, or the normal variables behind counts and yes or no, share a factor; half of the
covariates are the same in all rows of a person. A row by itself has the family's distribution, so the truth is known.
"""

import argparse
from collections.abc import Sequence

import numpy as np
from scipy.stats import norm, poisson

from benchmarks.coverage import DOCUMENT, LEVELS, marks, percent, shares
from benchmarks.document import versions, write_section
from tacit.regression import RegressionProblem, regress_in_memory
from tacit.regression.families import FamilyName
from tacit.tables import Flag, Number, Schema, Table
from tacit.types import Floats

OUTCOMES = {"linear": Number("y", -10, 10), "logistic": Flag("y"), "poisson": Number("y", 0, 30)}
CELLS: list[tuple[FamilyName, int, int, float]] = [
    ("linear", 5000, 6, 1.0), ("logistic", 5000, 6, 1.0), ("poisson", 5000, 6, 1.0), ("logistic", 2000, 6, 1.0),
    ("linear", 2000, 6, 1.0), ("logistic", 5000, 10, 0.5),
]  # fmt: skip
INTERCEPT = 0.2


def made_up(family: FamilyName, people: int, columns: int, chance: np.random.Generator) -> tuple[Table, Floats]:
    """A table, and the true coefficients."""
    who = np.repeat(np.arange(people), chance.integers(1, 9, people))
    rows, half = len(who), columns // 2
    x = chance.uniform(-1, 1, (rows, columns))
    x[:, :half] = chance.uniform(-1, 1, (people, half))[who]
    slopes = chance.normal(0, 0.4, columns)
    eta, common, own = INTERCEPT + x @ slopes, chance.standard_normal(people)[who], chance.standard_normal(rows)
    place = norm.cdf(np.sqrt(0.4) * common + np.sqrt(0.6) * own)
    match family:
        case "linear":
            y = eta + 0.8 * common + 0.8 * own
        case "poisson":
            y = poisson.ppf(place, np.exp(eta)).astype(float)
        case _:
            y = np.where(place < 1 / (1 + np.exp(-eta)), "yes", "no").astype(object)
    cells = {"who": who.astype(str).astype(object), "y": y} | {f"x{i}": x[:, i] for i in range(columns)}
    return Table(cells), np.array([INTERCEPT, *slopes])


def held(family: FamilyName, people: int, columns: int, epsilon: float, seed: int) -> list[str]:
    """For each level and coefficient whether its interval holds the truth: 1 or 0, - where none is stated."""
    declared = (Flag("who"), *(Number(f"x{i}", -1, 1) for i in range(columns)), OUTCOMES[family])
    problem = RegressionProblem(Schema(declared, users=people, unit="who"), "y", epsilon, 1e-5, family)
    chance = np.random.default_rng(seed)
    table, truth = made_up(family, people, columns, chance)
    said = regress_in_memory(problem, problem.rows(table), chance.standard_normal)
    return [marks(said.coefficients(level), truth) for level in LEVELS]


def main(arguments: Sequence[str] | None = None) -> None:
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    reader.add_argument("--sets", type=int, default=300)
    reader.add_argument("--only", choices=OUTCOMES)
    given = reader.parse_args(arguments)
    lines = [
        "| family | people | d | epsilon | tables | 50 / 90 / 95 % intervals held (%) | of columns of people "
        "| of columns of rows | of intercepts | stated |",
        "|" + 10 * "---|",
    ]
    for family, people, columns, epsilon in CELLS:
        if given.only in (None, family):
            found = [held(family, people, columns, epsilon, seed) for seed in range(given.sets)]
            half = columns // 2
            parts = (slice(None), slice(1, half + 1), slice(half + 1, None), slice(1))
            cells = [[shares([one[level][part] for one in found]) for level in range(3)] for part in parts]
            said = [percent([share for share, _ in cell]) for cell in cells]
            words = (family, f"{people:,}", columns, f"{epsilon:g}", given.sets, *said, f"{cells[0][0][1]:.1%}")
            lines.append(f"| {' | '.join(map(str, words))} |")
            print(lines[-1], flush=True)
    if given.only is None:
        write_section(DOCUMENT, "people", f"delta 1e-5. {versions('numpy')}.\n\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
