"""Encoding treats every record by itself: what one of them holds changes nobody else's features (failure-modes F15)."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import InputError
from tacit.tables import Category, Flag, Number, Schema, Table, encode, encode_inputs, feature_names, files, read_table
from tacit.tables.encoding import unreadable_cells

SCHEMA = Schema(
    (
        Number("age", 0, 120, bins=(18, 65)),
        Number("income", 0, 1e6, "sqrt"),
        Number("visits", 0, 99, "log", may_be_missing=True),
        Category("job", ("cook", "clerk"), may_be_missing=True),
        Flag("smoker"),
        Category("ill", ("no", "yes")),
    ),
    records=100,
)
ROWS = [
    ("30", "1000", "3", "cook", "yes", "no"),
    ("70", "0", "", "clerk", "no", "yes"),
    ("18", "1e6", "99", "", "", "no"),
]


def table(rows):
    names = [column.name for column in SCHEMA.columns]
    return Table(
        {name: np.array(cells, dtype=object) for name, cells in zip(names, zip(*rows, strict=True), strict=True)}
    )


cell = st.sampled_from(
    ["", "nan", "inf", "-inf", "1e400", "-7", "12", "cook", "chef", "yes", "no", "\u0000", "9" * 400]
)


@given(st.tuples(cell, cell, cell, cell, cell, cell))
def test_no_record_changes_the_features_of_another(hostile):
    before, after = encode(table(ROWS), SCHEMA, "ill"), encode(table([*ROWS, hostile]), SCHEMA, "ill")
    assert (after.inputs[: len(ROWS)] == before.inputs).all()
    assert (after.targets[: len(ROWS)] == before.targets).all()
    assert np.isfinite(after.inputs).all()


def test_records_have_norm_1_only_if_the_schema_asks_for_it():
    bounded = encode_inputs(table(ROWS), replace(SCHEMA, scaling="norm"), "ill").astype(float)
    assert np.linalg.norm(bounded, axis=1) == pytest.approx(1, abs=1e-6)
    assert np.linalg.norm(encode_inputs(table(ROWS), SCHEMA, "ill").astype(float), axis=1) != pytest.approx(1, abs=1e-2)


def test_features_are_linear_in_a_number():
    """Whatever the other columns of a record hold."""
    rows = [(age, "5", cell, "cook", "yes", "no") for age, cell in [("0", "1"), ("60", "9"), ("120", "")]]
    low, middle, high = encode_inputs(table(rows), SCHEMA, "ill")[:, 1]
    assert high - middle == pytest.approx(middle - low)
    assert high - low > 0.1


def test_every_feature_has_a_name_and_its_declared_place():
    names = feature_names(SCHEMA, "ill")
    inputs = encode_inputs(table(ROWS), SCHEMA, "ill")
    assert inputs.shape == (3, len(names))
    found = [dict(zip(names, row / row[0], strict=True)) for row in inputs.astype(float)]
    assert found[0]["age"] == pytest.approx(-0.5)
    assert [found[0][name] for name in ("age < 18", "age < 65", "age >= 65")] == [0, 1, 0]
    assert found[2]["age < 65"] == 1  # an edge belongs to the stretch above it
    assert found[0]["income"] == pytest.approx(2 * (1000 / 1e6) ** 0.5 - 1, abs=1e-6)
    assert found[1]["visits"] == 0
    assert found[1]["visits is missing"] == 1
    assert found[2]["visits"] == pytest.approx(1)
    assert (found[0]["job = cook"], found[2]["job is missing"]) == (1, 1)
    assert [found[i]["smoker"] for i in range(3)] == [1, -1, 0]


def test_a_weight_lets_a_column_count_more():
    heavy = replace(SCHEMA, columns=(replace(SCHEMA.columns[0], weight=2.0), *SCHEMA.columns[1:]))
    plain, weighed = (encode_inputs(table(ROWS), schema, "ill").astype(float) for schema in (SCHEMA, heavy))
    ratio = (weighed / weighed[:, :1]) / np.where(plain == 0, 1, plain / plain[:, :1])
    assert ratio[0, 1:4].tolist() == pytest.approx([2, 0, 2])
    assert ratio[0, 5] == pytest.approx(1)


def test_an_unknown_level_sets_nothing_and_is_not_missing():
    one = encode_inputs(table([("30", "0", "1", "chef", "yes", "no")]), SCHEMA, "ill")[0]
    found = dict(zip(feature_names(SCHEMA, "ill"), one, strict=True))
    assert [found[name] for name in ("job = cook", "job = clerk", "job is missing")] == [0, 0, 0]


def test_records_without_a_declared_target_are_left_out():
    rows = [*ROWS, ("30", "1", "1", "cook", "no", "perhaps"), ("30", "1", "1", "cook", "no", "")]
    assert encode(table(rows), SCHEMA, "ill").rows.tolist() == [0, 1, 2]


def test_a_number_to_predict_is_clamped_to_its_bounds():
    schema = Schema((*SCHEMA.columns[1:5], Number("age", 20, 60), SCHEMA.columns[5]), records=100)
    found = encode(table(ROWS), schema, "age")
    assert found.targets.tolist() == pytest.approx([-0.5, 1.0, -1.0])


def test_rows_without_an_owner_are_left_out_where_owners_are_protected():
    schema = replace(SCHEMA, unit="job", users=50)
    found = encode(table(ROWS), schema, "ill")
    assert found.users.tolist() == ["cook", "clerk"]
    assert "job = cook" not in feature_names(schema, "ill")


def test_classes_written_as_decimals_are_the_same_classes():
    schema = Schema((Number("x", 0, 1), Category("y", ("0", "1"))), records=10)
    cells = {"x": np.array([0.1, 0.2, 0.3]), "y": np.array(["1.0", "0", "1"], dtype=object)}
    assert encode(Table(cells), schema, "y").targets.tolist() == [1, 0, 1]


def test_a_column_of_text_declared_as_numbers_is_a_fault_of_the_schema():
    with pytest.raises(InputError, match="'age' is declared a number"):
        encode(table([("old", "1", "1", "cook", "no", "no")]), SCHEMA, "ill")


def test_columns_read_as_numbers_encode_as_their_text_does(tmp_path, monkeypatch):
    """Some rows at a time; a single odd cell leaves its column text, and says so when it is counted."""
    monkeypatch.setattr(files, "_ROWS", 3)
    lines = ["a,b,who,y", "1.50,2,007,yes", "?,3e0,7,no", ",-1,007,yes", " 4 ,inf,7,no", 'nan,"0,5",8,yes', "2,9,8,no"]
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    columns = (Number("a", 0, 5, may_be_missing=True), Number("b", 0, 5), Number("who", 0, 9), Flag("y"))
    schema = Schema(columns, users=3, unit="who")
    text = read_table(tmp_path / "table.csv")
    numbers = read_table(tmp_path / "table.csv", schema.numbers)
    assert schema.numbers == ("a", "b")
    assert [numbers.column(name).dtype.kind for name in ("a", "b", "who")] == ["f", "O", "O"]
    found, expected = encode(numbers, schema, "y"), encode(text, schema, "y")
    assert np.array_equal(found.inputs, expected.inputs)
    assert found.users.tolist() == expected.users.tolist() == ["007", "7", "007", "7", "8", "8"]
    assert unreadable_cells(numbers, schema, "y") == unreadable_cells(text, schema, "y") == {"b": 1}
