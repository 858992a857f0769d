"""Schemas: read as written, refused by name, and honest about where they come from."""

import json

import numpy as np
import pytest

from tacit.errors import InputError
from tacit.tables import (
    Category,
    Flag,
    Ignored,
    Number,
    Schema,
    Table,
    draft_schema,
    public_schema,
    read_schema,
    schema_from_values,
    schema_text,
)

SCHEMA = Schema(
    (
        Number('a "quoted" name', -1.5, 2, "sqrt", may_be_missing=True),
        Number("binned", bins=(1, 2.5)),
        Category("job", ("k\u00f6ch", "a\\b", "")),
        Flag("well", ("ja",), ("nein",)),
        Ignored("name"),
    ),
    dataset="people",
    records=1000,
    users=100,
    target="job",
    unit="name",
    source="the law",
)


@pytest.mark.parametrize("ending", [".toml", ".json"])
def test_a_schema_is_read_as_it_was_written(tmp_path, ending):
    path = tmp_path / f"schema{ending}"
    path.write_text(schema_text(SCHEMA) if ending == ".toml" else json.dumps(SCHEMA.to_json()), encoding="utf-8")
    assert read_schema(path) == SCHEMA


def cells(**columns):
    return Table({name: np.array(values, dtype=object) for name, values in columns.items()})


TABLE = cells(
    age=["30", "40", "", "50"], job=["cook", "cook", "clerk", "?"], well=["yes", "no", "", "yes"],
    grade=["1", "2", "1", "2"], pay=["1", "2", "1", "100"],
)  # fmt: skip


def test_a_draft_holds_names_and_types_and_no_value(tmp_path):
    draft = draft_schema(TABLE)
    assert [column.kind for column in draft.columns] == ["number", "category", "flag", "number", "number"]
    text = schema_text(draft)
    assert not any(value in text for value in ("cook", "clerk", "30", "100 "))
    (tmp_path / "draft.toml").write_text(text)
    with pytest.raises(InputError, match="'age': its bounds"):
        read_schema(tmp_path / "draft.toml").with_facts(records=10).check("well")


def test_values_of_private_data_mark_the_schema_and_its_assumptions():
    found = schema_from_values(TABLE, "x", "taken from the private data", private=True, target="grade")
    assert found.derived_from_private_data
    assert "epsilon does not cover" in found.assumptions[0]
    assert found.records == 4
    assert found.column("grade") == Category("grade", ("1", "2"))
    assert found.column("job") == Category("job", ("clerk", "cook"))
    assert found.column("pay").transform == "log"
    assert found.column("age").low <= 30 < 50 <= found.column("age").high


def test_a_public_sample_gives_bounds_without_a_mark_and_without_a_count():
    found = public_schema(TABLE, ["age", "well"], "sample.csv", "well")
    assert [column.name for column in found.columns] == ["age", "well"]
    assert not found.derived_from_private_data
    assert found.records is None
    assert "public sample sample.csv" in found.assumptions[0]


def test_a_constant_column_and_one_of_identifiers_are_ignored():
    ids = [f"person {i}" for i in range(200)]
    found = schema_from_values(cells(same=["1"] * 200, name=ids, x=["1", "2"] * 100), "x", "s", private=True)
    assert [column.kind for column in found.columns] == ["ignore", "ignore", "number"]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, "needs columns"),
        ({"columns": [], "format": 9}, "format 9"),
        ({"columns": [], "colour": 1}, "no 'colour'"),
        ({"columns": [{"kind": "number"}]}, "needs a name"),
        ({"columns": [{"name": "x", "kind": "number", "low": 1}]}, "belong together"),
        ({"columns": [{"name": "x", "kind": "number", "low": "1", "high": 2}]}, "finite number"),
        ({"columns": [{"name": "x", "kind": "number", "bins": [2, 1]}]}, "rising"),
        ({"columns": [{"name": "x", "kind": "number", "bins": 2}]}, "must be a list"),
        ({"columns": [{"name": "x", "kind": "number", "transform": "cube"}]}, "linear, sqrt or log"),
        ({"columns": [{"name": "x", "kind": "category", "levels": ["a", "a"]}]}, "declared twice"),
        ({"columns": [{"name": "x", "kind": "flag", "yes": ["a"], "no": ["A"]}]}, "yes and no"),
        ({"columns": [{"name": "x", "kind": "flag", "may_be_missing": "no"}]}, "true or false"),
        ({"columns": [{"name": "x", "kind": "flag", "weight": 0}]}, "weight must be"),
        ({"columns": [], "records": -1}, "whole number"),
        ({"columns": [], "unit": 3}, "unit must be"),
    ],
)
def test_a_mistake_in_a_schema_is_named(facts, said):
    with pytest.raises(InputError, match=said):
        Schema.from_json(facts)
