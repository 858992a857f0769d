"""Compiles the C sources of this folder once per machine, into a folder that only the user can write, and loads them.

Nothing here can fail loudly: no compiler, another processor, a folder that others may write to, and there is simply no
library. ``TACIT_KERNELS=off`` says so by hand. Who uses a kernel compares it with PyTorch before its first use.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from functools import cache
from pathlib import Path

_SOURCES = sorted(Path(__file__).parent.glob("*.c"))
_FLAGS = ["-O3", "-std=gnu11", "-fPIC", "-march=native", "-mprefer-vector-width=512"]
_FLAGS += ["-fno-math-errno", "-fno-trapping-math"]  # without them a square root keeps a loop from becoming vectors
_SECONDS = 120


@cache
def library() -> ctypes.CDLL | None:
    """The compiled kernels, or None. The threads are PyTorch's own where its OpenMP can be found, else there is one."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    off = os.environ.get("TACIT_KERNELS") == "off" or os.name != "posix"
    if off or compiler is None or platform.machine() not in ("x86_64", "AMD64"):
        return None
    for threads in (["-fopenmp"], []):
        try:
            return ctypes.CDLL(str(_compiled(compiler, [*_FLAGS, *threads])))
        except (OSError, subprocess.SubprocessError):
            continue
    return None


def _compiled(compiler: str, flags: list[str]) -> Path:
    folder = _private_folder()
    target = folder / f"{_key(compiler, flags)}.so"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            objects = [f"{scratch}/{source.stem}.o" for source in _SOURCES]
            for source, compiled in zip(_SOURCES, objects, strict=True):
                _run(compiler, *flags, "-c", str(source), "-o", compiled)
            # Linked without -fopenmp: its symbols are found in the library that PyTorch has loaded, and so its threads.
            _run(compiler, "-shared", *objects, "-o", f"{scratch}/kernels.so", "-lm")
            os.replace(f"{scratch}/kernels.so", target)
    return target


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)


def _private_folder() -> Path:
    """What is loaded is run: nobody else may be able to put a file there."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tacit" / "kernels"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{folder} can be written by others")
    return folder


def _key(compiler: str, flags: list[str]) -> str:
    """Everything that the result depends on: sources, flags, compiler and processor (machines may share a home)."""
    built_by = os.stat(os.path.realpath(compiler))
    facts = [*flags, os.path.realpath(compiler), str(built_by.st_size), str(built_by.st_mtime_ns), _processor()]
    digest = hashlib.sha256("\n".join(facts).encode())
    for source in _SOURCES:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:32]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() + platform.version()
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "model", "cpu family", "vendor_id"))}))
