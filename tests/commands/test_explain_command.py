"""``tacit`` alone teaches, ``tacit explain`` says what a number means, shells complete."""

import os
import subprocess
import sys

import pytest

from tacit.accountants import attack_probability
from tacit.reports.text import percent_up


def test_tacit_alone_teaches(tacit):
    code, out, _ = tacit()
    assert code == 0
    for words in ("tacit demo", "tacit train", "tacit explain epsilon 1", "tacit --help"):
        assert words in out


def test_epsilon_in_words(tacit):
    code, out, _ = tacit("explain", "epsilon", "1")
    assert code == 0
    assert "at most 2.72 times as likely" in out
    assert f"{percent_up(attack_probability(1.0, 1e-5))} whatever made it" in out


def test_delta_in_words(tacit):
    code, out, _ = tacit("explain", "delta", "1e-5")
    assert code == 0
    assert "fewer than 100,000" in out


@pytest.mark.parametrize("words", [("epsilon", "0"), ("epsilon", "nan"), ("epsilon", "60"), ("delta", "2"),
                                   ("epsilon", "1", "--delta", "0"), ("beta", "1")])  # fmt: skip
def test_what_means_nothing_is_one_line(tacit, words):
    code, out, err = tacit("explain", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_a_shell_completes_commands():
    values = {**os.environ, "_TACIT_COMPLETE": "complete_bash", "COMP_WORDS": "tacit ex", "COMP_CWORD": "1"}
    command = [sys.executable, "-m", "tacit"]
    assert subprocess.run(command, env=values, capture_output=True, text=True).stdout.split() == ["explain"]
