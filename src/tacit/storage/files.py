"""Files that are written whole or not at all, and read as they are. Everything durable goes through this room."""

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tacit.errors import InputError, LedgerError, StorageError
from tacit.storage.disk import Bytes, Disk, the_disk


def replace_file(path: Path, data: bytes) -> None:
    """Put ``data`` where ``path`` is, whole or not at all, and wait until it is on disk. Makes the folders it needs."""
    disk = the_disk()
    try:
        make_folders(path.parent)
        replace_by(disk, path, data)
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
        yield from parts_of(disk, file, str(path), offset)
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


def replace_by(disk: Disk, path: Path, data: bytes) -> None:
    temporary = temporary_path(path)
    file = disk.open_new(temporary)
    try:
        try:
            write_all(disk, file, data)
            disk.sync_data(file)
        finally:
            disk.close(file)
        disk.rename(temporary, path)
    except OSError:
        with suppress(OSError):  # a part of a file helps nobody, and a full disk needs its room
            disk.remove(temporary)
        raise


def write_all(disk: Disk, file: int, data: Bytes) -> None:
    view = memoryview(data)
    while view:
        written = disk.write(file, view)
        if written < 1:  # no progress is a failure, or this would never end
            raise OSError(errno.EIO, "nothing was written")
        view = view[written:]


def parts_of(disk: Disk, file: int, name: str, offset: int = 0) -> Iterator[bytes]:
    try:
        while part := disk.read(file, 1 << 20, offset):
            yield part
            offset += len(part)
    except OSError as error:
        raise LedgerError(f"{name} cannot be read: {reason_of(error)}") from error
