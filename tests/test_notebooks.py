"""The notebooks are the tutorials: the same cells, small, and executed here from the first to the last."""

import json
import os

import pytest
from matplotlib import pyplot

from tools.notebooks import FOLDER, PAGES, ROOT, cells, run, source

SAYS = {  # what a reader of the page is told to look for
    "table": ("Privacy: epsilon", "probability benign", "upper bound", "report.html", "released: epsilon"),
}


def code_of(name):
    found = json.loads((FOLDER / f"{name}.ipynb").read_text())["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


@pytest.mark.parametrize("name", PAGES)
def test_a_notebook_is_its_tutorial(name):
    path = FOLDER / f"{name}.ipynb"
    found = [(cell["cell_type"], source(cell)) for cell in json.loads(path.read_text())["cells"]]
    assert found == cells((ROOT / "docs" / "tutorials" / f"{name}.md").read_text()), "run python tools/notebooks.py"
    assert path.stat().st_size < 150_000


@pytest.mark.parametrize("name", PAGES)
def test_a_notebook_was_executed_without_an_error(name):
    outputs = [output for cell in code_of(name) for output in cell["outputs"]]
    assert outputs
    assert not any(output["output_type"] == "error" for output in outputs)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of libraries that a page shows
def test_a_notebook_runs(name, tmp_path, monkeypatch, request):
    if name == "mnist":
        monkeypatch.setenv("TACIT_DATA", str(request.getfixturevalue("data_folder")))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}")
    pyplot.close("all")  # what tests before this one have left open is no picture of the page
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    names = {"__name__": "__main__"}
    outputs = [output for cell in code_of(name) for output in run(source(cell), names)]
    kinds = {output["output_type"] for cell in code_of(name) for output in cell["outputs"]}
    assert kinds == {output["output_type"] for output in outputs}  # it draws where the kept one has drawn
    said = "".join(line for output in outputs for line in output.get("text", []))
    assert [words for words in SAYS.get(name, ()) if words not in said] == []
