"""The examples run, on real data where it is present."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_mnist_example_trains_and_replays_its_ledger(data_folder, tmp_path):
    environment = {**os.environ, "TACIT_DATA": str(data_folder)}
    command = [sys.executable, EXAMPLES / "mnist_cnn.py", "--steps", "40", "--out", tmp_path / "run"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    asked = [sys.executable, "-m", "tacit", "account", tmp_path / "run", "--json"]
    replayed = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
    for guarantee in replayed["guarantees"]:
        assert f"{guarantee['accountant']} epsilon {guarantee['epsilon']:.4f}" in done.stdout
    accuracy = float(done.stdout.split("test accuracy ")[1].split("%")[0])
    assert accuracy > 35  # about 60 after 40 steps; 10 is guessing


@pytest.mark.slow
@pytest.mark.parametrize("method", ["bbp", "dropout"])
def test_the_bayesian_mnist_example_trains_and_predicts(data_folder, tmp_path, method):
    environment = {**os.environ, "TACIT_DATA": str(data_folder)}
    settings = ["--steps", "40", "--draws", "2", "--average", "0.8", "--out", tmp_path / "run"]
    command = [sys.executable, EXAMPLES / "mnist_bayes.py", method, *settings]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert float(done.stdout.split("accuracy ")[1].split("%")[0]) > 35  # 10 is guessing
    assert "pld epsilon 0." in done.stdout
