"""What a charged search is worth: test accuracy of ``tacit tune`` and of the defaults, at the same total epsilon.

    TACIT_DATA=... python benchmarks/tune.py --seeds 20 [--epsilon 1] [--by brier]

Adult: trained on adult.data, scored on adult.test. Breast cancer (scikit-learn): random splits of 426 and 143.
"""

import argparse
import os
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from tacit.randomness import Randomness
from tacit.runs import Problem, RunFacts, RunFolder, TrainedTable, train_table
from tacit.tables import (
    Category,
    Encoded,
    Number,
    Schema,
    Search,
    Table,
    default_delta,
    encode,
    read_schema,
    read_table,
)

SCHEMA = Path(__file__).parent.parent / "examples" / "adult.schema.toml"
NAMES = (
    "age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,capital-gain,"
    "capital-loss,hours-per-week,native-country,income"
)


def adult(seed: int) -> tuple[Schema, Encoded, Encoded]:
    schema = read_schema(SCHEMA)
    return schema, *(encode(adult_table(name), schema, "income") for name in ("adult.data", "adult.test"))


def adult_table(name: str) -> Table:
    lines = (Path(os.environ["TACIT_DATA"]) / "adult" / name).read_text().splitlines()
    rows = [line.rstrip(".") for line in lines if line.count(",") == 14]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "adult.csv"
        path.write_text("\n".join([NAMES, *rows]) + "\n")
        return read_table(path)


def breast_cancer(seed: int) -> tuple[Schema, Encoded, Encoded]:
    """Bounds are read off the data: this compares two ways to train, and publishes nothing."""
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    inputs, names = found.data, [str(name) for name in found.feature_names]
    columns = [Number(name, float(low), float(high)) for name, low, high in
               zip(names, inputs.min(0), inputs.max(0), strict=True)]  # fmt: skip
    schema = Schema((*columns, Category("target", ("0", "1"))), records=426, derived_from_private_data=True)
    order = np.random.default_rng(seed).permutation(len(inputs))
    parts = (order[:426], order[426:])
    tables = [Table({**dict(zip(names, inputs[rows].T, strict=True)), "target": found.target[rows].astype(str)})
              for rows in parts]  # fmt: skip
    return schema, *(encode(table, schema, "target") for table in tables)


def accuracy(trained: TrainedTable, test: Encoded) -> float:
    said = trained.predictor.classes(test.inputs).mean.numpy().argmax(1)
    return float((said == test.targets).mean())


def run(problem: Problem, data: Encoded, seed: int) -> TrainedTable:
    with tempfile.TemporaryDirectory() as folder:
        place = RunFolder(Path(folder) / "run")
        return train_table(RunFacts(problem), data, place, randomness=Randomness.seeded(seed))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--trials", type=float, default=5.0)
    parser.add_argument("--by", default="brier")
    parser.add_argument("--data", default="adult", choices=["adult", "breast_cancer"])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    tuned, plain = [], []
    for seed in range(asked.seeds):
        schema, data, test = globals()[asked.data](seed)
        target = schema.columns[-1].name
        problem = Problem(schema, target, asked.epsilon, default_delta(schema.units))
        search = replace(problem, search=Search(trials=asked.trials, by=asked.by))
        best = run(search, data, seed)
        tuned.append(accuracy(best, test))
        plain.append(accuracy(run(problem, data, seed), test))
        print(f"seed {seed}: {best.facts.problem.candidate}: {tuned[-1]:.2%}, defaults {plain[-1]:.2%}", flush=True)
    for name, found in (("tacit tune", tuned), ("defaults", plain)):
        spread = statistics.stdev(found) if len(found) > 1 else 0.0
        print(
            f"{name}: mean {statistics.mean(found):.2%}, least {min(found):.2%}, sd {spread:.2%} of {len(found)} runs"
        )


if __name__ == "__main__":
    main()
