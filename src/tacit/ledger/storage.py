"""Where the bytes of a ledger lie. All input and output of ledgers, heads and checkpoints goes through this file.

Durability is the point: an append has reached the disk when it returns, and a file is replaced whole or not at all.
"""

import errno
import os
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tacit.errors import InputError, LedgerError, StorageError
from tacit.ledger.disk import Bytes, Disk, the_disk


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
        return _parts(self._disk, self._file, f"ledger {self.path}", offset)

    def append(self, data: bytes) -> None:
        """Write all of ``data`` at the end and wait until it is on disk."""
        self.refuse_if_broken()
        try:
            _write_all(self._disk, self._file, data)
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
            _replace(self._disk, self._head_path, data)
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


def replace_file(path: Path, data: bytes) -> None:
    """Put ``data`` where ``path`` is, whole or not at all, and wait until it is on disk. Makes the folders it needs."""
    disk = the_disk()
    try:
        make_folders(path.parent)
        _replace(disk, path, data)
        disk.sync_folder(path.parent)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {reason_of(error)}; what was there before is kept") from error


def write_new_file(path: Path, data: bytes) -> None:
    """Make a file that a user named: whole or not at all, and never in place of anything that is there."""
    try:
        with path.open("xb") as file:  # a link counts as there, wherever it leads
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            except BaseException:
                path.unlink()
                raise
    except FileExistsError as error:
        raise InputError(f"{path} is there already and is not overwritten; choose another name") from error
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {reason_of(error)}; nothing was left behind") from error


def make_folders(path: Path) -> None:
    """Make a folder and those above it, each with a name that survives a crash before anything is put into it.

    The innermost one that is there already is synced too: whoever made it may have been killed before doing so.
    """
    disk = the_disk()
    try:
        made = disk.make_folder(path)
        there = path.parent if made else path
        with suppress(PermissionError):  # in a folder of others, where we only may pass
            disk.sync_folder(there.parent)
    except FileNotFoundError:
        make_folders(path.parent)
        made = disk.make_folder(path)
    if made:
        disk.sync_folder(path.parent)


def head_path(path: Path) -> Path:
    return path.with_name(path.name + ".head")


def temporary_path(path: Path) -> Path:
    """Where what replaces ``path`` is written first; a process that is killed then leaves it behind."""
    return path.with_name(path.name + ".new")


def read_bytes(path: Path, offset: int = 0) -> bytes | None:
    """The content of an ordinary file that is not a link, or None where there is none."""
    parts = read_parts(path, offset)
    return None if parts is None else b"".join(parts)


def read_parts(path: Path, offset: int = 0) -> Iterator[bytes] | None:
    """The same, piece by piece: a ledger may be long."""
    disk = the_disk()
    try:
        file = disk.open_to_read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        reason = "it is a symbolic link" if error.errno == errno.ELOOP else reason_of(error)
        raise LedgerError(f"{path} cannot be read: {reason}") from error
    return _parts_and_close(disk, file, path, offset)


def _parts_and_close(disk: Disk, file: int, path: Path, offset: int) -> Iterator[bytes]:
    try:
        yield from _parts(disk, file, str(path), offset)
    finally:
        disk.close(file)


def is_there(path: Path) -> bool:
    """Whether the name stands for anything; what cannot be read is there too, and reading it says why."""
    disk = the_disk()
    try:
        disk.close(disk.open_to_read(path))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def reason_of(error: OSError) -> str:
    return error.strerror or str(error) or "the disk refuses"


def _replace(disk: Disk, path: Path, data: bytes) -> None:
    temporary = temporary_path(path)
    file = disk.open_new(temporary)
    try:
        try:
            _write_all(disk, file, data)
            disk.sync_data(file)
        finally:
            disk.close(file)
        disk.rename(temporary, path)
    except OSError:
        with suppress(OSError):  # a part of a file helps nobody, and a full disk needs its room
            disk.remove(temporary)
        raise


def _write_all(disk: Disk, file: int, data: Bytes) -> None:
    view = memoryview(data)
    while view:
        written = disk.write(file, view)
        if written < 1:  # no progress is a failure, or this would never end
            raise OSError(errno.EIO, "nothing was written")
        view = view[written:]


def _parts(disk: Disk, file: int, name: str, offset: int = 0) -> Iterator[bytes]:
    try:
        while part := disk.read(file, 1 << 20, offset):
            yield part
            offset += len(part)
    except OSError as error:
        raise LedgerError(f"{name} cannot be read: {reason_of(error)}") from error
