"""Who writes: a lock on a file or a folder that ends with the process that took it, and a note of whose it is.

The lock is flock's, of an open file. A POSIX lock (lockf) is a process's own and would not pass to forked helpers, but
it is lost as soon as the process closes any descriptor of the file, and whoever writes a ledger also reads it; nor
would it keep two objects of one process apart. An open-file-description lock passes to helpers like flock's and gains
nothing over it. So helpers are the one thing left to see to: a child closes its copy of the descriptor at the fork, and
a loader that outlives a killed run holds nothing. Programs that are started, not forked, never get it (CLOEXEC).

The note lies beside the file, and inside a folder. It is for people: whether something is locked, the lock alone says.
"""

import errno
import fcntl
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

_held: dict[int, Path] = {}  # the open files of this process that are locked, with their notes


def acquire(file: int, path: Path) -> None:
    """Lock ``file``, which was opened at ``path``, or raise BlockingIOError at once, which says who has it."""
    note = note_path(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BlockingIOError(error.errno, owner(note)) from error
    if not _is_still_at(path, file):  # or two could hold "the" lock, one of them on what is gone
        raise OSError(errno.ESTALE, "it was removed or replaced while it was being opened")
    _held[file] = note
    with suppress(OSError):  # a full disk is no reason not to lock
        _write(note)


def release(file: int) -> None:
    """To be called before a locked file is closed, which ends the lock: the note goes while it is still ours."""
    note = _held.pop(file, None)
    if note is not None:
        note.unlink(missing_ok=True)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """A folder for this process alone; BlockingIOError says who has it."""
    file, process = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), os.getpid()
    try:
        acquire(file, folder)
        yield
    finally:
        if os.getpid() == process:
            release(file)
            os.close(file)


def note_path(path: Path) -> Path:
    return path / "run.lock" if path.is_dir() else path.with_name(path.name + ".lock")


def owner(note: Path) -> str:
    """Who has it, in words that follow "in use by"."""
    try:
        facts = json.loads(note.read_text(encoding="utf-8"))
        process, host, since = int(facts["process"]), str(facts["host"]), str(facts["since"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another writer; wait until that run has ended"  # which has not come to its note yet
    if (process, host) == (os.getpid(), platform.node()):
        return (
            f"this very process, since {since}: call close() on what holds it (a PrivateGradient or a LedgerFile, "
            "perhaps of a cell that was run before), or restart the kernel"
        )
    return f"another writer, process {process} on {host} since {since}; wait until that run has ended"


def _write(note: Path) -> None:
    facts = {"process": os.getpid(), "host": platform.node(), "since": f"{datetime.now().astimezone():%F %T%z}"}
    file = os.open(note, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, json.dumps(facts).encode())
    finally:
        os.close(file)


def _is_still_at(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(file))
    except FileNotFoundError:
        return False


def _in_a_forked_process() -> None:
    for file in _held:
        os.close(file)
    _held.clear()


os.register_at_fork(after_in_child=_in_a_forked_process)
