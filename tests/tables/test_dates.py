"""Columns of dates: declared by dates, counted in days, each cell by itself."""

import numpy as np
import pytest

from tacit.errors import InputError
from tacit.tables import Category, Number, Schema, Table, encode, read_schema, schema_text
from tacit.tables.columns import column_from_json, column_to_json

BORN = {"name": "born", "kind": "date", "low": "1900-01-01", "high": "2000-01-01"}


def test_a_date_column_goes_from_its_first_day_to_its_last():
    column = column_from_json(BORN)
    assert isinstance(column, Number)
    cells = np.array(["1900-01-01", "2000-01-01 08:30", "1950-01-01", "2050-01-01", "31.12.1999", ""], dtype=object)
    table = Table({"born": cells, "ill": np.array(["no", "yes"] * 3, dtype=object)})
    schema = Schema((column, Category("ill", ("no", "yes"))), records=6)
    inputs = encode(table, schema, "ill").inputs
    assert (inputs[:, 1] / inputs[:, 0]).tolist() == pytest.approx([-1, 1, 0, 1, 0, 0], abs=1e-4)
    assert schema.numbers == ()


@pytest.mark.parametrize("more", [{}, {"written": "%d.%m.%Y"}, {"bins": ["1950-01-01", "1960-06-30"]}])
def test_a_schema_keeps_dates_as_dates(tmp_path, more):
    schema = Schema((column_from_json(BORN | more), Category("ill", ("no", "yes"))), records=6)
    assert column_to_json(schema.columns[0]) == BORN | more
    (tmp_path / "s.toml").write_text(schema_text(schema))
    assert read_schema(tmp_path / "s.toml") == schema


def test_toml_dates_are_dates_too(tmp_path):
    (tmp_path / "s.toml").write_text('[[columns]]\nname="born"\nkind="date"\nlow=1900-01-01\nhigh=2000-01-01\n')
    assert read_schema(tmp_path / "s.toml").columns[0] == column_from_json(BORN)


def test_other_ways_to_write_them_are_declared():
    column = column_from_json(BORN | {"written": "%d.%m.%Y"})
    table = Table({"born": np.array(["01.01.2000", "2000-01-01"], dtype=object),
                   "ill": np.array(["no", "yes"], dtype=object)})  # fmt: skip
    inputs = encode(table, Schema((column, Category("ill", ("no", "yes"))), records=2), "ill").inputs
    assert (inputs[:, 1] / inputs[:, 0]).tolist() == pytest.approx([1, 0], abs=1e-6)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"low": "yesterday"}, "low must be a date"),
        ({"low": 1900}, "low must be a date"),
        ({"high": "1900-01-01"}, "must be below high"),
        ({"written": "day first"}, "written says how"),
        ({"levels": ["a"]}, "a date has no 'levels'"),
        ({"bounds": "ask"}, "a date has no 'bounds'"),
    ],
)
def test_a_mistake_is_named(change, says):
    with pytest.raises(InputError, match=says):
        column_from_json(BORN | change)


def test_a_date_is_not_predicted():
    schema = Schema((Number("x", 0, 1), column_from_json(BORN)), records=10)
    with pytest.raises(InputError, match="is a date"):
        schema.check("born")
