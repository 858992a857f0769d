"""What the quickstart prints about Adult runs as printed; all else of it is a notebook (test_notebooks.py)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "tutorials" / "table.md").read_text()


def blocks(kind):
    return re.findall(rf"```{kind}\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.fixture
def shell(tmp_path):
    """A shell in an empty folder, in which ``tacit`` is this tree's."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "tacit"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tacit "$@"\n')
    command.chmod(0o755)
    (tmp_path / "here").mkdir()
    environment = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}",
        "TACIT_EXAMPLES": str(ROOT / "examples"),
    }

    def run(script):
        return subprocess.run(
            ["bash", "-e", "-c", script], cwd=tmp_path / "here", env=environment, capture_output=True, text=True
        )

    return run


def test_adult_is_trained_as_printed(shell, data_folder):
    done = shell("\n".join(blocks("bash adult")))
    assert done.returncode == 0, done.stderr
    accuracy = float(done.stdout.split("How good: ")[1].split("%")[0])
    error = float(done.stdout.split("calibration error ")[1].split(";")[0])
    assert accuracy > 85.3  # about 86.0, 0.1 from run to run
    assert error < 0.025  # about .011, in one of ten runs .015


def test_the_declared_schema_of_adult_makes_the_features_of_the_loader(data_folder, tmp_path):
    """But for three columns that it leaves out, and a scale."""
    from dataclasses import replace

    import numpy as np

    from tacit.data import load_adult
    from tacit.tables import Category, Ignored, encode, read_schema, read_table

    names = re.search(r"NAMES=(\S+)", TEXT).group(1)
    (tmp_path / "adult.csv").write_text(f"{names}\n{(data_folder / 'adult' / 'adult.data').read_text()}")
    schema = read_schema(ROOT / "examples" / "adult.schema.toml")
    table = read_table(tmp_path / "adult.csv")
    left_out = ("education", "race", "native-country")
    assert [column.name for column in schema.columns if isinstance(column, Ignored)] == ["fnlwgt", *left_out]
    back = {name: Category(name, tuple({*table.columns[name]} - {"?"})) for name in left_out}
    columns = (back.get(column.name, column) for column in schema.columns)
    even = tuple(column if isinstance(column, Ignored) else replace(column, weight=1.0) for column in columns)
    found = encode(table, replace(schema, columns=even, scaling="norm"), "income")
    loaded = load_adult(data_folder)
    assert (found.targets == loaded.train_labels.numpy()).all()
    np.testing.assert_allclose(np.sort(found.inputs, axis=1), np.sort(loaded.train_inputs.numpy(), axis=1), atol=1e-6)
