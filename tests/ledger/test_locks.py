"""One writer at a time, who is named, and whose lock ends with it."""

import fcntl
import json
import os
import signal
import subprocess
import sys

import pytest

from tacit.errors import LedgerError
from tacit.ledger import Charge, LedgerFile, LedgerHeader, read_ledger
from tacit.storage import locks

HOLDS = """
import os, sys, time
from tacit.ledger import LedgerFile, LedgerHeader
ledger = LedgerFile(sys.argv[1], LedgerHeader())
helper = os.fork()
if not helper:
    print(os.getpid(), flush=True)  # it has run, so it has let go of the lock
    time.sleep(600)
    os._exit(0)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def holder(path):
    """Another process that has the ledger, and a forked helper of it."""
    command = [sys.executable, "-c", HOLDS, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        helper = int(process.stdout.readline())
        yield process, helper
        process.kill()
        os.kill(helper, signal.SIGKILL)


def test_a_second_writer_in_this_process_is_told_so(path):
    with LedgerFile(path, LedgerHeader()), pytest.raises(LedgerError, match=r"this very process, since .*close\(\)"):
        LedgerFile(path, LedgerHeader())
    assert not locks.note_path(path).exists()


def test_another_writer_is_named(path, holder):
    process, _ = holder
    with pytest.raises(LedgerError, match=rf"process {process.pid} on .* since 20\d\d-"):
        LedgerFile(path, LedgerHeader())


@pytest.mark.parametrize("note", [None, "", "[]", '{"process": {}}', "\0", '{"process": 1}'])
def test_a_note_that_says_nothing_is_no_error(path, holder, note):
    locks.note_path(path).unlink()
    if note is not None:
        locks.note_path(path).write_text(note)
    with pytest.raises(LedgerError, match="in use by another writer"):
        LedgerFile(path, LedgerHeader())


def test_a_lock_does_not_outlive_its_owner_in_a_forked_helper(path, holder):
    process, helper = holder
    process.kill()
    process.wait()
    os.kill(helper, 0)  # it lives on
    with LedgerFile(path, LedgerHeader()):
        assert json.loads(locks.note_path(path).read_text())["process"] == os.getpid()


def test_a_helper_that_ends_takes_nothing_with_it(path, event):
    with LedgerFile(path, LedgerHeader()) as ledger:
        helper = os.fork()
        if not helper:
            ledger.close()
            os._exit(0)
        os.waitpid(helper, 0)
        assert locks.note_path(path).exists()
        with pytest.raises(LedgerError, match="this very process"):
            LedgerFile(path, LedgerHeader())
        ledger.reserve([Charge(event, 20)])


def test_a_forked_helper_has_no_descriptor_that_it_could_close_by_mistake(path):
    ledger = LedgerFile(path, LedgerHeader())
    helper = os.fork()
    if not helper:
        first = os.open("/dev/null", os.O_RDONLY)  # may get the number of the ledger's file
        ledger.close()
        os._exit(0 if os.fstat(first) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(helper, 0)[1]) == 0
    ledger.close()


def test_reading_does_not_lose_the_lock(path, event):
    with LedgerFile(path, LedgerHeader()) as ledger:
        ledger.reserve([Charge(event, 20)])
        assert read_ledger(path).steps == 20
        code = f"import fcntl; fcntl.flock(open({str(path)!r}), fcntl.LOCK_EX | fcntl.LOCK_NB)"
        assert b"BlockingIOError" in subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE).stderr


def test_what_is_forgotten_gives_its_lock_back(path):
    ledger = LedgerFile(path, LedgerHeader())
    del ledger
    LedgerFile(path, LedgerHeader()).close()


def test_a_ledger_that_was_removed_while_it_was_opened_is_not_locked(path, monkeypatch):
    LedgerFile(path, LedgerHeader()).close()
    real = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", lambda *given: path.unlink() or real(*given))
    with pytest.raises(LedgerError, match="removed or replaced"):
        LedgerFile(path, LedgerHeader())


def test_what_goes_on_makes_no_ledger(path):
    with pytest.raises(LedgerError, match="no ledger at"):
        LedgerFile(path.parent / "gone" / "ledger.jsonl", LedgerHeader(), create=False)
    assert not any(path.parent.iterdir())


def test_a_stale_note_is_no_lock(path):
    LedgerFile(path, LedgerHeader()).close()
    locks.note_path(path).write_text('{"process": 1, "host": "elsewhere", "since": "long ago"}')
    LedgerFile(path, LedgerHeader()).close()
    assert not locks.note_path(path).exists()
