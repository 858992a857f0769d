"""Is a model as sure as it is right? Confidence and accuracy of `tacit train`'s defaults on ten public tables.

    TACIT_DATA=... python benchmarks/small_tables.py --splits 5 > page.md

Every cell is the mean over random splits (three quarters to train on, a quarter to test with). The page is Markdown, as
docs/tables.md shows it; a star marks runs that warn of too little data.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from public_tables import TABLES, Found, split

from tacit.randomness import Randomness
from tacit.runs import Problem, RunFacts, RunFolder, train_table
from tacit.tables import Encoded, encode

EPSILONS = (0.2, 1.0, 3.0)
CLOSE = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=list(TABLES))
    given = parser.parse_args()
    print("| table, records to train on | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in EPSILONS) + " |")
    print("|---" * (1 + len(EPSILONS)) + "|")
    close = dict.fromkeys(EPSILONS, 0)
    for name in given.only:
        found = TABLES[name]()
        cells = []
        for epsilon in EPSILONS:
            right, sure, warned = measure(found, epsilon, given.splits)
            close[epsilon] += abs(sure - right) <= CLOSE
            cells.append(f"{sure:.2f} / {right:.2f} ({sure - right:+.2f}){' *' if warned else ''}")
        print(f"| {name}, {3 * len(found[1]) // 4:,} | " + " | ".join(cells) + " |", flush=True)
    counted = (f"{close[epsilon]} of {len(given.only)}" for epsilon in EPSILONS)
    print(f"| within {CLOSE} | " + " | ".join(counted) + " |")


def measure(found: Found, epsilon: float, splits: int) -> tuple[float, float, bool]:
    """Mean accuracy, mean confidence, and whether the run warned that the data is too little."""
    numbers, warned = [], False
    for seed in range(splits):
        schema, train, test = split(found, seed)
        assert schema.target is not None
        problem = Problem(schema, schema.target, epsilon, 1e-5)
        private, public = (encode(table, schema, schema.target) for table in (train, test))
        numbers.append(_scores(problem, private, public, seed))
        warned = warned or bool(problem.recipe.warnings)
    right, sure = np.mean(numbers, axis=0)
    return float(right), float(sure), warned


def _scores(problem: Problem, private: Encoded, public: Encoded, seed: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder(Path(place) / "run")
        trained = train_table(RunFacts(problem), private, folder, checkpoints=False, randomness=Randomness.seeded(seed))
    said = trained.predictor.classes(public.inputs)
    right = (said.classes.numpy() == public.targets).mean()
    return float(right), float(said.mean.max(1).values.mean())


if __name__ == "__main__":
    main()
