"""Ranks end without an abort, whether or not the program destroys its process group (findings: 2 of 4 runs aborted)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys
import numpy as np
import torch.distributed as dist
from tacit.distributed import current_ranks
dist.init_process_group("gloo")
ranks = current_ranks()
for _ in range(50):
    assert ranks.same(np.arange(3) if ranks.first else None).tolist() == [0, 1, 2]
    ranks.together(lambda: None)
if sys.argv[1] == "destroys":
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("how", ["leaves", "destroys"])
@pytest.mark.parametrize("times", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_ranks_end_well(tmp_path, how, times):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script, how]
    for _ in range(times):
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}, timeout=300,
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        assert "terminate called" not in done.stderr
