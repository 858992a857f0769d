"""The demo's data: breast cancer (Wisconsin), inside scikit-learn, as tables, with declared bounds.

Bounds taken from private data would leak it. These are the ranges in the data set's own public
documentation, rounded outward.
"""

from pathlib import Path

import numpy as np

from tacit.commands.predict import write_columns
from tacit.tables import Category, Number, Schema, Table

TARGET, CLASSES = "diagnosis", ("malignant", "benign")
# mean, standard error and worst of: radius, texture, perimeter, area, smoothness, compactness, concavity,
# concave points, symmetry, fractal dimension. All start at 0.
UPPER_BOUNDS = (
    *(30.0, 40.0, 200.0, 2600.0, 0.2, 0.4, 0.5, 0.25, 0.35, 0.1),
    *(3.0, 5.0, 25.0, 600.0, 0.04, 0.15, 0.4, 0.06, 0.08, 0.03),
    *(40.0, 50.0, 260.0, 4500.0, 0.25, 1.1, 1.3, 0.3, 0.7, 0.22),
)


def patients_schema() -> Schema:
    """What is public about the table: its columns, their ranges, the classes, and about how many patients there are."""
    from sklearn.datasets import load_breast_cancer

    measured = zip(load_breast_cancer().feature_names, UPPER_BOUNDS, strict=True)
    columns = (Number(str(name), 0.0, high, "sqrt") for name, high in measured)  # measurements are skewed
    return Schema(
        (*columns, Category(TARGET, CLASSES)),
        dataset="breast cancer (scikit-learn), training part",
        records=426,
        target=TARGET,
        source="ranges of the data set's documentation, rounded outward",
    )


def split(seed: int = 0) -> tuple[Table, Table]:
    """426 private patients to train on, and 143 to test with, which the demo declares public."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import train_test_split

    data = load_breast_cancer()
    names = np.array(CLASSES, dtype=object)[data.target]
    values, others, labels, truth = train_test_split(
        data.data, names, test_size=0.25, random_state=seed, stratify=names
    )
    return _table(data.feature_names, values, labels), _table(data.feature_names, others, truth)


def _table(names: "np.ndarray", values: "np.ndarray", labels: "np.ndarray") -> Table:
    return Table({str(name): values[:, number] for number, name in enumerate(names)} | {TARGET: labels})


def write_table(table: Table, path: Path) -> None:
    write_columns(table.columns, path)
