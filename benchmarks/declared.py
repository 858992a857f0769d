"""Intervals under a declaration about the columns, true and false: a section of docs/regression.md.

    OMP_NUM_THREADS=1 python -m benchmarks.declared [--sets 500] [--only logistic] [--keep build/declared.jsonl]

Tables as in benchmarks/coverage.py, whose columns have a spread of .73 and more; declared is .35, less than half of it.
Tables as in benchmarks/hidden_sums.py, in which a sum of columns keeps less, so that the declaration is false. And
tables of numbers with a factor in common, which no declaration speaks of; they fill a third of their bounds.
Results are kept as in benchmarks/coverage.py; all of it takes half an hour of one processor.

Expected, written before the runs: at n 3,000, d 50, epsilon .5 50, 90 and 95 % intervals hold within 2 points of that
and 90 % of them are stated; at ordinary settings they hold as they do without a declaration. A false declaration is
dropped where the sum would be refused without it, but at n 3,000, d 50, epsilon .5, where nothing can tell. (How the
budget is laid out, and how scores and curvature are judged, was chosen on other tables, of seeds from 1000 on.)
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.coverage import DOCUMENT, FAMILIES, Kept, marks, one_set, percent, row_of, shares, summed
from benchmarks.document import versions, write_section
from benchmarks.hidden_sums import LEVELS, SETTINGS, fitted
from tacit.regression import RegressionProblem, regress_in_memory
from tacit.regression.newton.sums import Rows
from tacit.tables import Flag, Number, Schema

SPREAD = 0.35
CORNER = (3000, 50, 0.5)
ORDINARY = [(3000, 10, 1.0), (10_000, 10, 1.0)]
FALSE, TRUE = (0.0, 0.09), 0.36  # shares of its variance that a sum keeps: below what is declared, and above
FEWER = 5  # times fewer tables at ordinary settings
FEW = 20
COMMON = (0.1, 0.3, 0.6)


def hidden(family: str, n: int, d: int, epsilon: float, left: float, along: float, seed: int) -> dict[str, object]:
    """Of one table whose columns have a sum that keeps this share of its variance: what is held, and why not."""
    found, truth, numbers = fitted(family, n, d, epsilon, left, 1000 + seed, spread=SPREAD, along=along)
    held = [marks(found.coefficients(level), truth)[numbers] for level in LEVELS]
    return {"held": held, "dropped": found.dropped, "doubt": found.doubt}


def cell(found: Sequence[dict[str, object]]) -> str:
    """How often the declaration was dropped, what was stated all the same, and how much of that held."""
    if not found:
        return "not measured"
    dropped = sum(bool(one["dropped"]) for one in found) / len(found)
    parts = [shares([one["held"][level] for one in found]) for level in range(len(LEVELS))]
    return f"{dropped:.0%}; {parts[0][1]:.1%}: {percent([share for share, _ in parts])}"


def common(family: str, share: float, seed: int) -> dict[str, object]:
    """Of one table whose columns have a correlation of ``share`` with each other, and so a spread of 1 - share."""
    (n, d, epsilon), chance = CORNER, np.random.default_rng([int(100 * share), seed, 9])
    outcome = Flag("y") if family == "logistic" else Number("y", -12, 12)
    schema = Schema((*(Number(f"v{i}", -3, 3) for i in range(d)), outcome), records=n)
    problem = RegressionProblem(schema, "y", epsilon, 1e-5, family, assume_spread=SPREAD)
    numbers = share**0.5 * chance.standard_normal((n, 1)) + (1 - share) ** 0.5 * chance.standard_normal((n, d))
    x = np.concatenate([np.ones((n, 1)), np.clip(numbers / 3, -1, 1)], axis=1)
    effects = chance.standard_normal(d + 1) * (10 / d) ** 0.5
    eta = x @ effects
    if family == "logistic":
        scale, y = 1.0, (chance.random(n) < 1 / (1 + np.exp(-eta))).astype(float)
    else:
        scale, y = 12.0, np.clip((eta + chance.standard_normal(n)) / 12, -1, 1)
    found = regress_in_memory(problem, Rows(x, y, np.ones(n)), chance.standard_normal)
    to_names, shift = problem.reported
    truth = to_names @ effects / scale + shift
    held = [marks(found.coefficients(level), truth) for level in LEVELS]
    return {"held": held, "dropped": found.dropped, "doubt": found.doubt}


def common_rows(tables: int, kept: Kept, *, show: bool = False) -> list[str]:
    lines = []
    for family in ("linear", "logistic"):
        makes = {f"common {share} {family}": partial(common, family, share) for share in COMMON}
        cells = " | ".join(cell(made(kept, name, make, tables, show=show)) for name, make in makes.items())
        lines.append(f"| {family} | {CORNER[0]:,} | {CORNER[1]} | {CORNER[2]:g} | {tables} | {cells} |")
        print(lines[-1], flush=True)
    return lines


def made(
    kept: Kept, name: str, make: Callable[[int], dict[str, object]], tables: int, *, show: bool
) -> list[dict[str, object]]:
    """The tables of a setting; with ``show`` those that are kept."""
    return kept.so_far(name, tables) if show else kept.row(name, make, tables)


def true_rows(sets: int, kept: Kept, families: Sequence[str] = FAMILIES, *, show: bool = False) -> list[str]:
    """Coverage where the declaration is true."""
    lines = []
    for n, d, epsilon in (CORNER, *ORDINARY):
        tables = sets if (n, d, epsilon) == CORNER else max(1, sets // FEWER)
        for family in families:
            make = partial(one_set, family, n, d, epsilon, spread=SPREAD)
            found = made(kept, f"{family} {n} {d} {epsilon}", make, tables, show=show)
            if not found:
                continue
            line = {"family": family, "n": n, "d": d, "epsilon": epsilon} | summed(found)
            lines.append(f"{row_of(line)} {sum(bool(one['dropped']) for one in found)} |")
            print(lines[-1], flush=True)
    return lines


def hidden_rows(tables: int, kept: Kept, *, show: bool = False) -> list[str]:
    """The same of sums that hardly vary: effects of 2 along them, and in the last column none."""
    lines = []
    for n, d, epsilon in (*SETTINGS, CORNER):
        for family in ("linear", "logistic"):
            cells = []
            for left, along in (*((left, 2.0) for left in FALSE), (TRUE, 2.0), (TRUE, 0.0)):
                make = partial(hidden, family, n, d, epsilon, left, along)
                name = f"sum {left} {along} {family} {n} {d} {epsilon}"
                cells.append(cell(made(kept, name, make, tables, show=show)))
            lines.append(f"| {family} | {n:,} | {d} | {epsilon:g} | {tables} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--sets", type=int, default=500)
    options.add_argument("--keep", type=Path, default=Path("build/declared.jsonl"))
    options.add_argument("--show", action="store_true", help="write the page from what is kept, and measure nothing")
    options.add_argument("--only", choices=FAMILIES, help="measure true declarations of one family, and write nothing")
    given = options.parse_args(arguments)
    kept = Kept(given.keep)
    if given.only is not None:
        true_rows(given.sets, kept, (given.only,))
        return
    head = "| family | n | d | epsilon | tables | 50 / 90 / 95 % intervals held (%) | width | stated | dropped |\n|"
    sums = "| family | n | d | epsilon | tables | 0 | 0.09 | 0.36 | 0.36, no effect along it |\n|"
    alike = f"| family | n | d | epsilon | tables | {' | '.join(f'{share:g}' for share in COMMON)} |\n|"
    text = (
        f"`assume_spread` {SPREAD}, which is true of these tables; dropped: how often the releases spoke against it. "
        f"{versions('numpy')}.\n\n{head}{9 * '---|'}\n" + "\n".join(true_rows(given.sets, kept, show=given.show))
        + "\n\nThe same declaration where a sum of columns keeps this share of its variance, so that it is false of "
        "the first two: how often it was dropped; the coefficients stated, and how many of their 50 / 90 / 95 % "
        f"intervals held (%).\n\n{sums}{9 * '---|'}\n"
        + "\n".join(hidden_rows(min(FEW, given.sets), kept, show=given.show))
        + f"\n\nThe same where all columns have this correlation:\n\n{alike}{8 * '---|'}\n"
        + "\n".join(common_rows(min(2 * FEW, given.sets), kept, show=given.show))
    )  # fmt: skip
    write_section(DOCUMENT, "declared", text)


if __name__ == "__main__":
    main()
