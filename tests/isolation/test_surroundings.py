"""What losses may not do outside the process, and what others may while they run."""

import gc
import os
import threading
import weakref

import pytest
import torch

from tacit.errors import LossesError
from tacit.isolation import nothing_leaves


def test_files_are_read_but_not_written(tmp_path):
    path = tmp_path / "seen"
    path.write_text("before")
    with nothing_leaves():
        assert path.read_text() == "before"
        with open(os.devnull, "w") as file:
            file.write("nothing")
    for write in (lambda: path.write_text("now"), path.unlink, lambda: torch.save(1, path), lambda: os.mkdir("seen")):
        with pytest.raises(LossesError, match="the losses"), nothing_leaves():
            write()
    assert path.read_text() == "before"
    path.write_text("the loop writes as it likes")


def test_other_threads_write_meanwhile(tmp_path):
    with nothing_leaves():
        thread = threading.Thread(target=lambda: (tmp_path / "log").write_text("mine"))
        thread.start()
        thread.join()
    assert (tmp_path / "log").read_text() == "mine"


def test_garbage_that_writes_when_it_goes_waits_until_the_block_has_ended(tmp_path):
    class Cycle:
        pass

    def forget():
        cycle = Cycle()
        cycle.itself = cycle
        weakref.finalize(cycle, (tmp_path / "ended").write_text, "well")

    forget()
    with nothing_leaves():
        assert not gc.isenabled()
        with nothing_leaves():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.collect()
    assert (tmp_path / "ended").read_text() == "well"


def test_a_module_that_is_imported_is_compiled_and_kept(tmp_path, monkeypatch):
    (tmp_path / "a_late_module.py").write_text("value = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    with nothing_leaves():
        import a_late_module
    assert a_late_module.value == 3
    assert list((tmp_path / "__pycache__").iterdir())
