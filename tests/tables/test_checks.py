"""Odd files: read where nothing is lost by it, and each named in one clear line by ``tacit check``."""

import json

import numpy as np
import pytest

from tacit.tables import Category, Number, Schema, Table, encode_inputs, read_table

GOOD = "age,job,ill\n" + "".join(
    f"{20 + i},{'cook' if i % 3 else 'clerk'},{'yes' if i % 2 else 'no'}\n" for i in range(60)
)
SCHEMA = """
records = 60
target = "ill"
[[columns]]
name = "age"
kind = "number"
low = 0
high = 120
[[columns]]
name = "job"
kind = "category"
levels = ["cook", "clerk"]
[[columns]]
name = "ill"
kind = "flag"
"""
SEMICOLONS = GOOD.replace(",", ";")

# the file, words that its one line must hold, and the schema line that is suggested
ODD = {
    "semicolons": (SEMICOLONS, "separated by ';'", ""),
    "tabs": (GOOD.replace(",", "\t"), "separated by '\\t'", ""),
    "bars": (GOOD.replace(",", "|"), "separated by '|'", ""),
    "Latin-1": (GOOD.replace("ill", "ill,maître", 1).replace("o\n", "o,a\n").replace("s\n", "s,b\n").encode("latin-1"),
                "no UTF-8", ""),
    "decimal commas": (SEMICOLONS.replace("20;", "20,5;"), "decimal commas", 'decimal = ","'),
    "a unit in a number": (GOOD.replace("\n25,", "\n25 years,"), "cannot be read as numbers", ""),
    "ISO dates": (GOOD.replace("\n25,", "\n1999-12-31,"), "dates", 'kind = "date"'),
    "dates with points": (GOOD.replace("\n25,", "\n31.12.1999,"), "dates", 'kind = "date"'),
    "-9": (GOOD.replace("\n25,", "\n-9,"), "code for missing", "missing = [-9]"),
    "999": (GOOD.replace("\n25,", "\n999,").replace("\n26,", "\n999,"), "code for missing", "missing = [999]"),
    "99 as a level": (GOOD.replace("\n25,cook", "\n25,99"), "code for missing", "missing = [99]"),
    "out of bounds": (GOOD.replace("\n25,", "\n430,"), "out of bounds, from 430 to 430", ""),
    "missing": (GOOD.replace("\n25,", "\n,"), "missing", "may_be_missing = true"),
    "another level": (GOOD.replace("\n25,cook", "\n25,nurse"), "not declared: nurse",
                      'levels = ["cook", "clerk", "nurse"]'),
    "letter case": (GOOD.replace("\n25,cook", "\n25,Cook"), "letter case only: Cook", ""),
    "a word that is no flag": (GOOD.replace("25,cook,yes", "25,cook,perhaps"), "not declared: perhaps", ""),
    "constant": (GOOD.replace("clerk", "cook"), "the same value", 'kind = "ignore"'),
    "copies": (GOOD + "25,cook,yes\n" * 2, "copies of another row", ""),
    "more rows than declared": (GOOD + "".join(f"{i + 0.5},cook,no\n" for i in range(40)), "declares 60 records",
                                "records = 100"),
    "a rare class": ("age,job,ill\n" + GOOD[12:].replace("yes", "no").replace("25,cook,no", "25,cook,yes"),
                     "'true' is rare", ""),
    "another column": ("x," + GOOD.replace("\n", "\n1,").removesuffix("1,"), "not in the schema: x", ""),
    "a column that is not there": (GOOD.replace("job", "work", 1), "no such column", ""),
    "ids that repeat": ("my_id," + "\n".join(f"{max(i, 2)},{line}" if i else line for i, line in
                        enumerate(GOOD.splitlines())) + "\n", "ids stand in several rows", 'unit = "my_id"'),
}  # fmt: skip


def found(tacit, folder, content, *more):
    data = folder / "t.csv"
    data.write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "s.toml").write_text(SCHEMA)
    code, out, err = tacit("check", data, "--schema", folder / "s.toml", "--json", *more)
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert "data holder alone" in said["private"]
    return said["found"]


@pytest.mark.parametrize("name", ODD)
def test_an_odd_file_is_named_in_one_line(tacit, tmp_path, name):
    content, what, line = ODD[name]
    lines = [one for one in found(tacit, tmp_path, content) if what in one["what"]]
    assert len(lines) == 1
    assert lines[0]["schema_line"] == line


def test_nothing_is_said_of_a_good_file(tacit, tmp_path):
    assert found(tacit, tmp_path, GOOD) == []
    assert found(tacit, tmp_path, "\ufeff" + GOOD.replace(",cook,", ',"cook",')) == []
    code, out, _ = tacit("check", tmp_path / "t.csv", "--schema", tmp_path / "s.toml")
    assert code == 0
    assert out.startswith("PRIVATE For the data holder alone")


def test_rows_that_the_test_file_holds_too_are_counted(tacit, tmp_path):
    (tmp_path / "test.csv").write_text("\n".join([*GOOD.splitlines()[:6], "7,cook,no"]))
    lines = found(tacit, tmp_path, GOOD, "--public-test", tmp_path / "test.csv")
    assert [(one["count"], one["what"]) for one in lines] == [(5, "rows of test.csv are in the table too")]


@pytest.mark.parametrize("change", [lambda text: text.replace(",", ";"), lambda text: text.replace(",", "\t"),
                                    lambda text: "\ufeff" + text, lambda text: text.replace("\n", "\r\n")])  # fmt: skip
def test_however_a_file_is_written_the_table_is_the_same(tmp_path, change):
    for name, content in (("one.csv", GOOD), ("two.csv", change(GOOD))):
        (tmp_path / name).write_bytes(content.encode())
    one, two = (read_table(tmp_path / name, ["age"]) for name in ("one.csv", "two.csv"))
    assert all((one.columns[name] == two.columns[name]).all() for name in one.names)


def test_a_byte_that_is_no_utf_8_changes_no_other_record(tmp_path):
    (tmp_path / "t.csv").write_bytes("name,age\nköch,1\n".encode() + "maître,2\n".encode("latin-1"))
    assert read_table(tmp_path / "t.csv").columns["name"].tolist() == ["köch", "maître"]


def test_quoted_newlines_stay_in_their_cell(tmp_path):
    (tmp_path / "t.csv").write_text('name,age\n"a\nb",1\n')
    assert read_table(tmp_path / "t.csv").columns["name"].tolist() == ["a\nb"]


def test_declared_codes_are_missing_and_declared_commas_are_read():
    age, pay = Number("age", 0, 100, missing=(-9, 999), may_be_missing=True), Number("pay", 0, 5000, decimal=",")
    job = Category("job", ("cook",), missing=("99",), may_be_missing=True)
    schema = Schema((age, pay, job, Category("ill", ("no", "yes"))), records=3, target="ill")
    coded = Table({"age": np.array([-9.0, 30, 999]), "pay": np.array(["1.250,5", "x", "0,5"], dtype=object),
                   "job": np.array(["99", "cook", "99.0"], dtype=object)})  # fmt: skip
    plain = Table({"age": np.array([np.nan, 30, np.nan]), "pay": np.array([1250.5, np.nan, 0.5]),
                   "job": np.array(["", "cook", ""], dtype=object)})  # fmt: skip
    assert (encode_inputs(coded, schema, "ill") == encode_inputs(plain, schema, "ill")).all()
