"""What goes with an income above 50,000 dollars? Odds ratios from Adult at epsilon 1, beside those without privacy.

Run with ``TACIT_DATA`` naming the data folder: ``python examples/income_effects.py [--epsilon 1] [--plain]``.
"""

import argparse
import csv
import os
from pathlib import Path

import numpy as np

import tacit
from tacit.regression.results.tables import table_text
from tacit.tables import Category, Number, Schema, Table

NAMES = ("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship",
         "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income")  # fmt: skip
SCHEMA = Schema(
    (
        Number("age", 15, 90),
        Number("education-num", 1, 16),
        Number("hours-per-week", 0, 100),
        Category("sex", ("Female", "Male")),
        Category("workclass", ("Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov", "State-gov")),
        Category("income", ("<=50K", ">50K")),
    ),
    dataset="adult",
    records=32_561,
    source="adult.names, and round numbers chosen without the data",
)


def read_adult() -> Table:
    path = Path(os.environ["TACIT_DATA"]) / "adult" / "adult.data"
    rows = [row for row in csv.reader(path.read_text().splitlines(), skipinitialspace=True) if len(row) == len(NAMES)]
    return Table(
        {name: np.array(cells, dtype=object) for name, cells in zip(NAMES, zip(*rows, strict=True), strict=True)}
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--epsilon", type=float, default=1.0)
    options.add_argument("--plain", action="store_true", help="also at epsilon 1000, where noise does not matter")
    given = options.parse_args()
    table = read_adult()
    for epsilon in (given.epsilon, *((1000.0,) if given.plain else ())):
        found = tacit.PrivateRegression(SCHEMA, "income", epsilon=epsilon).fit(table)
        rows = [*found.coefficients(), *found.contrast("workclass=Self-emp-inc - workclass=Self-emp-not-inc")]
        print(f"epsilon {epsilon:g}\n{table_text(rows, found.problem.is_ratio, 'markdown')}\n")


if __name__ == "__main__":
    main()
