"""Text files are parsed in two ways, by numpy where no cell is quoted, and mean the same."""

import re

import numpy as np
import pytest

from tacit.errors import InputError
from tacit.tables.files import read_table, to_number, to_numbers

GOOD = ["1", " 2.5 ", "-.5e3"]
ODD = ["1_000", "\u0663", "nan", "-nan", "", "?", "inf", "-Infinity", "12,5", "three", "0x10", "1e999"]


@pytest.mark.parametrize("cells", [GOOD, [*GOOD, *ODD], *([*GOOD, odd] for odd in ODD), ["9" * 400]])
@pytest.mark.parametrize("quoted", [False, True])
def test_cells_mean_the_same_however_the_file_is_parsed(tmp_path, cells, quoted):
    path = tmp_path / "t.csv"
    mark = '"' if quoted else ""
    path.write_text(
        "\n".join(["a;x;b", *(f"{mark}{cell}{mark}; k {place};{cell}" for place, cell in enumerate(cells))])
    )
    table = read_table(path, numbers=("a", "b"))
    whole = all(re.fullmatch(r"|\?|nan", cell) or not np.isnan(to_number(cell)) for cell in cells)
    for name in ("a", "b"):
        assert table.columns[name].dtype.kind == ("f" if whole else "O")
        np.testing.assert_array_equal(to_numbers(table.columns[name]), [to_number(cell) for cell in cells])
        assert whole or table.columns[name].tolist() == [cell.strip() for cell in cells]
    assert table.columns["x"].tolist() == [f"k {place}" for place in range(len(cells))]


@pytest.mark.parametrize("quoted", [False, True])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_empty_lines_are_no_rows_and_uneven_ones_are_named(tmp_path, quoted, end):
    path = tmp_path / "t.csv"
    first = '"1",2' if quoted else "1,2"
    path.write_bytes(end.join(["a,b", first, "", "3,4", ""]).encode())
    assert read_table(path, numbers=("a", "b")).columns["b"].tolist() == [2.0, 4.0]
    path.write_bytes(end.join(["a,b", first, "", "3,4,5", "6,7"]).encode())
    with pytest.raises(InputError, match=r"line 4: 3 cells, but there are 2 names"):
        read_table(path)
    path.write_bytes(end.join(["a,b", first, "x" * 200_000 + ",2"]).encode())
    with pytest.raises(InputError, match=r"line 3: .*cell"):
        read_table(path)
