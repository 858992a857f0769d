"""What of the process itself a user's code may not leave changed: settings of Python, numpy and PyTorch.

No name in the code leads to them, so they are asked for one by one. Of PyTorch's switches there is no list: all that it
lets ask for and set by one name are compared.
"""

import _signal  # type: ignore[import-not-found]
import decimal
import gc
import locale
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch


class Setting(NamedTuple):
    """Something of the process that can be asked for and set."""

    name: str
    get: Callable[[], Any]
    put: Callable[[Any], object]


def settings_now() -> list[Any]:
    """The value of every setting.

    Example:
        >>> before = settings_now()
        >>> torch.set_default_dtype(torch.float64)
        >>> put_settings_back(before), torch.get_default_dtype()
        (["torch's default dtype"], torch.float32)
    """
    return [setting.get() for setting in _SETTINGS]


def put_settings_back(before: Sequence[Any]) -> list[str]:
    """Undo what changed; the names of it."""
    now = settings_now()
    if now == before:
        return []
    changed = [(setting, was) for setting, was, new in zip(_SETTINGS, before, now, strict=True) if was != new]
    for setting, was in changed:
        setting.put(was)
    return [setting.name for setting, _ in changed]


_ENVIRONMENT: Any = getattr(os.environ, "_data", os.environ)  # its own copy would decode every entry
_OF_COMPILER = os.fsencode("TORCHINDUCTOR_CACHE_DIR")  # set when checkpoint or torch.func are first used
_DENORMAL = 1e-310
_PRINTING = vars(torch._tensor_str.PRINT_OPTS)
_SIGNALS = sorted(signal.valid_signals())
_handler = _signal.getsignal  # the public one looks up a name for each handler, and takes ten times as long


def _environment() -> dict[Any, Any]:
    found = dict(_ENVIRONMENT)
    found.pop(_OF_COMPILER, None)
    return found


def _put_environment(before: dict[Any, Any]) -> None:
    for name in {*_environment(), *before}:
        key = os.fsdecode(name)
        if name not in before:
            del os.environ[key]
        elif _ENVIRONMENT.get(name) != before[name]:
            os.environ[key] = os.fsdecode(before[name])


def _decimals() -> tuple[Any, ...]:
    context = decimal.getcontext()
    return context.prec, context.rounding, context.Emin, context.Emax


def _put_decimals(before: tuple[Any, ...]) -> None:
    context = decimal.getcontext()
    context.prec, context.rounding, context.Emin, context.Emax = before


def _handlers() -> list[Any]:
    return list(map(_handler, _SIGNALS))


def _put_handlers(before: list[Any]) -> None:
    if threading.current_thread() is not threading.main_thread():
        return  # Python lets no other thread set them, so that it was not this one
    for number, handler, new in zip(_SIGNALS, before, _handlers(), strict=True):
        if handler is not new and handler is not None:  # None: not set by Python, which cannot put it back
            signal.signal(number, handler)


def _put_thread_name(before: str) -> None:
    threading.current_thread().name = before


def _of_python() -> Iterator[Setting]:
    yield Setting("the environment", _environment, _put_environment)
    yield Setting("sys.path", lambda: sys.path[:], lambda before: sys.path.__setitem__(slice(None), before))
    yield Setting("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit)
    yield Setting("the switch interval of threads", sys.getswitchinterval, sys.setswitchinterval)
    yield Setting("the thresholds of garbage collection", gc.get_threshold, lambda before: gc.set_threshold(*before))
    yield Setting("the decimal context", _decimals, _put_decimals)
    yield Setting("the handlers of signals", _handlers, _put_handlers)
    yield Setting("the locale", lambda: locale.setlocale(locale.LC_ALL), lambda b: locale.setlocale(locale.LC_ALL, b))
    yield Setting("the level of logging", lambda: logging.root.level, logging.root.setLevel)
    yield Setting("logging.disable", lambda: logging.root.manager.disable, logging.disable)
    yield Setting("the name of the thread", lambda: threading.current_thread().name, _put_thread_name)
    for name in ("excepthook", "displayhook", "unraisablehook"):
        yield Setting(f"sys.{name}", partial(getattr, sys, name), partial(setattr, sys, name))


def _of_numpy() -> Iterator[Setting]:
    yield Setting("numpy's handling of errors", np.geterr, lambda before: np.seterr(**before))
    yield Setting("numpy's size of buffers", np.getbufsize, np.setbufsize)
    yield Setting("numpy's way of printing", np.get_printoptions, lambda before: np.set_printoptions(**before))


def _of_torch() -> Iterator[Setting]:
    yield Setting("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype)
    yield Setting("torch's number of threads", torch.get_num_threads, torch.set_num_threads)
    yield Setting("torch's default device", torch.get_default_device, torch.set_default_device)
    yield Setting("torch's gradient mode", torch.is_grad_enabled, torch.set_grad_enabled)
    yield Setting("torch's autocast", _autocast, _put_autocast)
    yield Setting("torch's detection of anomalies", _anomalies, lambda before: torch.set_anomaly_enabled(*before))
    yield Setting("torch's denormal numbers", lambda: _DENORMAL * 1.0 == 0.0, torch.set_flush_denormal)
    yield Setting("torch's way of printing", lambda: dict(_PRINTING), _PRINTING.update)
    for kind in ("flash", "mem_efficient", "math", "cudnn"):
        get, put = getattr(torch._C, f"_get_{kind}_sdp_enabled", None), getattr(torch._C, f"_set_sdp_use_{kind}", None)
        if get is not None and put is not None:
            yield Setting(f"torch's attention ({kind})", get, put)
    yield from _switches()


def _autocast() -> tuple[Any, ...]:
    return torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()


def _put_autocast(before: tuple[Any, ...]) -> None:
    torch.set_autocast_enabled("cpu", before[0])
    torch.set_autocast_dtype("cpu", before[1])
    torch.set_autocast_cache_enabled(before[2])


def _anomalies() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _switches() -> Iterator[Setting]:
    """What PyTorch lets ask for without arguments and set by the same name: how it multiplies, convolves and so on."""
    for name in dir(torch._C):
        put = getattr(torch._C, name.replace("_get_", "_set_", 1), None)
        if not name.startswith("_get_") or put is None:
            continue
        get = getattr(torch._C, name)
        try:
            value = get()
        except (TypeError, RuntimeError):  # it takes arguments, or this build is without it
            continue
        if type(value) in (bool, int, str):
            yield Setting(f"torch's {name.removeprefix('_get_')}", get, put)


_SETTINGS = (*_of_python(), *_of_numpy(), *_of_torch())
