"""Private regressions beside AdaSSP (Wang 2018) and diffprivlib: how accurate? A section of docs/regression.md.

    python -m benchmarks.adassp [--sets 30] [--diffprivlib PYTHON]

PYTHON is that of an environment with diffprivlib (benchmarks/diffprivlib_fits.py says how to make one).

AdaSSP releases X'X, X'y and the least eigenvalue with a third of epsilon each, and adds a ridge that follows from them.
It needs bounds of |x| and |y|; it gets the longest record and the outcome's range that are declared. Expected, written
before the run: ours is nearer to the truth everywhere, because its last releases are residuals and not outcomes.
diffprivlib's guarantees are pure (delta 0), which is more than ours promise at the same epsilon, and cost it noise.
"""

import argparse
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.coverage import DOCUMENT, simulated
from benchmarks.document import versions, write_section
from tacit.regression import regress_in_memory
from tacit.regression.newton.sums import Rows
from tacit.types import Floats

SETTINGS = [(3000, 5, 1.0), (10_000, 10, 0.5), (10_000, 10, 1.0), (10_000, 10, 3.0), (50_000, 20, 1.0)]


def adassp(x: Floats, y: Floats, longest: float, epsilon: float, delta: float, chance: np.random.Generator) -> Floats:
    """Algorithm 2 of Wang (2018), |y| <= 1, failure probability .05."""
    d, noise = x.shape[1], np.sqrt(np.log(6 / delta)) / (epsilon / 3)
    gram = x.T @ x
    least = np.linalg.eigvalsh(gram)[0] + noise * longest**2 * chance.standard_normal()
    least = max(least - np.log(6 / delta) / (epsilon / 3) * longest**2, 0)
    ridge = max(0, np.sqrt(d * np.log(6 / delta) * np.log(2 * d**2 / 0.05)) * longest**2 / (epsilon / 3) - least)
    upper = np.triu(chance.standard_normal((d, d)))
    noisy = gram + noise * longest**2 * (upper + np.triu(upper, 1).T)
    return np.linalg.solve(noisy + ridge * np.eye(d), x.T @ y + noise * longest * chance.standard_normal(d))


@dataclass(frozen=True)
class Case:
    """A table on the model's scale, its true parameters, and what was fitted to it."""

    rows: Rows
    truth: Floats
    longest: float
    fits: dict[str, Floats]


def cases(kind: str, rows: int, parameters: int, epsilon: float, sets: int) -> list[Case]:
    found = []
    for seed in range(sets):
        chance = np.random.default_rng([rows, parameters, int(100 * epsilon), seed])
        problem, table, reported = simulated(kind, rows, parameters, epsilon, chance)
        to_names, shift = problem.reported
        data, longest = problem.rows(table), problem.design.longest
        draws = regress_in_memory(problem, data, chance.standard_normal).draws.values
        fits = {"ours": np.linalg.solve(to_names, np.median(draws, axis=0) - shift)}
        if kind == "linear":
            fits["AdaSSP"] = adassp(data.x, data.y, longest, epsilon, 1e-5, chance)
            fits["without privacy"] = np.linalg.lstsq(data.x, data.y, rcond=None)[0]
        else:
            fits["without privacy"] = likeliest(data.x, data.y)
        found.append(Case(data, np.linalg.solve(to_names, reported - shift), longest, fits))
    return found


def likeliest(x: Floats, y: Floats) -> Floats:
    """Logistic regression by Newton's method."""
    theta = np.zeros(x.shape[1])
    for _ in range(25):
        p = 1 / (1 + np.exp(-x @ theta))
        theta -= np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x, x.T @ (p - y))
    return theta


def fit_elsewhere(python: Path, kind: str, epsilon: float, made: list[Case]) -> None:
    """Adds what diffprivlib finds, in the environment of its own."""
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(made):
            x = case.rows.x[:, 1:]
            facts = {"epsilon": epsilon, "longest": case.longest, "kind": kind}
            np.savez(Path(folder) / f"{number:04}.npz", x=x, y=case.rows.y, **facts)
        script = Path(__file__).parent / "diffprivlib_fits.py"
        subprocess.run([python, script, folder], check=True)
        for number, case in enumerate(made):
            case.fits["diffprivlib"] = np.load(Path(folder) / f"{number:04}.npy")


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--sets", type=int, default=30)
    options.add_argument("--diffprivlib", type=Path)
    given = options.parse_args(arguments)
    names = ("ours", "AdaSSP", "diffprivlib", "without privacy")
    lines = ["| family | n | d | epsilon | " + " | ".join(names) + " |", "|" + "---|" * (4 + len(names))]
    for kind in ("linear", "logistic"):
        for n, d, epsilon in SETTINGS:
            made = cases(kind, n, d, epsilon, given.sets)
            if given.diffprivlib is not None:
                fit_elsewhere(given.diffprivlib, kind, epsilon, made)
            scale = 12 if kind == "linear" else 1
            cells = []
            for name in names:
                away = [scale * np.sqrt(np.mean((one.fits[name] - one.truth) ** 2)) for one in made if name in one.fits]
                cells.append(f"{np.median(away):.3f}" if away else "")
            lines.append(f"| {kind} | {n:,} | {d} | {epsilon:g} | " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    text = (
        f"Median over {given.sets} made-up tables of the root mean squared error of all parameters (effects of half a "
        "range; linear: in standard deviations of the residuals, logistic: log odds), delta 1e-5, diffprivlib 0.6.6 "
        f"with delta 0 and its own defaults. {versions('numpy')}.\n\n" + "\n".join(lines)
    )
    write_section(DOCUMENT, "adassp", text)


if __name__ == "__main__":
    main()
