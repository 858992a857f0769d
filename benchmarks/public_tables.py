"""Ten public tables of 150 to 4,200 records with declared schemas: inside scikit-learn, or in the folder TACIT_DATA.

Bounds are round numbers around the ranges that the data sets' own documentation gives; levels are those it lists.
"""

import csv
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets

from tacit.commands.demo.breast_cancer import CLASSES, patients_schema
from tacit.tables import Category, Flag, Number, Schema, Table, read_schema

TARGET = "target"
Found = tuple[Schema, Table]


def _sklearn(name: str, bounds: Sequence[tuple[float, float]], names: Sequence[str] | None = None) -> Found:
    data = getattr(datasets, f"load_{name}")()
    names = [str(one) for one in (names or data.feature_names)]
    classes = tuple(str(one) for one in data.target_names)
    columns = tuple(Number(one, low, high) for one, (low, high) in zip(names, bounds, strict=True))
    table = Table(dict(zip(names, data.data.T, strict=True)) | {TARGET: np.array(classes, dtype=object)[data.target]})
    return Schema((*columns, Category(TARGET, classes)), name), table


def iris() -> Found:
    return _sklearn("iris", [(4, 8), (2, 4.5), (1, 7), (0, 2.5)])


def wine() -> Found:
    return _sklearn("wine", [
        (11, 15), (0, 6), (1, 3.5), (10, 30), (70, 170), (0, 4), (0, 6), (0, 1), (0, 4), (0, 13), (0.4, 1.8), (1, 4),
        (250, 1700),
    ])  # fmt: skip


def digits() -> Found:
    return _sklearn("digits", [(0, 16)] * 64)


def breast_cancer() -> Found:
    data, schema = datasets.load_breast_cancer(), patients_schema()
    table = dict(zip(map(str, data.feature_names), data.data.T, strict=True))
    return schema, Table(table | {"diagnosis": np.array(CLASSES, dtype=object)[data.target]})


def diabetes() -> Found:
    """Whether the disease went on by more than 140, about the middle of its scale."""
    data = datasets.load_diabetes()
    columns = tuple(Number(name, -0.2, 0.2) for name in data.feature_names)
    table = dict(zip(data.feature_names, data.data.T, strict=True))
    return Schema((*columns, Flag(TARGET)), "diabetes"), Table(table | {TARGET: _flags(data.target > 140)})


def cleveland() -> Found:
    """Whether there is heart disease."""
    columns = (
        Number("age", 20, 90), Flag("sex"), Category("cp", ("1", "2", "3", "4")), Number("trestbps", 80, 200),
        Number("chol", 100, 600), Flag("fbs"), Category("restecg", ("0", "1", "2")), Number("thalach", 60, 220),
        Flag("exang"), Number("oldpeak", 0, 7), Category("slope", ("1", "2", "3")), Number("ca", 0, 3),
        Category("thal", ("3", "6", "7")), Flag(TARGET),
    )  # fmt: skip
    rows = [line.strip().split(",") for line in _file("small", "processed.cleveland.data")]
    cells = [[cell.removesuffix(".0") for cell in row] for row in rows]
    table = {column.name: _text([row[place] for row in cells]) for place, column in enumerate(columns)}
    return Schema(columns, "cleveland"), Table(table | {TARGET: _flags(table[TARGET] != "0")})


def german() -> Found:
    """Whether a credit was a bad one."""
    levels = {"A1": 4, "A3": 5, "A4": 11, "A6": 5, "A7": 5, "A9": 5, "A10": 3, "A12": 4, "A14": 3, "A15": 3, "A17": 4,
              "A19": 2, "A20": 2}  # fmt: skip
    numbers = {1: (0, 72), 4: (0, 20_000), 7: (1, 4), 10: (1, 4), 12: (18, 80), 15: (1, 4), 17: (1, 2)}
    rows = [line.split() for line in _file("small", "german.data")]
    columns: list[Number | Category | Flag] = []
    for place in range(20):
        name = f"a{place + 1}"
        if place in numbers:
            columns.append(Number(name, *numbers[place], transform="sqrt" if place == 4 else "linear"))
        else:
            first = 0 if place == 3 else 1
            count = levels[f"A{place + 1}"]
            columns.append(Category(name, tuple(f"A{place + 1}{number}" for number in range(first, first + count))))
    table = {column.name: _text([row[place] for row in rows]) for place, column in enumerate(columns)}
    table[TARGET] = _flags(_text([row[20] for row in rows]) == "2")
    return Schema((*columns, Flag(TARGET)), "german"), Table(table)


def abalone_age() -> Found:
    """Whether an abalone has more than nine rings."""
    schema, table = abalone_sex()
    columns = tuple(Flag(TARGET) if column.name == TARGET else column for column in schema.columns)
    rings = table.columns["rings"].astype(float)
    kept = tuple(column for column in columns if column.name != "rings")
    sex = Category("sex", ("M", "F", "I"))
    cells = table.columns | {"sex": table.columns[TARGET], TARGET: _flags(rings > 9)}
    return replace(schema, columns=(sex, *kept), dataset="abalone, age"), Table(cells)


def abalone_sex() -> Found:
    names = ("length", "diameter", "height", "whole", "shucked", "viscera", "shell", "rings")
    high = (1, 1, 1, 3, 1.5, 1, 1.2, 30)
    rows = [line.strip().split(",") for line in _file("abalone", "abalone.data")]
    columns = tuple(Number(name, 0, top) for name, top in zip(names, high, strict=True))
    table = {name: _text([row[place + 1] for row in rows]) for place, name in enumerate(names)}
    classes = Category(TARGET, ("M", "F", "I"))
    return Schema((*columns, classes), "abalone, sex"), Table(table | {TARGET: _text([row[0] for row in rows])})


def adult() -> Found:
    """The first 3,000 records of Adult's training file, by the schema of the examples."""
    schema = read_schema(Path(__file__).parent.parent / "examples" / "adult.schema.toml")
    rows = list(csv.reader(_file("adult", "adult.data")[:3000], skipinitialspace=True))
    table = {column.name: _text([row[place] for row in rows]) for place, column in enumerate(schema.columns)}
    return replace(schema, dataset="adult, 3,000 records"), Table(table)


TABLES: dict[str, Callable[[], Found]] = {
    "iris": iris, "wine": wine, "breast cancer": breast_cancer, "digits": digits, "diabetes": diabetes,
    "cleveland": cleveland, "german": german, "abalone, age": abalone_age, "abalone, sex": abalone_sex, "adult": adult,
}  # fmt: skip


def split(found: Found, seed: int) -> tuple[Schema, Table, Table]:
    """Three quarters to train on, with their number declared, and a quarter to test with."""
    schema, table = found
    target = schema.target or TARGET
    order = np.random.default_rng(seed).permutation(len(table))
    cut = 3 * len(order) // 4
    first, second = (
        {name: cells[part] for name, cells in table.columns.items()} for part in (order[:cut], order[cut:])
    )
    return schema.with_facts(records=cut, target=target), Table(first), Table(second)


def _file(*names: str) -> list[str]:
    path = Path(os.environ["TACIT_DATA"]).joinpath(*names)
    return [line for line in path.read_text().splitlines() if line.strip()]


def _text(cells: Sequence[str]) -> NDArray[np.object_]:
    return np.array(cells, dtype=object)


def _flags(truth: NDArray[np.bool_]) -> NDArray[np.object_]:
    return np.array(["no", "yes"], dtype=object)[truth.astype(int)]
