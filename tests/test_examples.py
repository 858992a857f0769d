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
def test_the_example_of_doubtful_digits_tells_clothes_apart(data_folder, tmp_path):
    environment = {**os.environ, "TACIT_DATA": str(data_folder)}
    command = [sys.executable, EXAMPLES / "digits_it_doubts.py", "--steps", "200", "--out", tmp_path / "run"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert float(done.stdout.split("by entropy ")[1].split(",")[0]) > 0.6
    assert (tmp_path / "run" / "digits.png").exists()


@pytest.mark.slow
def test_the_example_of_typical_records_shows_three_kinds_of_numbers(data_folder, tmp_path):
    environment = {**os.environ, "TACIT_DATA": str(data_folder)}
    command = [sys.executable, EXAMPLES / "typical_records.py", "adult", "--steps", "10", "--out", tmp_path / "run"]
    subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    asked = [sys.executable, "-m", "tacit", "account", tmp_path / "run", "--bayesian", "--json"]
    told = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
    worst = next(item["epsilon"] for item in told["guarantees"] if item["accountant"] == "pld")
    typical = {item["accountant"]: item for item in told["private"]["probes"] if item["percentile"] is None}
    single = {item["percentile"]: item["epsilon"] for item in told["private"]["probes"] if item["percentile"]}
    assert typical["bayesian mixture"]["epsilon"] < worst
    assert single[0.5] < single[0.99] <= worst
    assert all(item["notion"] == "bayesian_dp" and not item["is_bound"] for item in typical.values())


@pytest.mark.slow
@pytest.mark.parametrize("method", ["bbp", "dropout"])
def test_the_bayesian_mnist_example_trains_and_predicts(data_folder, tmp_path, method):
    environment = {**os.environ, "TACIT_DATA": str(data_folder)}
    settings = ["--steps", "40", "--draws", "2", "--average", "0.8", "--out", tmp_path / "run"]
    command = [sys.executable, EXAMPLES / "mnist_bayes.py", method, *settings]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert float(done.stdout.split("accuracy ")[1].split("%")[0]) > 18  # bbp 25 to 48; 10 is guessing
    assert "pld epsilon 0." in done.stdout
