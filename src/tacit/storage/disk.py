"""What a ledger and a checkpoint ask of the operating system: the few calls on which durability rests.

Everything durable goes through this interface, so that a double can stand in for it, note every call, and show what
the disk may hold after a crash at any point (failure-modes, "Crash testing").
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Protocol

from tacit.storage import locks

Bytes = bytes | memoryview


class Disk(Protocol):
    """Files are numbers, as in POSIX. Every method raises OSError when the disk refuses."""

    def make_folder(self, path: Path) -> bool:
        """Make one folder inside an existing one; False if it is there already."""

    def open_to_append(self, path: Path, *, create: bool) -> int:
        """Open for reading and appending; made if missing and asked for, readable by the owner alone; no links."""

    def open_new(self, path: Path) -> int:
        """Open an empty file for writing, in place of what was there; links are refused."""

    def open_to_read(self, path: Path) -> int:
        """Open what is there; links, and what is no ordinary file, are refused."""

    def lock(self, file: int, path: Path) -> None:
        """Take the file for this process alone, or raise BlockingIOError at once, which says who has it."""

    def read(self, file: int, count: int, offset: int) -> bytes:
        """Up to ``count`` bytes from ``offset``; nothing at the end."""

    def write(self, file: int, data: Bytes) -> int:
        """Write some of ``data`` and say how much."""

    def truncate(self, file: int, size: int) -> None:
        """Cut the file off."""

    def sync_data(self, file: int) -> None:
        """Wait until content and length are on disk."""

    def close(self, file: int) -> None:
        """Give the file, and a lock on it, back."""

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name at once, in place of what had it."""

    def remove(self, path: Path) -> None:
        """Take a name away."""

    def sync_folder(self, path: Path) -> None:
        """Wait until the names in a folder are on disk."""


class OperatingSystem:
    """The real disk."""

    def make_folder(self, path: Path) -> bool:
        try:
            path.mkdir()
        except FileExistsError:
            if not path.is_dir():
                raise
            return False
        return True

    def open_to_append(self, path: Path, *, create: bool) -> int:
        return _ordinary(os.open(path, os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0) | _SAFELY, 0o600))

    def open_new(self, path: Path) -> int:
        return _ordinary(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _SAFELY, 0o600))

    def open_to_read(self, path: Path) -> int:
        return _ordinary(os.open(path, os.O_RDONLY | _SAFELY))

    def lock(self, file: int, path: Path) -> None:
        locks.acquire(file, path)

    def read(self, file: int, count: int, offset: int) -> bytes:
        return os.pread(file, count, offset)

    def write(self, file: int, data: Bytes) -> int:
        return os.write(file, data)

    def truncate(self, file: int, size: int) -> None:
        os.ftruncate(file, size)

    def sync_data(self, file: int) -> None:
        os.fdatasync(file)

    def close(self, file: int) -> None:
        locks.release(file)
        os.close(file)

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        path.unlink()

    def sync_folder(self, path: Path) -> None:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


_SAFELY = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # without the last, opening a pipe waits for its other end


def _ordinary(file: int) -> int:
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise OSError(errno.EINVAL, "not an ordinary file")


_disk: ContextVar[Disk] = ContextVar("disk")


def the_disk() -> Disk:
    """The disk in use: the real one, except inside :func:`using`."""
    return _disk.get(_REAL)


_REAL = OperatingSystem()


@contextmanager
def using(disk: Disk) -> Iterator[None]:
    """For tests of durability: ledgers, heads, checkpoints and evidence go to this disk."""
    token = _disk.set(disk)
    try:
        yield
    finally:
        _disk.reset(token)
