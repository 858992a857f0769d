"""Where the bytes of a ledger lie. All input and output of the ledger goes through this one small class.

Durability is the point: an append has reached the disk when it returns, and the head is replaced atomically.
"""

import errno
import fcntl
import os
from pathlib import Path

from tacit.errors import LedgerError


class FileStorage:
    """An append-only file, exclusively locked, with its head file beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._head_path = head_path(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._file = os.open(path, flags, 0o600)
        except OSError as error:
            reason = "is a symbolic link" if error.errno == errno.ELOOP else (error.strerror or "cannot be opened")
            raise LedgerError(f"ledger {path} cannot be opened for writing: {reason}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise LedgerError(f"ledger {path} is in use by another writer; wait until that run has ended") from error

    def read(self) -> bytes:
        return _read_all(self._file)

    def append(self, data: bytes) -> None:
        """Write all of ``data`` at the end and wait until it is on disk. A failure here is fatal for the run."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        os.fdatasync(self._file)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._file, size)
        os.fdatasync(self._file)

    def read_head(self) -> bytes | None:
        return read_bytes(self._head_path)

    def write_head(self, data: bytes) -> None:
        """Replace the head atomically. Not synced: a head that is one record behind is still a prefix."""
        temporary = self._head_path.with_name(self._head_path.name + ".new")
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, data)
        finally:
            os.close(file)
        os.replace(temporary, self._head_path)

    def sync_folder(self) -> None:
        """Make the file's name itself durable, once, after creation."""
        sync_folder(self.path.parent)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def replace_file(path: Path, data: bytes) -> None:
    """Put ``data`` where ``path`` is, whole or not at all, and wait until it is on disk."""
    temporary = path.with_name(path.name + ".new")
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        os.fsync(file)
    finally:
        os.close(file)
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def head_path(path: Path) -> Path:
    return path.with_name(path.name + ".head")


def read_bytes(path: Path) -> bytes | None:
    """The content of a file that is not a link, or None where there is none."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerError(f"{path} cannot be read: {error.strerror}") from error
    try:
        return _read_all(file)
    except OSError as error:
        raise LedgerError(f"{path} cannot be read: {error.strerror}") from error
    finally:
        os.close(file)


def _read_all(file: int) -> bytes:
    parts = []
    offset = 0
    while part := os.pread(file, 1 << 20, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)
