"""Columns of dates, declared by dates and counted in days, and sheets: each cell is read by itself."""

import json
import sys
from datetime import datetime
from types import SimpleNamespace

import numpy as np
import pytest

from tacit.errors import InputError
from tacit.tables import Category, Number, Schema, Table, encode, read_schema, read_table, schema_text
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


def sheet_of(monkeypatch, rows):
    """openpyxl is an extra: a stand-in with the two calls that are made of it."""
    book = SimpleNamespace(worksheets=[SimpleNamespace(iter_rows=lambda values_only: iter(rows))])
    stand_in = SimpleNamespace(load_workbook=lambda path, read_only, data_only: book)
    monkeypatch.setitem(sys.modules, "openpyxl", stand_in)


def test_a_sheet_is_read_as_text_cell_by_cell(tmp_path, monkeypatch):
    (tmp_path / "t.xlsx").write_bytes(b"PK")
    day = datetime(2001, 1, 31)
    sheet_of(
        monkeypatch, [("age", "born", "ill"), (39, day, True), (40.5, None, "no"), (None, None, None), ("?", day, 0)]
    )
    table = read_table(tmp_path / "t.xlsx")
    assert {name: cells.tolist() for name, cells in table.columns.items()} == {
        "age": ["39", "40.5", "?"], "born": ["2001-01-31", "", "2001-01-31"], "ill": ["true", "no", "0"]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "says"), [([], "has no name"), ([("a", "b")], "no rows"), ([(1, 2), (3, 4)], "names")]
)
def test_a_sheet_without_a_table_is_refused(tmp_path, monkeypatch, rows, says):
    (tmp_path / "t.xlsx").write_bytes(b"PK")
    sheet_of(monkeypatch, rows)
    with pytest.raises(InputError, match=says):
        read_table(tmp_path / "t.xlsx")


def test_a_real_workbook_is_read_and_checked(tacit, tmp_path):
    openpyxl = pytest.importorskip("openpyxl", reason="the extra tacit[excel] is not installed")
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["age", "visit", "ill", "twice"])
    for number in range(600):
        ill = "yes" if number % 3 == 0 else "no"
        sheet.append(
            [20 + number % 60 if number else None, datetime(2020, 1, 1 + number % 28), ill, f"=A{number + 2}*2"]
        )
    book.create_sheet("notes").append(["not read"])
    book.save(tmp_path / "t.xlsx")
    table = read_table(tmp_path / "t.xlsx")
    assert table.names == ["age", "visit", "ill", "twice"]
    assert table.columns["age"][:2].tolist() == ["", "21"]
    assert table.columns["visit"][27] == "2020-01-28"
    columns = [{"name": "age", "kind": "number", "low": 0, "high": 100}, VISIT | {"low": "2019-12-01"}, ILL]
    (tmp_path / "s.toml").write_text(schema_text(Schema.from_json({"records": 600, "columns": columns})))
    code, _, err = tacit("check", tmp_path / "t.xlsx", "--schema", tmp_path / "s.toml")
    assert code == 0, err
    code, out, err = tacit("ask", tmp_path / "t.xlsx", "count", "mean:age", "--schema", tmp_path / "s.toml",
                           "--epsilon", 1, "--out", tmp_path / "run", "--json")  # fmt: skip
    assert code == 0, err
    assert json.loads(out)["answers"][1]["value"] == pytest.approx(49.5, abs=5)
    (tmp_path / "broken.xlsx").write_bytes((tmp_path / "t.xlsx").read_bytes()[:2000])
    code, _, err = tacit("check", tmp_path / "broken.xlsx", "--schema", tmp_path / "s.toml")
    assert (code, err.count("\n")) == (2, 1), err


def test_excel_without_its_extra_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "t.xlsx").write_bytes(b"PK")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(InputError, match=r"tacit\[excel\]"):
        read_table(tmp_path / "t.xlsx")


VISIT = {"name": "visit", "kind": "date", "low": "2019-03-01", "high": "2021-02-01", "parts": ["year", "weekday"]}
ILL = {"name": "ill", "kind": "category", "levels": ["no", "yes"]}


