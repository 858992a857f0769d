"""Compiles the C sources of this folder once per machine, into a folder that only the user can write, and loads them.

Nothing here can fail loudly: no compiler, another processor, nowhere to write, and there is simply no library.
``TACIT_KERNELS=off`` says so by hand. Every kernel is compared with PyTorch before its first use (``checks``).
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tacit.kernels.cache import find, folders, keep

_SOURCES = sorted(Path(__file__).parent.glob("*.c"))
_FLAGS = ["-O3", "-std=gnu11", "-fPIC", "-march=native", "-mprefer-vector-width=512"]
_FLAGS += ["-fno-math-errno", "-fno-trapping-math"]  # without them a square root keeps a loop from becoming vectors
_THREADS = ["-fopenmp"]
_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Loaded:
    """The compiled kernels, or why there are none."""

    library: ctypes.CDLL | None
    threads: bool = False
    reason: str = ""


def library() -> ctypes.CDLL | None:
    """The compiled kernels, or None."""
    return loaded().library


@cache
def loaded() -> Loaded:
    """The threads are PyTorch's own where its OpenMP can be found, which must be loaded before, else there is one."""
    compiler, reason = _compiler()
    if compiler is None:
        return Loaded(None, reason=reason)
    reason = "no folder to compile into"
    for folder in folders():
        for flags in ([*_FLAGS, *_THREADS], _FLAGS):
            try:
                return Loaded(ctypes.CDLL(str(_compiled(folder, compiler, flags))), threads=flags is not _FLAGS)
            except (OSError, subprocess.SubprocessError) as error:
                reason = "compiling failed" if isinstance(error, subprocess.SubprocessError) else "loading failed"
    return Loaded(None, reason=reason)


def prospect() -> tuple[bool, str]:
    """Whether there would be kernels, and what can be said of them without PyTorch and without compiling."""
    compiler, reason = _compiler()
    if compiler is None:
        return False, reason
    try:
        kept = any(find(folder, _key(compiler, [*_FLAGS, *_THREADS])) for folder in folders(make=False))
    except OSError:
        return False, "the compiler cannot be read"
    when = "compiled for this processor" if kept else "compiled at first use"
    return True, f"{when}; each is compared with PyTorch before its first use"


def _compiler() -> tuple[str | None, str]:
    """The C compiler, or why none is wanted."""
    if os.environ.get("TACIT_KERNELS") == "off":
        return None, "TACIT_KERNELS=off"
    if os.name != "posix" or platform.machine() not in ("x86_64", "AMD64"):
        return None, "not made for this system"
    found = shutil.which("cc") or shutil.which("gcc")
    return found, "" if found else "no C compiler found"


def _compiled(folder: Path, compiler: str, flags: list[str]) -> Path:
    key = _key(compiler, flags)
    found = find(folder, key)
    if found is not None:
        return found
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        built = Path(scratch) / "kernels.so"
        build(compiler, flags, _SOURCES, built)
        return keep(folder, key, built)


def build(compiler: str, flags: list[str], sources: list[Path], target: Path) -> None:
    """Compile and link, with the objects beside the target."""
    objects = [str(target.parent / f"{source.stem}.o") for source in sources]
    commands = [[compiler, *flags, "-c", str(s), "-o", o] for s, o in zip(sources, objects, strict=True)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_run, commands))
    # Linked without -fopenmp: its symbols are found in the library that PyTorch has loaded, and so its threads.
    _run([compiler, "-shared", *objects, "-o", str(target), "-lm"])


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)


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
