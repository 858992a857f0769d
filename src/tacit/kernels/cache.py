"""Where compiled kernels are kept: a folder that only the user can write, files whose names hold their own digest.

What is loaded is run, and a file that has lost its end stops the process with a signal. So a file is loaded only if it
belongs to the user, nobody else can write it, and its bytes are those that were written: anything else is built anew.
"""

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path


def folders(make: bool = True) -> Iterator[Path]:
    """Private folders that can be used: the user's cache, then one of the user's own among the temporary files."""
    for name in (_in_cache, _in_temporary):
        with contextlib.suppress(OSError, RuntimeError):  # no home, no right to write, no user of this number
            folder = name()
            if make:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_private(folder.stat()) and os.access(folder, os.W_OK | os.X_OK):
                yield folder


def _in_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tacit" / "kernels"


def _in_temporary() -> Path:
    """Nobody may be able to put another folder in its place."""
    parent = Path(tempfile.gettempdir())
    mode = parent.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise PermissionError(f"{parent} lets others rename what is in it")
    folder = parent / f"tacit-kernels-{os.getuid()}"
    if folder.is_symlink():
        raise PermissionError(f"{folder} is a link")
    return folder


def _is_private(found: os.stat_result) -> bool:
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def find(folder: Path, key: str) -> Path | None:
    """The file kept under this key, if it is whole and the user's own; any other of this key is removed."""
    for path in sorted(folder.glob(f"{key}-*.so")):
        if path.name == _name(key, _digest(path)):
            return path
        with contextlib.suppress(OSError):
            path.unlink()
    return None


def keep(folder: Path, key: str, built: Path) -> Path:
    """Move a file that was built in this folder to its name, whole or not at all, even if the power fails."""
    _sync(built)
    digest = _digest(built)
    if digest is None:
        raise OSError(f"{built} is not a file of our own")
    target = folder / _name(key, digest)
    os.replace(built, target)
    _sync(folder)
    return target


def _name(key: str, digest: str | None) -> str:
    return f"{key}-{digest}.so"


def _digest(path: Path) -> str | None:
    """Of the bytes of a regular file that is the user's own; None for anything else, such as a link."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or not _is_private(found):
                return None
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
