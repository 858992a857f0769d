"""How often the intervals of a private regression hold the truth, on made-up tables; a section of docs/regression.md.

    OMP_NUM_THREADS=1 python -m benchmarks.coverage [--sets 500] [--only logistic] [--keep build/coverage.jsonl]

Every table's result is kept in that file as it comes, and a run that was stopped goes on. The first tables of a setting
are made again each time: where the present code finds other numbers in them, all of that setting are made again. All
19,500 take about 45 minutes of one processor.

Expected, written before the runs: 50, 90 and 95 % intervals hold within 2 points of that for n 3,000 to 50,000, d 5 to
50, epsilon .5 to 3; within 3 points, or no interval is stated, at n 1,000 or epsilon .2; the median width is at most
1.15 of that without privacy at n 10,000, d 10, epsilon 1. (n 3,000, d 50, epsilon .5 belongs to the first; it was moved
to the edge when it was seen that no interval can be right there without a declaration; declared.py measures it with
one.) Records go through the library's own path (declared columns, encoding, releases, posterior); only the ledger is
left out, because nobody is in these tables.
"""

import argparse
import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.document import versions, write_section
from tacit.regression import Coefficient, RegressionProblem, regress_in_memory
from tacit.regression.families import Linear, Poisson, fold
from tacit.regression.newton.sums import Rows, curvature_of
from tacit.tables import Category, Flag, Number, Schema, Table
from tacit.types import Floats

LEVELS = (0.5, 0.9, 0.95)
GRID = [(3000, 5, 0.5), (3000, 10, 1.0), (3000, 20, 3.0), (10_000, 10, 1.0), (10_000, 20, 0.5), (10_000, 50, 1.0),
        (50_000, 10, 0.5), (50_000, 20, 1.0), (50_000, 50, 3.0)]  # fmt: skip
EDGE = [(1000, 5, 1.0), (1000, 10, 3.0), (10_000, 10, 0.2), (3000, 50, 0.5)]
FAMILIES = ("logistic", "linear", "poisson")
CHECKED = 3  # tables of a setting that are made again before kept ones are believed
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
    family: str, rows: int, parameters: int, epsilon: float, chance: np.random.Generator, spread: float | None = None
) -> tuple[RegressionProblem, Table, Floats]:
    """A problem, a table and its true coefficients as they are reported; ``spread`` is declared of the columns."""
    declared, effect = columns(parameters), 0.5 * chance.standard_normal(parameters) * min(1, (10 / parameters) ** 0.5)
    outcome = {"logistic": Flag("y"), "poisson": Number("y", 0, 20)}.get(family, Number("y", -12, 12))
    schema = Schema((*declared, outcome), records=rows)
    problem = RegressionProblem(schema, "y", epsilon, 1e-5, family, assume_spread=spread)
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


def one_set(
    family: str, rows: int, parameters: int, epsilon: float, seed: int, *, spread: float | None = None
) -> dict[str, object]:
    """For each level and coefficient whether its interval holds the truth: 1 or 0, - where none is stated."""
    chance = np.random.default_rng([rows, parameters, int(100 * epsilon), FAMILIES.index(family), seed])
    problem, table, truth = simulated(family, rows, parameters, epsilon, chance, spread)
    data = problem.rows(table)
    found = regress_in_memory(problem, data, chance.standard_normal)
    held = [marks(found.coefficients(level), truth) for level in LEVELS]
    stated = [
        row
        for row in zip(found.coefficients(0.95), plain_stddevs(problem, data, truth), strict=True)
        if row[0].is_identified
    ]
    widths = [(row.high - row.low) / (2 * 1.959964 * plain) for row, plain in stated]
    said = {"held": held, "width": float(np.median(widths)) if widths else None, "doubt": found.doubt}
    return said if spread is None else said | {"dropped": found.dropped}


def marks(coefficients: Sequence[Coefficient], truth: Floats) -> str:
    return "".join(
        "-" if row.low is None else str(int(row.low <= true <= row.high))
        for row, true in zip(coefficients, truth, strict=True)
    )


