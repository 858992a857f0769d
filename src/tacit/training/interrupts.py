"""Ctrl-C, a polite kill and a closed terminal wait for the step in hand, so that nothing that was paid for is lost."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def between_steps(wanted: bool = True) -> Iterator[Callable[[], None]]:
    """Hold SIGINT, SIGTERM and SIGHUP back; the function that is given raises what came, when a step is finished.

    A second signal does not wait. Signals that are ignored, as by nohup, stay so. Other threads than the main one, and
    other processes, are left as they are.
    """
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    came: list[int] = []
    process = os.getpid()

    def hold(number: int, frame: FrameType | None) -> None:
        if came or os.getpid() != process:  # a loading process that was forked from us
            raise _of(number)
        came.append(number)

    def let_through() -> None:
        if came:
            raise _of(came[0])

    ends = [number for number in _ENDS if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, hold) for number in ends}
    try:
        yield let_through
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _of(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
