"""The demo's features are made record by record, from declared bounds (failure-modes F15)."""

import numpy as np

from tacit.commands.demo.breast_cancer import TARGET, UPPER_BOUNDS, patients_schema, split
from tacit.tables import Table, encode, encode_inputs

SCHEMA = patients_schema()


def test_an_outlier_changes_no_other_record():
    patients, _ = split()
    hostile = {
        name: np.append(cells, ["1e999"] if name == TARGET else [1e300]) for name, cells in patients.columns.items()
    }
    plain = encode_inputs(patients, SCHEMA, TARGET)
    assert (encode_inputs(Table(hostile), SCHEMA, TARGET)[:-1] == plain).all()
    assert plain.shape == (426, len(UPPER_BOUNDS) + 1)


def test_the_declared_bounds_hold_for_all_patients_and_are_round():
    for table in split():
        encoded = encode(table, SCHEMA, TARGET)
        assert len(encoded.rows) == len(table)
        inside = np.abs(encoded.inputs[:, 1:]) <= encoded.inputs[:, :1]  # numbers lie in [-1, 1], the bias is 1
        assert inside.all()
    for bound in UPPER_BOUNDS:
        assert float(f"{bound:.2g}") == bound
