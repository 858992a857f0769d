"""What holds around a user's code that sees records: nothing leaves the process, and it runs as it is written.

Losses may read files, but not write them, talk to other machines, start processes or search the memory: data would
leave without noise, or others be found. Python reports such calls to hooks before it makes them (PEP 578); ours refuses
them in the thread in which records are computed, for as long as they are. A hook cannot be taken away again, so there
is one for all, which asks whether that is now.
"""

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

import torch

from tacit.errors import LossesError

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_REFUSED = frozenset({
    "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.utime", "os.chmod",
    "os.chdir", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.startfile", "subprocess.Popen",
    "os.chown", "os.setxattr", "os.removexattr", "os.lockf", "os.kill", "os.killpg", "os.spawn", "fcntl.flock",
    "fcntl.lockf", "resource.setrlimit", "resource.prlimit", "syslog.openlog", "syslog.syslog", "signal.pthread_kill",
    "socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "gc.get_objects", "gc.get_referrers",
})  # fmt: skip
_COMPILERS = ("importlib.", "triton.", "torch._inductor.", "torch.utils.cpp_extension")


class _Here(threading.local):
    """How many blocks of this thread are open."""

    blocks = 0


class _Collecting:
    """The collection of garbage waits until no block is open: what is finalised may have to write, as ledgers do."""

    def __init__(self) -> None:
        self._lock, self._blocks, self._was_on = threading.Lock(), 0, False

    def pause(self) -> None:
        with self._lock:
            if self._blocks == 0:
                self._was_on = gc.isenabled()
                gc.disable()
            self._blocks += 1

    def go_on(self) -> None:
        with self._lock:
            self._blocks -= 1
            if self._blocks == 0 and self._was_on:
                gc.enable()


_here = _Here()
_collecting = _Collecting()
_hooked = threading.Event()


@contextmanager
def nothing_leaves() -> Iterator[None]:
    """Refuse, in this thread, whatever would carry records out of the process.

    Example:
        >>> try:
        ...     with nothing_leaves():
        ...         open("seen.txt", "w")
        ... except LossesError as error:
        ...     print(str(error)[:34])
        the losses write a file (seen.txt)
    """
    if not _hooked.is_set():
        _hooked.set()
        sys.addaudithook(_refuse)
        _report_what_torch_saves()
    _here.blocks += 1
    _collecting.pause()
    try:
        yield
    finally:
        _collecting.go_on()
        _here.blocks -= 1


def _refuse(event: str, given: tuple[Any, ...]) -> None:
    if not _here.blocks:
        return
    what = ""
    if event == "open" and _is_written(*given[:3]):
        what = f"write a file ({given[0]})"
    elif event == "sqlite3.connect" and given[0] not in (":memory:", b":memory:"):
        what = f"open a data base ({given[0]})"
    elif event in _REFUSED:
        what = f"call {event}"
    if what and not _is_for_a_compiler():
        raise LossesError(
            f"the losses {what}: what sees private records may leave nothing behind, and look at no others; do it in "
            "the loop, with what was released"
        )


def _report_what_torch_saves() -> None:
    """PyTorch writes files by code of its own, which reports nothing."""
    write: Any = torch.serialization._open_zipfile_writer

    def reported(name_or_buffer: Any) -> Any:
        if isinstance(name_or_buffer, str | os.PathLike):
            sys.audit("open", name_or_buffer, "wb", os.O_WRONLY)
        return write(name_or_buffer)

    torch.serialization._open_zipfile_writer = reported


def _is_written(path: Any, mode: Any, flags: Any) -> bool:
    return isinstance(flags, int) and bool(flags & _WRITING) and path != os.devnull


def _is_for_a_compiler() -> bool:
    """Whether modules or kernels are being compiled, which is kept in files: it follows code and shapes, not values."""
    frame: FrameType | None = sys._getframe(2)  # of whoever asks for the file, or the process
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name.startswith(("tacit.", *_COMPILERS)):  # we call the losses: what is below us may be any import
            return not name.startswith("tacit.")
        frame = frame.f_back
    return False


@contextmanager
def as_written(*, told: bool = True) -> Iterator[None]:
    """How the losses run on every path: uncompiled, but ``told`` that they are being compiled.

    The operations that were written must be seen, so that compiled models run eagerly. Libraries do without questions
    about values while a graph is traced (Hugging Face: ``if mask.all()``), which would part the records here. What
    TorchScript learned under vmap, where no tensor requires a gradient, it would keep to: gradients would be zero.
    """
    flags: Any = torch.compiler
    script: Any = torch.jit
    before = flags._is_compiling_flag
    # where torch._dynamo is not loaded nothing is compiled, and importing it takes seconds
    stance = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
    flags._is_compiling_flag = told
    try:
        with stance, script.optimized_execution(False):
            yield
    finally:
        flags._is_compiling_flag = before


@contextmanager
def plain_checkpoints() -> Iterator[None]:
    """Checkpoints keep, in this thread, what they would compute again on the way back.

    Gradients of records are formed of what a checkpoint throws away, and the reentrant form hides the parameters it
    uses: their gradients would be zero without a word. What is kept is measured, and physical batches follow from it.
    """
    home, here = torch.utils.checkpoint, threading.get_ident()
    function: Any = home.CheckpointFunction
    original, steps = function.__dict__.get("apply"), home._checkpoint_without_reentrant_generator

    def apply(run: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        return run(*args) if threading.get_ident() == here else super(function, function).apply(run, preserve, *args)

    def before_and_after(*given: Any, **named: Any) -> Iterator[None]:
        if threading.get_ident() != here:
            yield from steps(*given, **named)
        else:
            yield

    function.apply, home._checkpoint_without_reentrant_generator = apply, before_and_after
    try:
        yield
    finally:
        home._checkpoint_without_reentrant_generator = steps
        if original is None:
            del function.apply
        else:
            function.apply = original
