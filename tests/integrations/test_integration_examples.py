"""The examples of the integrations run as they are written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, *words):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, EXAMPLES / name, *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_a_language_model_learns_a_grammar_with_lora(tmp_path):
    pytest.importorskip("peft", reason="needs the extra huggingface")
    said = run("huggingface_lora.py", "--steps", "20", "--epsilon", "8", "--out", tmp_path / "run")
    before, after = said.split("sentences ")[1].split(" before, ")[0], said.split("before, ")[1].split(" after")[0]
    assert float(after) < float(before) - 0.3
    assert "epsilon 8.000" in said or "epsilon 7.99" in said


def test_lightning_tells_moons_apart(tmp_path):
    pytest.importorskip("lightning", reason="needs the extra lightning")
    said = run("lightning_table.py", "--out", tmp_path / "run")
    assert float(said.split("records ")[1].split(" %")[0]) > 85
    assert "epsilon 1.000" in said or "epsilon 0.99" in said


@pytest.mark.filterwarnings("ignore")  # of the libraries
def test_clients_learn_without_sending_records(tmp_path):
    pytest.importorskip("flwr", reason="needs the extra flower")
    pytest.importorskip("ray", reason="needs flwr[simulation]")
    said = run("flower_clients.py", "--rounds", "6", "--clients", "60", "--epsilon", "30", "--out", tmp_path / "run")
    assert float(said.split("records ")[1].split(" %")[0]) > 85  # about 96; always "benign" is 77
    assert "epsilon 30.000" in said or "epsilon 29.99" in said
