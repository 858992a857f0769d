"""Tables that are none, and tables that do not fit what was declared: one clear line each, exit 2, nothing written."""

import numpy as np
import pytest

from tacit.commands.app import run

GOOD = "age,job,ill\n30,cook,no\n40,clerk,yes\n50,cook,no\n"
SCHEMA = """
records = 500
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
NUMBERS = ",".join(f"c{i}" for i in range(10_000))


def changed(*pairs):
    text = SCHEMA
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def text(content, **more):
    return {"data": content.encode() if isinstance(content, str) else content, **more}


def regression(high="high = 10"):
    return changed(('name = "ill"\nkind = "flag"', f'name = "ill"\nkind = "number"\nlow = 0\n{high}'))


# what is given, and words that the line must hold: they name what is wrong
BAD = {
    "empty file": (text(""), "is empty"),
    "blank lines only": (text("\n\n  \n"), "is empty"),
    "names but no rows": (text("age,job,ill\n"), "no rows"),
    "duplicate names": (text(GOOD.replace("job", "age")), "several columns named 'age'"),
    "a column without a name": (text(GOOD.replace("job", "")), "column 2 has no name"),
    "no names at all": (text("30,1,0\n40,2,1\n"), "holds numbers"),
    "a row too short": (text(GOOD + "60,cook\n"), "line 5: 2 cells"),
    "a row too long": (text(GOOD + "60,cook,no,no\n"), "line 5: 4 cells"),
    "an open quotation mark": (text(GOOD + '60,"cook,no\n'), "quotation mark"),
    "UTF-16": (text(GOOD.encode("utf-16")), "UTF-16"),
    "UTF-16 without a mark": (text((GOOD * 9).encode("utf-16-le")), "UTF-16"),
    "zero bytes": (text(GOOD.encode() + b"\0"), "zero bytes"),
    "an Excel file": (text(b"PK\x03\x04" + bytes(100)), "Excel"),
    "a gzip file": (text(b"\x1f\x8b\x08" + b"abc"), "gzip"),
    "Parquet called csv": (text(b"PAR1" + b"abc"), "Parquet"),
    "10,000 columns": (text(f"{NUMBERS}\n{NUMBERS.replace('c', '')}\n"), "10000 columns"),
    "a cell that never ends": (text(GOOD + "x" * 200_000 + ",cook,no\n"), "too long"),
    "unknown ending": (text(GOOD, name="table.ods"), "should end in"),
    "a damaged npz": (text(b"PK\x03\x04 nothing", name="table.npz"), "damaged or no npz"),
    "text in numbers": (
        text(GOOD.replace("30", "x").replace("40", "y").replace("50", "z")),
        "none of its cells is one",
    ),
    "numbers with decimal commas": (text('age,job,ill\n"1,5",cook,no\n"2,5",clerk,yes\n'), "none of its cells is one"),
    "a target without values": (text("age,job,ill\n30,cook,\n40,clerk,\n"), "declared classes"),
    "NaN target of a regression": (text("age,job,ill\n30,cook,NaN\n40,clerk,nan\n", schema=regression()), "numbers"),
    "target not there": (text("age,job\n30,cook\n"), "no column 'ill'"),
    "a declared column not there": (text("age,ill\n30,no\n"), "no column 'job'"),
    "one class": (text(GOOD, schema=changed(('kind = "flag"', 'kind = "category"\nlevels = ["no"]'))), "one class"),
    "no class declared": (
        text(GOOD, schema=changed(('kind = "flag"', 'kind = "category"'))),
        "levels must be declared",
    ),
    "no bounds": (text(GOOD, schema=changed(("low = 0\nhigh = 120", ""))), "'age': its bounds"),
    "bounds upside down": (text(GOOD, schema=changed(("high = 120", "high = -5"))), "must be below high"),
    "an infinite bound": (text(GOOD, schema=changed(("high = 120", "high = inf"))), "finite number"),
    "huge bounds": (text(GOOD, schema=changed(("high = 120", "high = 1e999"))), "finite number"),
    "no number of records": (text(GOOD, schema=changed(("records = 500", ""))), "number of records is not declared"),
    "huge number of records": (text(GOOD, arguments=("--records", 10**30, "--delta", "1e-5")), "not below 1/"),
    "half a record": (text(GOOD, schema=changed(("records = 500", "records = 0.5"))), "whole number"),
    "an unknown kind": (text(GOOD, schema=changed(('"flag"', '"maybe"'))), "kind must be one of"),
    "an unknown word in the schema": (text(GOOD, schema=changed(("high", "heigh"))), "'heigh'"),
    "a schema that is no TOML": (text(GOOD, schema="records = "), "no readable schema"),
    "a column declared twice": (text(GOOD, schema=changed(('"job"', '"age"'))), "more than once"),
    "levels that are numbers": (text(GOOD, schema=changed(('["cook", "clerk"]', "[1, 2]"))), "texts in quotes"),
    "a task that is not the target's": (text(GOOD, arguments=("--task", "regression")), "classification"),
    "a unit that is not there": (text(GOOD, arguments=("--unit", "person")), "'person'"),
    "delta above 1/n": (text(GOOD, arguments=("--delta", "0.01")), "not below 1/500"),
    "epsilon below zero": (text(GOOD, arguments=("--epsilon", "-1")), "epsilon must be"),
    "epsilon NaN": (text(GOOD, arguments=("--epsilon", "nan")), "epsilon must be"),
    "an unknown method": (text(GOOD, arguments=("--method", "magic")), "sgld"),
    "a model that is not there": (text(GOOD, arguments=("--model", "nowhere:model")), "nowhere"),
}


def refused(tmp_path, capsys, data, name="table.csv", schema=SCHEMA, arguments=()):
    path = tmp_path / name
    path.write_bytes(data)
    (tmp_path / "schema.toml").write_text(schema)
    before = {found: found.read_bytes() for found in tmp_path.rglob("*") if found.is_file()}
    given = {"--epsilon": "1", "--schema": tmp_path / "schema.toml", "--out": tmp_path / "run"}
    given |= dict(zip(arguments[::2], arguments[1::2], strict=True))
    code = run(["train", str(path), *(str(part) for pair in given.items() for part in pair)])
    captured = capsys.readouterr()
    assert code == 2, captured
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert {found: found.read_bytes() for found in tmp_path.rglob("*") if found.is_file()} == before
    assert not (tmp_path / "run").exists()
    return captured.err


@pytest.mark.parametrize("case", BAD)
def test_a_bad_table_is_refused_in_one_line(case, tmp_path, capsys):
    given, said = BAD[case]
    assert said in refused(tmp_path, capsys, **given)


@pytest.mark.parametrize("cut", [4, 100, -1])
def test_a_truncated_parquet_is_refused(cut, tmp_path, capsys):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(
        pyarrow.table({"age": [1.0] * 50, "job": ["cook"] * 50, "ill": [True] * 50}), tmp_path / "x.parquet"
    )
    whole = (tmp_path / "x.parquet").read_bytes()
    assert "damaged or no Parquet" in refused(tmp_path, capsys, whole[:cut], name="table.parquet")


def test_a_parquet_of_lists_is_refused_by_column(tmp_path, capsys):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"age": [[1.0]], "job": ["cook"], "ill": [True]}), tmp_path / "x.parquet")
    assert "'age'" in refused(tmp_path, capsys, (tmp_path / "x.parquet").read_bytes(), name="table.parquet")


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"age": np.array([1, None])}, "no npz of plain arrays"),
        ({"age": np.zeros(3), "ill": np.zeros(4)}, "equally long"),
        ({"age": np.zeros((3, 4, 5))}, "shape [3, 4, 5]"),
        ({"age": np.zeros(3, dtype=complex)}, "complex"),
        ({}, "no name"),
    ],
)
def test_a_bad_npz_is_refused(arrays, said, tmp_path, capsys):
    np.savez(tmp_path / "x.npz", **arrays)
    assert said in refused(tmp_path, capsys, (tmp_path / "x.npz").read_bytes(), name="table.npz")


def test_a_missing_file_and_a_folder_are_refused(tmp_path, capsys):
    (tmp_path / "folder.csv").mkdir()
    for name, said in (("none.csv", "there is no file"), ("folder.csv", "is a folder")):
        assert run(["train", str(tmp_path / name), "--epsilon", "1", "--out", str(tmp_path / "run")]) == 2
        assert said in capsys.readouterr().err


def test_without_a_schema_training_is_refused_and_says_what_to_do(tmp_path, capsys):
    (tmp_path / "table.csv").write_text(GOOD)
    code = run(
        ["train", str(tmp_path / "table.csv"), "--target", "ill", "--epsilon", "1", "--out", str(tmp_path / "r")]
    )
    assert code == 2
    assert "tacit schema" in capsys.readouterr().err


def test_huge_and_broken_numbers_in_single_cells_are_no_reason_to_refuse(tmp_path, capsys):
    from tacit.tables import encode, read_schema, read_table

    (tmp_path / "table.csv").write_text(
        GOOD + f"{'9' * 400},cook,no\n-{'9' * 30},cook,no\n1e999,cook,no\nold,cook,yes\n"
    )
    (tmp_path / "schema.toml").write_text(SCHEMA)
    found = encode(read_table(tmp_path / "table.csv"), read_schema(tmp_path / "schema.toml"), "ill")
    assert len(found.inputs) == 7
    assert np.isfinite(found.inputs).all()
    ages = found.inputs[:, 1] / found.inputs[:, 0]  # over the bias: before all were divided by one number
    assert ages[3:].tolist() == pytest.approx([1, -1, 1, 0])


def test_the_reasons_are_not_just_one():
    assert len(BAD) >= 30
    assert len({said for _, said in BAD.values()}) >= 30