def shares(held: Sequence[str]) -> tuple[float, float]:
    """Of all marks, the share of intervals that hold, and of intervals that are stated."""
    joined = "".join(held)
    stated = len(joined) - joined.count("-")
    return joined.count("1") / stated if stated else np.nan, stated / len(joined)


@dataclass
class Kept:
    """Tables that were measured, one line each in a file; of two lines of one table the later one counts."""

    path: Path
    lines: dict[str, dict[str, object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.path.parent.mkdir(exist_ok=True)
        for text in self.path.read_text().splitlines() if self.path.exists() else ():
            with contextlib.suppress(json.JSONDecodeError):  # a stop can leave half a line
                line = json.loads(text)
                self.lines[line["key"]] = line

    def row(self, name: str, make: Callable[[int], dict[str, object]], sets: int) -> list[dict[str, object]]:
        """The tables of a setting, kept or made; all are made again if the code finds other numbers in the first."""
        keys = [f"{name} {seed}" for seed in range(sets)]
        known = [key in self.lines for key in keys]
        if any(self._differs(self.lines[key], make(seed)) for seed, key in enumerate(keys[:CHECKED]) if known[seed]):
            known = [False] * sets
        for seed, key in enumerate(keys):
            if not known[seed]:
                self.lines[key] = {"key": key, **make(seed)}
                with self.path.open("a") as file:
                    file.write("\n" * (seed == 0) + json.dumps(self.lines[key]) + "\n")
        return [self.lines[key] for key in keys]

    def so_far(self, name: str, sets: int) -> list[dict[str, object]]:
        keys = (f"{name} {seed}" for seed in range(sets))
        return [self.lines[key] for key in keys if key in self.lines]

    def _differs(self, kept: dict[str, object], made: dict[str, object]) -> bool:
        return kept["held"] != made["held"] or not np.isclose(kept["doubt"], made["doubt"], rtol=1e-6)


def measure(sets: int, only: str | None, kept: Kept, *, show: bool = False) -> Iterator[dict[str, object]]:
    """One line a setting; with ``show`` from what is kept alone."""
    for n, d, epsilon in sorted((*GRID, *EDGE), key=lambda one: one[0] * one[1]):  # the quick ones first
        for family in FAMILIES if only is None else (only,):
            name = f"{family} {n} {d} {epsilon}"
            make = partial(one_set, family, n, d, epsilon)
            found = kept.so_far(name, sets) if show else kept.row(name, make, sets)
            if found:
                yield {"family": family, "n": n, "d": d, "epsilon": epsilon} | summed(found)


def summed(found: Sequence[dict[str, object]]) -> dict[str, object]:
    """All tables of a setting as one line."""
    held, stated = np.array([shares([one["held"][place] for one in found]) for place in range(3)]).T
    widths = [one["width"] for one in found if one["width"] is not None]
    width = float(np.median(widths)) if widths else None
    return {"sets": len(found), "held": held, "stated": stated[0], "width": width}


def row_of(line: dict[str, object]) -> str:
    width = f"{line['width']:.2f}" if line["width"] else ""
    what = f"| {line['family']} | {line['n']:,} | {line['d']} | {line['epsilon']:g} | {line['sets']} "
    return f"{what}| {percent(line['held'])} | {width} | {line['stated']:.1%} |"


def percent(held: Sequence[float]) -> str:
    return "none" if np.isnan(held[0]) else " / ".join(f"{100 * share:.1f}" for share in held)


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--sets", type=int, default=500)
    options.add_argument("--only", choices=FAMILIES)
    options.add_argument("--keep", type=Path, default=Path("build/coverage.jsonl"))
    options.add_argument("--show", action="store_true", help="write the page from what is kept, and measure nothing")
    given = options.parse_args(arguments)
    lines = []
    for line in measure(given.sets, given.only, Kept(given.keep), show=given.show):
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
    if given.only is None:
        write_section(DOCUMENT, "coverage", text)


if __name__ == "__main__":
    main()
