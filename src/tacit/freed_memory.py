"""Memory that a step has freed stays the process's: fresh memory costs a page fault every 4 kB, and that at every step.

Until it is written over it holds what it held, private gradients perhaps, as all memory that a process has freed does.
"""

import ctypes
import os
import sys
from functools import cache

_TRIM, _MAP = -1, -3  # as glibc's malloc.h numbers what can be set
_KEPT = 1 << 28  # bytes that are free at the end of the heap, and stay the process's
_MAPPED = 1 << 25  # bytes from which a tensor is memory of its own: where glibc itself would end up at the most


@cache
def keep_freed_memory() -> None:
    """Tell glibc to keep what a step frees for the next one: a step's activations are freed all at once.

    It would give them back to the system, and take them again page by page. Whoever has set it otherwise is obeyed.
    """
    names = [name for name in os.environ if name.startswith("MALLOC_")]
    if sys.platform != "linux" or names or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:  # other libraries have none
        set_option(_MAP, _MAPPED)
        set_option(_TRIM, _KEPT)
