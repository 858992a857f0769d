"""Ranks end without an abort, whether or not the program destroys its process group (reliability/f25_exits.py)."""

import pytest

from reliability.f25_exits import SCRIPT, WAYS, fault


@pytest.mark.parametrize("how", WAYS)
def test_ranks_end_well(tmp_path, how):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    assert fault(script, how, tmp_path / "job") == ""


def test_a_job_that_fails_is_seen(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import os; os.abort()")
    assert "exit 1" in fault(script, "leaves", tmp_path / "job")
