"""State outside the process, and in what is logged: files, other programs, handlers.

As in :mod:`reliability.boundary.later`, losses leave a mark in one step, the loop finds it, and the next one counts it.
"""

import logging
import logging.handlers
import subprocess
import tempfile
import weakref
from pathlib import Path

import numpy as np
import torch

from reliability.boundary.attack import attack
from reliability.boundary.later import _in


def _file() -> Path:
    return Path(tempfile.mkdtemp()) / "seen"


def _found(path: Path) -> bool:
    found = path.exists() and path.stat().st_size > 0
    path.unlink(missing_ok=True)
    return found


@attack()
def a_file_that_is_written():
    """open("seen", "w").write(...)."""
    path = _file()
    return _in(lambda: path.write_text("large"), lambda: _found(path))


@attack()
def a_file_that_is_open():
    """log = open("seen", "a"), opened beforehand: log.write(...)."""
    path = _file()
    file = path.open("a")

    def write() -> None:
        file.write("large")
        file.flush()

    weakref.finalize(write, file.close)  # with the attack, so that no other test is told of an open file
    return _in(write, lambda: path.stat().st_size > 0)


@attack()
def a_file_that_another_program_writes():
    """subprocess.run(["touch", "seen"])."""
    path = _file()
    return _in(lambda: subprocess.run(["/usr/bin/touch", str(path)], check=True), path.exists)


@attack()
def a_tensor_that_is_saved():
    """torch.save(..., "seen.pt"), by PyTorch's own writer."""
    path = _file()
    return _in(lambda: torch.save(torch.ones(1), path), lambda: _found(path))


@attack()
def an_array_that_is_saved():
    """numpy.save("seen.npy", ...)."""
    path = _file()
    return _in(lambda: np.save(path.open("wb"), np.ones(1)), lambda: _found(path))


class _Collecting(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@attack()
def a_handler_of_log_lines():
    """class Collecting(logging.Handler): emit appends to a list."""
    log, handler = logging.Logger("study"), _Collecting()
    log.addHandler(handler)
    return _in(lambda: log.warning("large"), lambda: handler.lines)


@attack()
def a_buffer_of_log_lines():
    """logging.handlers.MemoryHandler, behind the root logger: logging.warning(...)."""
    handler = logging.handlers.MemoryHandler(100)
    logging.root.addHandler(handler)

    def seen() -> bool:
        found = bool(handler.buffer)
        handler.buffer.clear()
        return found

    return _in(lambda: logging.warning("large"), seen)


@attack()
def a_file_of_log_lines():
    """logging.FileHandler, opened beforehand: log.warning(...)."""
    path = _file()
    log = logging.Logger("study")
    handler = logging.FileHandler(path)
    log.addHandler(handler)
    weakref.finalize(log, handler.close)
    return _in(lambda: log.warning("large"), lambda: path.stat().st_size > 0)
