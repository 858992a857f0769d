"""Test accuracy on Adult where bounds, bins, levels, classes and the number of records are all asked of the table.

    TACIT_DATA=... python benchmarks/asked.py --seeds 20 [--epsilon 1]

Asking and training together cost epsilon. Declared are the kinds of columns, and that capital gains and losses weigh 2.
"""

import argparse
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from tune import SCHEMA, accuracy, adult_table

from tacit.queries.questions import DELTA, Questions
from tacit.queries.schema_run import begin_with_questions
from tacit.randomness import Randomness
from tacit.runs import Problem, RunFolder, train_table
from tacit.tables import Category, Column, Number, Schema, Table, encode, read_schema


def opened(column: Column) -> Column:
    match column:
        case Number(name=name, weight=weight):
            return Number(name, weight=weight, ask=("bounds", "bins"))
        case Category(name=name):
            return Category(name, ask=("levels",))
        case _:
            return column


def one(schema: Schema, train: Table, test: Table, epsilon: float, seed: int) -> float:
    chance = Randomness.seeded(seed)
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder(Path(place) / "run")
        facts = begin_with_questions(
            Questions(schema, epsilon, DELTA), train, folder, lambda found: Problem(found, "income", epsilon, DELTA),
            randomness=chance,
        )  # fmt: skip
        found = facts.problem.schema
        trained = train_table(facts, encode(train, found, "income"), folder, begun=True, randomness=chance)
        return accuracy(trained, encode(test, found, "income", public=True))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--epsilon", type=float, default=1.0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    declared = read_schema(SCHEMA)
    columns = tuple(opened(column) for column in declared.columns)
    schema = replace(declared, columns=columns, records=None, ask_units=True, source="kinds declared")
    train, test = adult_table("adult.data"), adult_table("adult.test")
    found = [one(schema, train, test, asked.epsilon, seed) for seed in range(asked.seeds)]
    spread = statistics.stdev(found) if len(found) > 1 else 0.0
    print(f"mean {statistics.mean(found):.2%}, least {min(found):.2%}, sd {spread:.2%} of {len(found)} runs")


if __name__ == "__main__":
    main()
