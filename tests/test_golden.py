"""The golden numbers, one test per case, so that a failure names itself."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import golden

FILE = Path(__file__).parent / "golden.json"
CASES = [case for case in json.loads(FILE.read_text())["cases"] if case["kind"] in golden.EVALUATORS]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_golden(case):
    assert golden.failure(case) is None


def test_a_wrong_number_fails(tmp_path, capsys):
    case = {**CASES[0], "output": 2 * CASES[0]["output"]}
    (tmp_path / "wrong.json").write_text(json.dumps({"cases": [case, {**case, "kind": "unheard_of"}]}))
    assert golden.main(str(tmp_path / "wrong.json")) == 1
    assert "not built" in capsys.readouterr().out
