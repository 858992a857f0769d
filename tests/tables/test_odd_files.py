"""Odd files through ``tacit check`` and ``tacit train``: each is read, or refused in one clear line."""

import json

import pytest

from tacit.tables import recipes
from tests.tables.test_checks import GOOD, ODD, SCHEMA

LINES = GOOD.splitlines()


def with_cell(cell, column=0, row=6):
    """The good file with one other cell."""
    cells = LINES[row].split(",")
    cells[column] = cell
    return "\n".join([*LINES[:row], ",".join(cells), *LINES[row + 1 :]]) + "\n"


def with_names(line):
    return "\n".join([line, *LINES[1:]]) + "\n"


CELLS = {
    "not a number": "nan",
    "infinity": "inf",
    "minus infinity": "-inf",
    "a huge number": "1e999",
    "a tiny one": "1e-999",
    "a number of 400 digits": "9" * 400,
    "hexadecimal": "0x1F",
    "a fraction": "1/2",
    "a percentage": "25%",
    "a comma in quotes": '"25,5"',
    "thousands": '"1,000"',
    "a range": "20-30",
    "above": ">90",
    "an Arabic digit": "٢٥",
    "a full-width digit": "２５",
    "spaces around": "  25  ",
    "a no-break space": "25\u00a0",
    "a formula": "=1+1",
    "an error of a sheet": "#DIV/0!",
    "null": "NULL",
    "none": "None",
    "a dash": "-",
    "a question mark": "?",
    "a quoted line end": '"25\n"',
    "an emoji": "🙂",
    "a terminal's escape": "\x1b[31m25",
    "a very long cell": "x" * 5000,
    "a sign alone": "+",
    "underscores": "1_000",
}
FILES = {
    "no rows": LINES[0] + "\n",
    "one row": "\n".join(LINES[:2]) + "\n",
    "empty": "",
    "only spaces": "  \n \n",
    "a ragged row": GOOD + "1,2\n",
    "a row too long": GOOD + "1,cook,yes,4\n",
    "two columns of one name": with_names("age,age,ill"),
    "a column without a name": with_names("age,,ill"),
    "numbers for names": with_names("1,2,3"),
    "empty lines between": GOOD.replace("\n", "\n\n"),
    "no end of the last line": GOOD.rstrip("\n"),
    "an open quotation mark": GOOD + '25,"cook,yes\n',
    "zero bytes": GOOD.replace("cook", "co\0ok"),
    "UTF-16": GOOD.encode("utf-16"),
    "a zip": b"PK\x03\x04" + bytes(100),
    "a picture": b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
    "carriage returns alone": GOOD.replace("\n", "\r"),
}
ALL = (
    {name: content for name, (content, *_) in ODD.items()}
    | {f"a cell: {name}": with_cell(cell) for name, cell in CELLS.items()}
    | FILES
)


def test_there_are_sixty_of_them():
    assert len(ALL) >= 60


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_an_odd_file_is_read_or_refused_in_one_line(tacit, tmp_path, monkeypatch, name):
    monkeypatch.setattr(recipes, "STEPS", dict.fromkeys(recipes.STEPS, 50))
    content = ALL[name]
    data, schema = tmp_path / "t.csv", tmp_path / "s.toml"
    data.write_bytes(content if isinstance(content, bytes) else content.encode())
    schema.write_text(SCHEMA)
    code, out, err = tacit("check", data, "--schema", schema, "--json")
    assert code in (0, 2), err
    assert (err.count("\n"), bool(out)) == ((0, True) if code == 0 else (1, False)), err
    run = tmp_path / "run"
    trained, out, err = tacit("train", data, "--schema", schema, "--epsilon", 1, "--out", run, "--json")
    assert trained in (0, 2), err
    assert err.count("\n") <= 1, err
    assert all(letter.isprintable() or letter == "\n" for letter in err)
    assert run.exists() == (trained == 0)
    if trained == 0:
        assert json.loads(out)["guarantees"][0]["epsilon"] <= 1
        assert code == 0
