"""What the allocator is told, unless the user told it something else."""

import ctypes
import sys
from types import SimpleNamespace

import pytest

from tacit.freed_memory import keep_freed_memory


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
@pytest.mark.parametrize(
    ("variable", "value", "calls"),
    [
        ("ANY", "", [(-3, 1 << 25), (-1, 1 << 28)]),
        ("MALLOC_TRIM_THRESHOLD_", "1", []),
        ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=1", []),
    ],
)
def test_glibc_keeps_freed_memory_unless_the_user_said_otherwise(monkeypatch, variable, value, calls):
    for name in ("MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value)
    found = []
    glibc = SimpleNamespace(mallopt=lambda *option: found.append(option))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: glibc)
    keep_freed_memory.__wrapped__()
    assert found == calls
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())  # another library
    keep_freed_memory.__wrapped__()
