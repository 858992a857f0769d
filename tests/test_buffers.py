"""Memory that is used again: only when nobody refers to it, and never a record's for what is released."""

import ctypes
import sys
import threading
from types import SimpleNamespace

import pytest
import torch

from tacit import buffers
from tacit.buffers import empty

CPU, FLOAT = torch.device("cpu"), torch.float32
LARGE = 1 << 18


@pytest.fixture(autouse=True)
def none_left(monkeypatch):
    """What other tests have left would be given out first."""
    monkeypatch.setattr(buffers, "_buffers", buffers._Buffers())


def test_memory_is_used_again_when_nobody_refers_to_it():
    first = empty((LARGE,), FLOAT, CPU)
    address = first.data_ptr()
    del first
    assert empty((LARGE,), FLOAT, CPU).data_ptr() == address
    assert empty((3, LARGE // 4), FLOAT, CPU).data_ptr() == address  # a little shorter


def test_memory_stays_with_whoever_refers_to_it():
    for hold in (lambda t: t, lambda t: t[3:5], lambda t: t.view(2, -1).mT, lambda t: t.numpy(), lambda t: t.detach()):
        held = hold(empty((LARGE,), FLOAT, CPU).fill_(7.0))
        others = [empty((LARGE,), FLOAT, CPU).fill_(1.0) for _ in range(3)]
        assert len({other.data_ptr() for other in others}) == 3
        assert (held == 7.0).all()


@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_a_storage_is_a_reference_too():
    for hold in (torch.Tensor.untyped_storage, torch.Tensor.storage):
        held = hold(empty((LARGE,), FLOAT, CPU).fill_(7.0))
        others = [empty((LARGE,), FLOAT, CPU).fill_(1.0) for _ in range(3)]
        assert held.data_ptr() not in {other.data_ptr() for other in others}


def test_shared_memory_is_another_process_s():
    shared = empty((LARGE,), FLOAT, CPU).share_memory_()
    address = shared.data_ptr()
    del shared
    assert empty((LARGE,), FLOAT, CPU).data_ptr() != address


def test_what_is_released_lies_in_memory_that_never_held_a_record():
    inner = empty((LARGE,), FLOAT, CPU)
    address = inner.data_ptr()
    del inner
    released = empty((LARGE,), FLOAT, CPU, released=True)
    assert released.data_ptr() != address
    assert released.untyped_storage().nbytes() == 4 * LARGE
    assert not released._is_view()


def test_each_thread_has_its_own():
    first = empty((LARGE,), FLOAT, CPU)
    address = first.data_ptr()
    del first
    found = []
    thread = threading.Thread(target=lambda: found.append(empty((LARGE,), FLOAT, CPU)))
    thread.start()
    thread.join()
    assert found[0].data_ptr() != address


def test_what_is_too_large_to_be_kept_is_given_out_all_the_same(monkeypatch):
    """An error here was taken for a record's, and wide models were computed one record after the other."""
    monkeypatch.setattr(buffers, "_MOST_OF_OTHERS", LARGE)
    assert empty((LARGE,), FLOAT, CPU).shape == (LARGE,)
    assert not buffers._buffers.inner[FLOAT]


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
    buffers.keep_freed_memory.__wrapped__()
    assert found == calls
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())  # another library
    buffers.keep_freed_memory.__wrapped__()
