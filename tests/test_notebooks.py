"""The notebooks are the tutorials: the same cells, executed, small. Their code runs with the pages (test_docs.py)."""

import json

import pytest

from tools.notebooks import FOLDER, PAGES, ROOT, cells, source


@pytest.mark.parametrize("name", PAGES)
def test_a_notebook_is_its_tutorial(name):
    path = FOLDER / f"{name}.ipynb"
    found = [(cell["cell_type"], source(cell)) for cell in json.loads(path.read_text())["cells"]]
    assert found == cells((ROOT / "docs" / "tutorials" / f"{name}.md").read_text()), "run python tools/notebooks.py"
    assert path.stat().st_size < 150_000


@pytest.mark.parametrize("name", PAGES)
def test_a_notebook_was_executed_without_an_error(name):
    code = [cell for cell in json.loads((FOLDER / f"{name}.ipynb").read_text())["cells"] if cell["cell_type"] == "code"]
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs
    assert not any(output["output_type"] == "error" for output in outputs)
