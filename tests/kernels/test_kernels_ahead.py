"""Kernels built ahead: every set gives PyTorch's numbers, and the best that the processor can run is taken."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch  # noqa: F401  the threads of its OpenMP are ours

from tacit.kernels import builds, library, state
from tacit.kernels.library import loaded, prospect

ROOT = Path(__file__).parents[2]
needs_compiler = pytest.mark.skipif(builds.find_compiler() is None, reason="no compiler")
runnable = [one for one in builds.SETS if one.needs <= builds.processor_flags()]


@pytest.fixture
def ahead(tmp_path, monkeypatch):
    """A folder of libraries built ahead, and no compiler."""
    monkeypatch.setattr(builds, "AHEAD", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@needs_compiler
@pytest.mark.parametrize("one", runnable, ids=lambda one: one.name)
def test_every_kernel_of_a_set_gives_the_numbers_of_pytorch(one, tmp_path):
    target = tmp_path / "kernels.so"
    quick = ["-O1", *builds.FLAGS[1:], *one.flags, *builds.THREADS]
    builds.build(builds.find_compiler(), quick, builds.SOURCES, target)
    built = __import__("ctypes").CDLL(str(target))
    kernels, absent = state._kernels(built)
    assert kernels
    assert not absent or not builds.IS_X86
    assert [kernel.name for kernel in kernels if kernel.checked(built) is None] == []


@pytest.mark.skipif(library() is None, reason="no compiler")
def test_a_library_built_ahead_needs_no_compiler(ahead):
    assert loaded.__wrapped__().reason == "no C compiler found"
    shutil.copy(library()._name, ahead / f"{runnable[0].name}.so")
    found = loaded.__wrapped__()
    assert (found.library is not None, found.reason) == (True, f"built ahead: {runnable[0].name}")
    assert prospect()[1].startswith(f"built ahead: {runnable[0].name}; each is compared")


def test_one_that_cannot_be_loaded_is_passed_over(ahead):
    for one in builds.SETS:
        (ahead / f"{one.name}.so").write_text("no library")
    assert loaded.__wrapped__().reason == "no C compiler found"


@pytest.mark.skipif(not builds.IS_X86, reason="sets of x86-64")
def test_only_what_the_processor_has_is_taken(ahead, monkeypatch):
    for one in builds.SETS:
        (ahead / f"{one.name}.so").write_text("")
    best, middle, least = builds.SETS
    for has, names in [(best.needs, ["avx512", "avx2", "baseline"]), (middle.needs, ["avx2", "baseline"]),
                       (best.needs - {"vaes"}, ["avx2", "baseline"]), (least.needs - {"aes"}, [])]:  # fmt: skip
        monkeypatch.setattr(builds, "processor_flags", lambda has=has: has)
        assert [name for name, _ in builds.ahead()] == names


@pytest.mark.slow
@needs_compiler
def test_a_wheel_holds_all_and_runs_without_a_compiler(tmp_path):
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    source = shutil.copytree(ROOT, tmp_path / "source", ignore=shutil.ignore_patterns(".*", "build", "*.egg-info"))
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, source], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert {f"tacit/kernels/ahead/{one.name}.so" for one in builds.SETS} <= set(zipfile.ZipFile(wheel).namelist())
    subprocess.run([*pip, "install", "-q", "--no-deps", "--target", tmp_path / "site", wheel], check=True)
    environment = {"PYTHONPATH": str(tmp_path / "site"), "PATH": "", "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}

    def tacit(*words):
        command = [sys.executable, "-c", "import sys, torch; from tacit.commands import main; main()", *words]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert f"built ahead: {runnable[0].name}" in tacit("--version")
    assert "dp_bnn/table-4" in tacit("reproduce", "--list")
    tacit("demo", "--out", "demo")
    command = ["train", "demo/patients.csv", "--schema", "demo/schema.toml", "--epsilon", "1", "--out", "run"]
    assert "epsilon" in tacit(*command)
    assert os.path.isdir(tmp_path / "run")
