"""Finds the kernels: built ahead in a wheel, or else compiled once per machine into a folder only the user can write.

Nothing here can fail loudly: no compiler, another processor, nowhere to write, and there is simply no library.
``TACIT_KERNELS=off`` says so by hand. Every kernel is compared with PyTorch before its first use (``comparisons``).
"""

import ctypes
import hashlib
import os
import platform
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tacit.kernels.builds import FLAGS, NATIVE, SETS, SOURCES, THREADS, ahead, build, find_compiler
from tacit.kernels.cache import find, folders, keep

_SOURCES, _THREADS = SOURCES, THREADS
_FLAGS = [*FLAGS, *NATIVE]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The kernels and where they are from, or why there are none."""

    library: ctypes.CDLL | None
    threads: bool = False
    reason: str = ""


def library() -> ctypes.CDLL | None:
    """The compiled kernels, or None."""
    return loaded().library


@cache
def loaded() -> Loaded:
    """The threads are PyTorch's own where its OpenMP can be found, which must be loaded before, else there is one."""
    if said_off := _said_off():
        return Loaded(None, reason=said_off)
    for name, path in ahead():
        try:
            return Loaded(_opened(path), threads=True, reason=_AHEAD.format(name))
        except OSError:  # no OpenMP, or not a library
            continue
    return _loaded_by_compiling()


def _opened(path: Path) -> ctypes.CDLL:
    """A library whose threads are those of PyTorch's OpenMP, which PyTorch for aarch64 keeps to itself."""
    try:
        return ctypes.CDLL(str(path))
    except OSError:
        for openmp in _openmp_in_use():
            ctypes.CDLL(openmp, mode=ctypes.RTLD_GLOBAL)  # it is there already: now others see its symbols
        return ctypes.CDLL(str(path))


def _openmp_in_use() -> list[str]:
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    found = sorted({line.split()[-1] for line in lines if "libgomp" in line.rpartition("/")[2]})
    return [path for path in found if "torch" in path] or found  # scikit-learn brings one of its own


def _loaded_by_compiling() -> Loaded:
    compiler, reason = _compiler()
    if compiler is None:
        return Loaded(None, reason=reason)
    reason = "no folder to compile into"
    for folder in folders():
        for flags in ([*_FLAGS, *_THREADS], _FLAGS):
            try:
                found = _opened(_compiled(folder, compiler, flags))
                return Loaded(found, threads=flags is not _FLAGS, reason=_COMPILED)
            except (OSError, subprocess.SubprocessError) as error:
                reason = "compiling failed" if isinstance(error, subprocess.SubprocessError) else "loading failed"
    return Loaded(None, reason=reason)


def prospect() -> tuple[bool, str]:
    """Whether there would be kernels, and what can be said of them without PyTorch and without compiling."""
    compiler, reason = _compiler()
    built = [] if _said_off() else ahead()
    if built:
        return True, f"{_AHEAD.format(built[0][0])}; {_COMPARED}"
    if compiler is None:
        return False, reason
    try:
        kept = any(find(folder, _key(compiler, [*_FLAGS, *_THREADS])) for folder in folders(make=False))
    except OSError:
        return False, "the compiler cannot be read"
    return True, f"{_COMPILED if kept else _AT_FIRST_USE}; {_COMPARED}"


_AHEAD = "built ahead: {}"
_COMPILED = "compiled for this processor, as none came built ahead"
_AT_FIRST_USE = "compiled at first use, as none came built ahead"
_COMPARED = "each is compared with PyTorch before its first use"


def _said_off() -> str:
    """What somebody wrote to have no kernels; nothing if nobody did."""
    said = os.environ.get("TACIT_KERNELS", "")
    return f"TACIT_KERNELS={said}" if said.lower() in ("off", "0", "no", "false") else ""


def _compiler() -> tuple[str | None, str]:
    """The C compiler, or why none is wanted."""
    if said_off := _said_off():
        return None, said_off
    if os.name != "posix" or not SETS:
        return None, "not made for this system"
    found = find_compiler()
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
