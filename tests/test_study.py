"""The page about a study of epsilon 1 is a script that runs, and its ledger adds up to 1.000."""

import json
import re
import shlex
from pathlib import Path

import numpy as np

from tacit.accountants.renyi.filter import filter_of
from tacit.ledger import read_ledger

PAGE = Path(__file__).parent.parent / "docs" / "study.md"
SCHEMA = """
records = 5000
[[columns]]
name = "age"
kind = "number"
low = 18
high = 90
[[columns]]
name = "job"
kind = "category"
levels = ["cook", "clerk", "nurse"]
[[columns]]
name = "ill"
kind = "category"
levels = ["no", "yes"]
"""


def test_the_study_costs_exactly_its_total(tacit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chance = np.random.default_rng(0)
    age, job = chance.integers(18, 91, 5000), chance.choice(["cook", "clerk", "nurse"], 5000)
    ill = chance.random(5000) < 1 / (1 + np.exp(4 - age / 15))
    rows = [f"{a},{j},{'yes' if i else 'no'}" for a, j, i in zip(age, job, ill, strict=True)]
    Path("patients.csv").write_text("\n".join(["age,job,ill", *rows]))
    Path("schema.toml").write_text(SCHEMA)
    [script] = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.S)
    commands = [shlex.split(line)[1:] for line in script.replace("\\\n", " ").splitlines()]
    assert [command[0] for command in commands] == ["ask", "ask", "train", "account"]
    for command in commands:
        code, _, err = tacit(*command)
        assert code == 0, err
    found = json.loads(tacit("account", "study.jsonl", "--json")[1])["guarantees"]
    assert [f"{one['epsilon']:.3f}" for one in found if "epsilon" in one] == ["1.000"]
    ledger = read_ledger("study.jsonl")
    opened = filter_of(ledger)
    assert 0.995 < opened.spent(ledger) / opened.allowed <= 1
    code, _, err = tacit(*commands[1][:-1], "third")
    assert (code, "exceed the budget" in err) == (2, True)
