"""The accuracy of a private linear regression beside AdaSSP (Wang 2018); writes a section of docs/regression.md.

    python -m benchmarks.adassp [--sets 50]

AdaSSP releases X'X, X'y and the least eigenvalue with a third of epsilon each, and adds a ridge that follows from them.
It needs bounds of |x| and |y|; it gets the longest record and the outcome's range that are declared. Expected, written
before the run: ours is nearer to the truth everywhere, because its last releases are residuals and not outcomes.
"""

import argparse

import numpy as np

from benchmarks.coverage import DOCUMENT, simulated
from benchmarks.document import versions, write_section
from tacit.regression import regress_in_memory
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


def errors(rows: int, parameters: int, epsilon: float, seed: int) -> tuple[float, float, float]:
    """Root mean squared errors of the parameters on the model's scale: ours, AdaSSP's, least squares'."""
    chance = np.random.default_rng([rows, parameters, int(100 * epsilon), seed])
    problem, table, truth = simulated("linear", rows, parameters, epsilon, chance)
    to_names, shift = problem.reported
    theta, data = np.linalg.solve(to_names, truth - shift), problem.rows(table)
    found = regress_in_memory(problem, data, chance.standard_normal)
    ours = np.linalg.solve(to_names, np.median(found.draws.values, axis=0) - shift)
    theirs = adassp(data.x, data.y, problem.design.longest, epsilon, 1e-5, chance)
    plain = np.linalg.lstsq(data.x, data.y, rcond=None)[0]
    return tuple(float(12 * np.sqrt(np.mean((one - theta) ** 2))) for one in (ours, theirs, plain))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--sets", type=int, default=50)
    sets = options.parse_args().sets
    lines = ["| n | d | epsilon | ours | AdaSSP | least squares |", "|---|---|---|---|---|---|"]
    for n, d, epsilon in SETTINGS:
        found = np.median([errors(n, d, epsilon, seed) for seed in range(sets)], axis=0)
        lines.append(f"| {n:,} | {d} | {epsilon:g} | " + " | ".join(f"{one:.3f}" for one in found) + " |")
        print(lines[-1], flush=True)
    text = (
        f"Median over {sets} made-up tables of the root mean squared error of all parameters (effects of half a range, "
        f"in standard deviations of the residuals), delta 1e-5. {versions('numpy')}.\n\n" + "\n".join(lines)
    )
    write_section(DOCUMENT, "adassp", text)


if __name__ == "__main__":
    main()
