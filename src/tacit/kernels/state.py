"""What there is of compiled kernels here, in one line."""

import sys
from importlib import import_module
from typing import Any

from tacit.kernels.library import loaded, prospect

_MODULES = ("calls", "group_norm", "layer_norm", "lstm", "dense")


def status() -> str:
    """Whether there are kernels and which are left out; if PyTorch is not there yet, what can be said without it."""
    if "torch" not in sys.modules:
        there, text = prospect()
        return f"kernels: {'on' if there else 'off'} ({text})"
    found = loaded()
    if found.library is None:
        return f"kernels: off ({found.reason})"
    kernels, absent = _kernels(found.library)
    without = [kernel.name for kernel in kernels if kernel.calls() is None]
    they = "it differs" if len(without) == 1 else "they differ"
    if len(without) == len(kernels):
        return f"kernels: off ({they} from PyTorch here)"
    if without:
        return f"kernels: on, without {', '.join(without)} ({they} from PyTorch here)"
    threads = sys.modules["torch"].get_num_threads() if found.threads else 1
    made = "".join(f"; PyTorch does {kernel.name}" for kernel in absent)
    return f"kernels: on ({found.reason}, {threads} thread{'s' * (threads != 1)}{made})"


def _kernels(library: Any) -> tuple[list[Any], list[Any]]:
    """Those that the library holds, and those that are not made for this kind of processor."""
    kind = import_module("tacit.kernels.calls").Kernel
    modules = [import_module(f"tacit.kernels.{name}") for name in _MODULES]
    every = [value for module in modules for value in vars(module).values() if isinstance(value, kind)]
    return [one for one in every if one.is_in(library)], [one for one in every if not one.is_in(library)]
