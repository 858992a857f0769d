"""Settings of the process: what a record changes in one step, the loop finds, and the next step counts.

As in :mod:`reliability.boundary.later`. No name in the losses leads to such a setting, so that the guard asks for each.
"""

import gc
import locale
import logging
import resource
import signal
import sys
import threading

import numpy as np
import torch

from reliability.boundary.attack import attack
from reliability.boundary.later import _in


@attack()
def a_handler_of_signals():
    """signal.signal(SIGUSR1, SIG_IGN)."""
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    return _in(
        lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN),
        lambda: signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN,
    )


@attack()
def the_switch_interval():
    """sys.setswitchinterval(.05)."""
    sys.setswitchinterval(0.005)
    return _in(lambda: sys.setswitchinterval(0.05), lambda: sys.getswitchinterval() > 0.01)


@attack()
def the_thresholds_of_collection():
    """gc.set_threshold(701)."""
    rest = gc.get_threshold()[1:]
    gc.set_threshold(700, *rest)
    return _in(lambda: gc.set_threshold(701, *rest), lambda: gc.get_threshold()[0] == 701)


@attack()
def the_name_of_the_thread():
    """threading.current_thread().name = "seen"."""
    return _in(
        lambda: setattr(threading.current_thread(), "name", "seen"),
        lambda: threading.current_thread().name == "seen",
    )


@attack()
def the_hook_of_errors():
    """sys.excepthook = print."""
    return _in(lambda: setattr(sys, "excepthook", print), lambda: sys.excepthook is print)


@attack()
def logging_that_is_off():
    """logging.disable(50)."""
    logging.disable(0)
    return _in(lambda: logging.disable(50), lambda: logging.root.manager.disable == 50)


@attack()
def the_locale():
    """locale.setlocale(LC_ALL, "C")."""
    before = locale.setlocale(locale.LC_ALL)
    return _in(lambda: locale.setlocale(locale.LC_ALL, "C"), lambda: locale.setlocale(locale.LC_ALL) != before)


@attack()
def a_limit_of_the_process():
    """resource.setrlimit(RLIMIT_CORE, ...)."""
    before, most = resource.getrlimit(resource.RLIMIT_CORE)
    return _in(
        lambda: resource.setrlimit(resource.RLIMIT_CORE, (4096 if before == 0 else 0, most)),
        lambda: resource.getrlimit(resource.RLIMIT_CORE)[0] != before,
    )


@attack()
def how_numpy_prints():
    """numpy.set_printoptions(precision=3)."""
    np.set_printoptions(precision=8)
    return _in(lambda: np.set_printoptions(precision=3), lambda: np.get_printoptions()["precision"] == 3)


@attack()
def how_numpy_buffers():
    """numpy.setbufsize(4096)."""
    np.setbufsize(8192)
    return _in(lambda: np.setbufsize(4096), lambda: np.getbufsize() == 4096)


@attack()
def how_torch_prints():
    """torch.set_printoptions(precision=9)."""
    torch.set_printoptions(precision=4)
    return _in(lambda: torch.set_printoptions(precision=9), lambda: torch._tensor_str.PRINT_OPTS.precision == 9)


@attack()
def autocast_that_stays():
    """torch.set_autocast_dtype("cpu", torch.float16)."""
    torch.set_autocast_dtype("cpu", torch.bfloat16)
    return _in(
        lambda: torch.set_autocast_dtype("cpu", torch.float16),
        lambda: torch.get_autocast_dtype("cpu") == torch.float16,
    )


@attack()
def anomalies_that_are_looked_for():
    """torch.autograd.set_detect_anomaly(True)."""
    torch.autograd.set_detect_anomaly(False)
    return _in(lambda: torch.autograd.set_detect_anomaly(True), torch.is_anomaly_enabled)


@attack()
def numbers_that_are_flushed():
    """torch.set_flush_denormal(True)."""
    torch.set_flush_denormal(False)
    return _in(lambda: torch.set_flush_denormal(True), lambda: float(torch.tensor(1e-40) * 1) == 0)


@attack()
def products_without_mkldnn():
    """torch.backends.mkldnn.set_flags(False)."""
    torch._C._set_mkldnn_enabled(True)
    return _in(lambda: torch._C._set_mkldnn_enabled(False), lambda: not torch._C._get_mkldnn_enabled())


@attack()
def convolutions_that_are_deterministic():
    """torch.backends.cudnn.deterministic = True."""
    torch.backends.cudnn.deterministic = False
    return _in(lambda: setattr(torch.backends.cudnn, "deterministic", True), lambda: torch.backends.cudnn.deterministic)


@attack()
def attention_by_another_kernel():
    """torch.backends.cuda.enable_flash_sdp(False)."""
    torch.backends.cuda.enable_flash_sdp(True)
    return _in(lambda: torch.backends.cuda.enable_flash_sdp(False), lambda: not torch.backends.cuda.flash_sdp_enabled())