def test_parts_of_a_date_are_categories_of_their_own(tmp_path):
    schema = Schema.from_json({"records": 4, "columns": [VISIT, ILL]})
    assert [column.name for column in schema.features("ill")] == ["visit", "visit year", "visit weekday"]
    table = Table({"visit": np.array(["2019-03-01", "2021-01-31", "?", "1999-01-01"], dtype=object),
                   "ill": np.array(["no", "yes"] * 2, dtype=object)})  # fmt: skip
    inputs = encode(table, schema, "ill").inputs
    assert (inputs[:, 2:5] > 0).astype(int).tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert [row.argmax() if row.any() else None for row in inputs[:, 5:]] == [4, 6, None, 4]  # Fri, Sun, -, Fri
    (tmp_path / "s.toml").write_text(schema_text(schema))
    assert read_schema(tmp_path / "s.toml") == schema


def test_parts_need_no_bounds_and_keep_how_dates_are_written():
    said = {
        "name": "visit",
        "kind": "date",
        "written": "%d.%m.%Y",
        "parts": ["month", "quarter"],
        "missing": ["01.01.1900"],
    }
    schema = Schema.from_json({"records": 3, "columns": [said, ILL]})
    table = Table({"visit": np.array(["31.12.1999", "01.02.2000", "01.01.1900"], dtype=object),
                   "ill": np.array(["no", "yes", "no"], dtype=object)})  # fmt: skip
    inputs = encode(table, schema, "ill").inputs[:, 1:]
    assert inputs.shape == (3, 16)
    assert [row.nonzero()[0].tolist() for row in inputs] == [[11, 15], [1, 12], []]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"parts": ["hour"]}, "parts must be a list of year, quarter, month, weekday"),
        ({"parts": "month"}, "parts must be a list"),
        ({"parts": []}, "parts must be a list"),
        ({"parts": [["month"]]}, "parts must be a list"),
        ({"low": None, "high": None, "parts": ["year"]}, "the part 'year' needs low and high"),
    ],
)
def test_a_wrong_part_is_named(change, says):
    facts = {key: value for key, value in (VISIT | change).items() if value is not None}
    with pytest.raises(InputError, match=says):
        Schema.from_json({"records": 4, "columns": [facts, ILL]})


@pytest.mark.parametrize(
    "change", [{"of": 3}, {"part": 3}, {"written": 5}, {"part": "hour"}, {"of": ""}, {"part": ["month"]}]
)
def test_a_part_that_is_written_out_wrongly_is_named(change):
    facts = {"name": "x", "kind": "category", "of": "visit", "part": "month", "levels": ["1"]} | change
    with pytest.raises(InputError, match="column 'x': part must be one of"):
        Schema.from_json({"records": 4, "columns": [facts, ILL]})


def test_parts_go_through_every_command(tacit, tmp_path):
    chance = np.random.default_rng(0)
    days = [datetime.fromordinal(737000 + int(day)) for day in chance.integers(0, 600, 3000)]
    rows = [f"{day:%Y-%m-%d},{'yes' if (day.weekday() > 4) != (chance.random() < 0.2) else 'no'}" for day in days]
    (tmp_path / "t.csv").write_text("visit,ill\n" + "\n".join(rows) + "\n")
    schema = Schema.from_json({"records": 3000, "target": "ill", "columns": [VISIT | {"parts": ["weekday"]}, ILL]})
    (tmp_path / "s.toml").write_text(schema_text(schema))
    with_schema = ("--schema", tmp_path / "s.toml", "--epsilon", 1, "--out")
    code, out, err = tacit("train", tmp_path / "t.csv", *with_schema, tmp_path / "run", "--hold-out", "20%", "--json")
    assert code == 0, err
    scores = {one["query"]: one["value"] for one in json.loads(out)["run"]["score"]["scores"]}
    assert scores["accuracy"] > 0.7
    code, out, err = tacit("ask", tmp_path / "t.csv", "count:visit weekday", *with_schema, tmp_path / "asked", "--json")
    assert code == 0, err
    assert [one["cell"] for one in json.loads(out)["answers"]][5:] == ["visit weekday=Sat", "visit weekday=Sun"]
    code, out, err = tacit(
        "regress", tmp_path / "t.csv", "--outcome", "ill", *with_schema, tmp_path / "effects", "--json"
    )
    assert code == 0, err
    found = {one["name"]: one["estimate"] for one in json.loads(out)["coefficients"]}
    assert found["visit weekday = Sat"] > 1.5
    code, out, err = tacit("predict", tmp_path / "run", tmp_path / "t.csv", "--out", tmp_path / "p.csv")
    assert code == 0, err
    code, out, err = tacit("check", tmp_path / "t.csv", "--schema", tmp_path / "s.toml")
    assert code == 0, err
    assert "no such column" not in out
