"""A file that only grows, with its head beside it. An append has reached the disk when it returns."""

import errno
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

from tacit.errors import LedgerError
from tacit.storage.disk import Disk, the_disk
from tacit.storage.files import make_folders, parts_of, read_bytes, reason_of, replace_by, write_all


class FileStorage:
    """An append-only file, exclusively locked, with its head file beside it.

    A failed append or sync is fatal: what the disk holds is then unknown, because a system may forget what it could not
    write and call the next sync a success. So the storage is *broken* from then on, and only opening the ledger again,
    which reads what is really there, goes on from it.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = path
        self.broken = False
        self._process = os.getpid()
        self._head_path = head_path(path)
        self._disk = the_disk()
        try:
            if create:
                make_folders(path.parent)
            self._file = self._disk.open_to_append(path, create=create)
        except FileNotFoundError as error:
            raise LedgerError(f"no ledger at {path}, and what goes on from one never makes it anew") from error
        except OSError as error:
            reason = "it is a symbolic link" if error.errno == errno.ELOOP else reason_of(error)
            raise LedgerError(f"ledger {path} cannot be opened for writing: {reason}") from error
        self._close = weakref.finalize(self, _close, self._disk, self._file, self._process)
        try:
            self._disk.lock(self._file, path)
            self._disk.sync_folder(path.parent)  # or a crash could leave a head without its ledger
        except BlockingIOError as error:
            self.close()
            raise LedgerError(f"ledger {path} is in use by {reason_of(error)}") from error
        except OSError as error:
            self.close()
            raise LedgerError(f"ledger {path} cannot be opened for writing: {reason_of(error)}") from error

    def read(self, offset: int = 0) -> Iterator[bytes]:
        return parts_of(self._disk, self._file, f"ledger {self.path}", offset)

    def append(self, data: bytes) -> None:
        """Write all of ``data`` at the end and wait until it is on disk."""
        self.refuse_if_broken()
        try:
            write_all(self._disk, self._file, data)
            self._disk.sync_data(self._file)
        except BaseException as error:  # an interrupt leaves a part of a line as well
            raise self._break(error) from error

    def truncate(self, size: int) -> None:
        self.refuse_if_broken()
        try:
            self._disk.truncate(self._file, size)
            self._disk.sync_data(self._file)
        except BaseException as error:
            raise self._break(error) from error

    def read_head(self) -> bytes | None:
        return read_bytes(self._head_path)

    def write_head(self, data: bytes, *, durably: bool = False) -> None:
        """Replace the head atomically. Its content is on disk before its name is, so a crash never leaves half a head.

        The name need not be: a head that is some records behind is still a prefix. ``durably`` waits for it as well.
        """
        self.refuse_if_broken()
        try:
            replace_by(self._disk, self._head_path, data)
            if durably:
                self._disk.sync_folder(self.path.parent)
        except BaseException as error:
            raise self._break(error) from error

    def close(self) -> None:
        """Give the lock back; what is forgotten without it gives it back as well, when Python collects it."""
        self._close()
        self._file = -1

    def refuse_if_broken(self) -> None:
        """Refuse another process than the one that opened the ledger, and anything after a write that failed."""
        if os.getpid() != self._process:  # after a fork both would go on from one head, without the other's charges
            raise LedgerError(f"ledger {self.path} was opened by another process; open it again in the one that writes")
        if self.broken:
            raise LedgerError(f"ledger {self.path} could not be written before; open it again to go on")

    def _break(self, error: BaseException) -> BaseException:
        self.broken = True
        if not isinstance(error, OSError):
            return error
        return LedgerError(
            f"ledger {self.path} cannot be written: {reason_of(error)}; the run ends here, make room and go on from "
            "its checkpoint"
        )


def _close(disk: Disk, file: int, process: int) -> None:
    if os.getpid() == process:  # a forked process has closed its copy, and another file may have the number now
        disk.close(file)


def head_path(path: Path) -> Path:
    return path.with_name(path.name + ".head")
