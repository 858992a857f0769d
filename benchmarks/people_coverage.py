"""How often intervals hold the truth where people have several rows: the table of "People with several rows".

    python benchmarks/people_coverage.py --sets 400

People have 1 to 8 rows. Errors, or the normal variables behind counts and yes or no, share a factor; half of the
covariates are the same in all rows of a person. A row by itself has the family's distribution, so the truth is known.
"""

import argparse

import numpy as np
from scipy.stats import norm, poisson

from tacit.regression import RegressionProblem, regress_in_memory
from tacit.regression.families import FamilyName
from tacit.tables import Flag, Number, Schema, Table
from tacit.types import Floats

LEVELS = (0.5, 0.9, 0.95)
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


def held(family: FamilyName, people: int, columns: int, epsilon: float, sets: int) -> tuple[Floats, float]:
    """For each level, table and coefficient, whether its interval holds the truth, NaN if none; the share stated."""
    declared = (Flag("who"), *(Number(f"x{i}", -1, 1) for i in range(columns)), OUTCOMES[family])
    problem = RegressionProblem(Schema(declared, users=people, unit="who"), "y", epsilon, 1e-5, family)
    found = np.full((len(LEVELS), sets, columns + 1), np.nan)
    for number in range(sets):
        chance = np.random.default_rng(number)
        table, truth = made_up(family, people, columns, chance)
        said = regress_in_memory(problem, problem.rows(table), chance.standard_normal)
        for place, level in enumerate(LEVELS):
            for which, row in enumerate(said.coefficients(level)):
                if row.low is not None and row.high is not None:
                    found[place, number, which] = row.low <= truth[which] <= row.high
    return found, float(np.isfinite(found[0]).mean())


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--sets", type=int, default=400)
    sets = reader.parse_args().sets
    print(
        "| family | people | d | epsilon | tables | all | columns of people | columns of rows | intercepts | stated |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for family, people, columns, epsilon in CELLS:
        found, stated = held(family, people, columns, epsilon, sets)
        half = columns // 2
        parts = (found, found[..., 1 : half + 1], found[..., half + 1 :], found[..., :1])
        shares = [" / ".join(f"{100 * float(np.nanmean(level)):.1f}" for level in part) for part in parts]
        words = (family, f"{people:,}", columns, f"{epsilon:g}", sets, *shares, f"{stated:.1%}")
        print(f"| {' | '.join(map(str, words))} |", flush=True)


if __name__ == "__main__":
    main()
