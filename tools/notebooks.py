"""Write the tutorials as notebooks: ``python tools/notebooks.py`` runs their code and keeps what it printed and drew.

A page's text and blocks become cells, so that nothing is said twice; a test compares them. Standard library and
matplotlib only. Pictures are small, so that a forge shows a notebook at once.
"""

import base64
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("table", "loop", "posterior", "coefficients", "mnist")
FOLDER = ROOT / "docs" / "notebooks"
_BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```\n", re.M | re.S)


def cells(page: str) -> list[tuple[str, str]]:
    """(kind, text) of each cell: markdown, or code; commands of a shell are a cell of their own."""
    found, place = [], 0
    for match in _BLOCK.finditer(page):
        found.append(("markdown", page[place : match.start()].strip()))
        found.append(("code", ("%%bash\n" if match[1] == "bash" else "") + match[2].rstrip()))
        place = match.end()
    return [(kind, text) for kind, text in [*found, ("markdown", page[place:].strip())] if text]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def run(text: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """What a cell prints and draws; commands are those of the environment that this Python is of."""
    if text.startswith("%%bash\n"):
        here = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-e", "-c", text[7:]], capture_output=True, text=True, env=here)  # noqa: S607
        if done.returncode:
            raise RuntimeError(f"{text}\n{done.stderr}")
        return _printed(done.stdout)
    import matplotlib.pyplot as plt

    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(text, "cell", "exec"), names)  # noqa: S102
    pictures = [_picture(plt.figure(number)) for number in plt.get_fignums()]
    plt.close("all")
    return [*_printed(out.getvalue()), *pictures]


def _printed(text: str) -> list[dict[str, Any]]:
    lines = [line[:200] for line in text.splitlines(keepends=True)[:40]]
    return [{"output_type": "stream", "name": "stdout", "text": lines}] if lines else []


def _picture(figure: Any) -> dict[str, Any]:
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=60)
    data = {"image/png": base64.b64encode(drawn.getvalue()).decode(), "text/plain": ["a figure"]}
    return {"output_type": "display_data", "metadata": {}, "data": data}


def notebook(page: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "__main__"}
    made = []
    for number, (kind, text) in enumerate(cells(page)):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        cell["source"] = text.splitlines(keepends=True)
        if kind == "code":
            cell |= {"execution_count": None, "outputs": run(text, names)}
        made.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def main() -> None:
    os.environ["MPLBACKEND"] = "Agg"
    FOLDER.mkdir(exist_ok=True)
    for name in PAGES:
        page = (ROOT / "docs" / "tutorials" / f"{name}.md").read_text()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            made = notebook(page)
        (FOLDER / f"{name}.ipynb").write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
