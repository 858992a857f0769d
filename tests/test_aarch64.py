"""The kernels of a wheel for aarch64, emulated: they load, and give the numbers of PyTorch for aarch64."""

import os
from pathlib import Path

import pytest

from tools import aarch64

FOLDER = os.environ.get("TACIT_AARCH64", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(aarch64.missing()), reason=aarch64.missing()),
    pytest.mark.skipif(not FOLDER, reason="TACIT_AARCH64 names no folder for what tools/aarch64.py fetches"),
]


def test_portable_kernels_are_used_and_tested_on_aarch64():
    folder = Path(FOLDER).resolve()
    aarch64.prepare(folder)
    aarch64.build(folder)
    said = aarch64.run(folder, "-c", "import torch; from tacit.kernels.state import status; print(status())")
    assert "kernels: on (built ahead: portable, 2 threads" in said.stdout, said
    options = ("-q", "-p", "no:cacheprovider", "--noconftest", "-c", os.devnull)
    done = aarch64.run(folder, "-m", "pytest", *options, *aarch64.TESTS)
    assert done.returncode == 0, done.stdout[-3000:]
