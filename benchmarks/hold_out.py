"""How often the intervals of a private score hold the truth, over whole runs of training and scoring.

    python benchmarks/hold_out.py --runs 500 [--epsilon 3] [--records 2000]

The truth of each run's own model is its score on 100,000 fresh records of the same distribution.
"""

import argparse
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import torch

from tacit.randomness import Randomness
from tacit.runs import Problem, RunFacts, RunFolder, train_table
from tacit.runs.quality.hold_out import release_scores
from tacit.tables import Category, Encoded, Number, Schema, Table, encode


def people(rows: int, chance: np.random.Generator) -> Table:
    x, y = chance.normal(size=(2, rows))
    ill = chance.random(rows) < 1 / (1 + np.exp(3 - 2 * x - y))
    return Table({"x": x, "y": y, "ill": np.where(ill, "yes", "no").astype(object)})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--records", type=int, default=2000)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    columns = (Number("x", -3, 3), Number("y", -3, 3), Category("ill", ("no", "yes")))
    schema = Schema(columns, records=asked.records, target="ill")
    problem = Problem(schema, "ill", asked.epsilon, 1e-5, hold_out=0.2)
    chance = np.random.default_rng(7)
    fresh: Encoded = encode(people(100_000, chance), schema, "ill")
    held: Counter[str] = Counter()
    for run in range(asked.runs):
        data = encode(people(asked.records, chance), schema, "ill")
        with tempfile.TemporaryDirectory() as folder:
            found = train_table(
                RunFacts(problem), data, RunFolder(Path(folder) / "run"), randomness=Randomness.seeded(run)
            )
        assert found.facts.score is not None
        truth = release_scores(found.predictor, fresh, 1e-9, Randomness.seeded(run))
        for score, true in zip(found.facts.score["scores"], truth, strict=True):
            held[str(score["query"])] += score["low"] <= true["value"] <= score["high"]  # type: ignore[operator]
    for name, count in held.items():
        print(f"{name}: {count / asked.runs:.1%} of {asked.runs}")


if __name__ == "__main__":
    main()
