"""Compiling, keeping and loading: whatever the folder holds, a process ends with good kernels or none."""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch  # noqa: F401  the threads of its OpenMP are ours

from tacit.kernels import cache, library, state
from tacit.kernels.library import _opened, _openmp_in_use, loaded, prospect

needs_compiler = pytest.mark.skipif(library() is None, reason="no compiler")
SHOW = "import torch; from tacit import kernels; print(kernels.library() and kernels.library()._name); "
SHOW += "print(kernels.status())"


def start_python(code=SHOW, cwd=None, **environment):
    command = [sys.executable, "-W", "error", "-c", code]
    values = {name: value for name, value in {**os.environ, **environment}.items() if value is not None}
    return subprocess.Popen(command, env=values, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lines(process):
    out, error = process.communicate()
    assert process.returncode == 0, error
    assert not error
    return out.splitlines()


def run_python(code=SHOW, **environment):
    return lines(start_python(code, **environment))


@pytest.fixture
def filled(tmp_path):
    """A cache that holds this process's own kernels: to compile them again in every test would take seconds."""
    folder = tmp_path / "tacit" / "kernels"
    folder.mkdir(parents=True, mode=0o700)
    kept = Path(library()._name)
    (folder / kept.name).write_bytes(kept.read_bytes())
    (folder / kept.name).chmod(0o700)
    return folder / kept.name


def reason(monkeypatch, **environment):
    """Why there are no kernels in such an environment."""
    for name, value in environment.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr("tempfile.tempdir", None)
    found = loaded.__wrapped__()
    assert found.library is None
    monkeypatch.setattr(state, "loaded", lambda: found)
    assert state.status() == f"kernels: off ({found.reason})"
    return found.reason


def test_it_can_be_switched_off(monkeypatch):
    for said in ("off", "0", "False"):
        assert reason(monkeypatch, TACIT_KERNELS=said) == f"TACIT_KERNELS={said}"


def test_no_compiler_means_no_kernels(monkeypatch, tmp_path):
    assert reason(monkeypatch, PATH=tmp_path) == "no C compiler found"


def test_a_compiler_that_fails_means_no_kernels(monkeypatch, tmp_path):
    (tmp_path / "cc").symlink_to("/bin/false")
    found = reason(monkeypatch, PATH=tmp_path, XDG_CACHE_HOME=tmp_path, TMPDIR=tmp_path)
    assert found == "compiling failed"


@needs_compiler
def test_nowhere_to_write_means_no_kernels(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / f"tacit-kernels-{os.getuid()}").write_text("")
    assert reason(monkeypatch, XDG_CACHE_HOME=tmp_path / "file", TMPDIR=tmp_path) == "no folder to compile into"


@needs_compiler
def test_what_is_kept_is_loaded(filled):
    name, status = run_python(XDG_CACHE_HOME=str(filled.parents[2]))
    assert name == str(filled)
    assert re.fullmatch(r"kernels: on \(compiled for this processor, as none came built ahead, \d+ threads?\)", status)


def truncated(path):
    os.truncate(path, path.stat().st_size // 2)


def changed(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty(path):
    path.write_bytes(b"")


def link_to_another(path):
    path.rename(path.parent / "elsewhere")
    path.symlink_to(path.parent / "elsewhere")


def writable_by_others(path):
    path.chmod(0o777)


def folder_instead(path):
    path.unlink()
    path.mkdir()


DAMAGES = [truncated, changed, empty, link_to_another, writable_by_others, folder_instead]


@needs_compiler
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_not_whole_and_the_users_own_is_never_found(filled, damage):
    key = filled.name.split("-")[0]
    assert cache.find(filled.parent, key) == filled
    damage(filled)
    assert cache.find(filled.parent, key) is None


@needs_compiler
def test_a_file_of_another_user_is_never_found(filled, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert cache.find(filled.parent, filled.name.split("-")[0]) is None


QUICK = "import sys; L = sys.modules['tacit.kernels.library']; L._FLAGS[0] = '-O0'; "  # -O3 takes seconds
KEY = "print(L._key(L._compiler()[0], [*L._FLAGS, *L._THREADS]))"


@needs_compiler
def test_two_processes_build_a_truncated_file_anew_at_once(tmp_path):
    folder = tmp_path / "tacit" / "kernels"
    folder.mkdir(parents=True, mode=0o700)
    (key,) = run_python("import tacit.kernels; " + QUICK + KEY)
    (folder / f"{key}-{'0' * 64}.so").write_bytes(Path(library()._name).read_bytes()[:5000])
    code = "import tacit.kernels; " + QUICK + SHOW
    for name, status in map(lines, [start_python(code, XDG_CACHE_HOME=str(tmp_path)) for _ in range(2)]):
        assert cache.find(folder, key) == Path(name)
        assert status.startswith("kernels: on (")
    assert list(folder.iterdir()) == [Path(name)]  # nothing else is left lying about


def used_folders(monkeypatch, **environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, str(value)) if value is not None else monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tempfile.tempdir", None)
    return list(cache.folders())


def test_a_folder_that_others_can_write_is_not_used(tmp_path, monkeypatch):
    unsafe = tmp_path / "tacit" / "kernels"
    unsafe.mkdir(parents=True)
    unsafe.chmod(0o777)
    found = used_folders(monkeypatch, XDG_CACHE_HOME=tmp_path, TMPDIR=tmp_path)
    assert found == [tmp_path / f"tacit-kernels-{os.getuid()}"]
    assert found[0].stat().st_mode & 0o777 == 0o700


def test_without_a_home_there_is_a_folder_among_the_temporary_files(tmp_path, monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    found = used_folders(monkeypatch, XDG_CACHE_HOME=None, TMPDIR=tmp_path)
    assert found == [tmp_path / f"tacit-kernels-{os.getuid()}"]


def test_a_cache_that_cannot_be_made_is_passed_over(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    found = used_folders(monkeypatch, XDG_CACHE_HOME=tmp_path / "file", TMPDIR=tmp_path)
    assert found == [tmp_path / f"tacit-kernels-{os.getuid()}"]


def test_temporary_files_that_others_can_rename_are_not_used(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    tmp_path.chmod(0o777)
    assert used_folders(monkeypatch, XDG_CACHE_HOME=tmp_path / "file", TMPDIR=tmp_path) == []
    tmp_path.chmod(0o700)
    (tmp_path / f"tacit-kernels-{os.getuid()}").symlink_to(tmp_path)
    assert used_folders(monkeypatch, XDG_CACHE_HOME=tmp_path / "file", TMPDIR=tmp_path) == []


@needs_compiler
def test_the_version_says_what_there_is_without_pytorch(filled):
    code = "import sys; from tacit.commands.app import run; run(['--version']); assert 'torch' not in sys.modules"
    first, second = run_python(code, XDG_CACHE_HOME=str(filled.parents[2]))
    assert first.startswith("tacit ")
    made = "compiled for this processor, as none came built ahead"
    assert second == f"kernels: on ({made}; each is compared with PyTorch before its first use)"


def test_what_is_not_compiled_yet_is_said_and_nothing_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    there, text = prospect()
    assert text.startswith("compiled at first use") if there else text
    assert not any(tmp_path.iterdir())


class Some:
    def __init__(self, name, calls):
        self.name, self.calls = name, lambda: calls


@needs_compiler
def test_the_status_names_what_is_left_out(monkeypatch):
    monkeypatch.setattr(state, "_kernels", lambda _: ([Some("noise", 1), Some("convolutions", None)], []))
    assert state.status() == "kernels: on, without convolutions (it differs from PyTorch here)"
    monkeypatch.setattr(state, "_kernels", lambda _: ([Some("noise", None), Some("convolutions", None)], []))
    assert state.status() == "kernels: off (they differ from PyTorch here)"


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="nobody tells which libraries are in use")
def test_the_openmp_of_pytorch_is_found_and_shared_with_a_library_that_does_not_see_it(monkeypatch):
    """As on aarch64; tests/test_aarch64.py does it there."""
    (found,) = _openmp_in_use()
    shared, answers = [], iter([OSError("undefined symbol"), "openmp", "kernels"])

    def opened(path, mode=None):
        shared.append((path, mode))
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(ctypes, "CDLL", opened)
    assert _opened(Path("kernels.so")) == "kernels"
    assert [path for path, _ in shared] == ["kernels.so", found, "kernels.so"]
    assert shared[1][1] == ctypes.RTLD_GLOBAL
