"""The disk that shows every crash, and that it shows what would be wrong without a sync (failure-modes F11)."""

import os
from functools import partial
from pathlib import Path

import pytest

from reliability import f11_crashes as crashes
from reliability.crash_disk import CrashDisk
from tacit.errors import LedgerError, StorageError
from tacit.ledger import Charge, LedgerFile, LedgerHeader, read_ledger, verify_ledger
from tacit.storage import append_only
from tacit.storage import files as storage
from tacit.storage.disk import OperatingSystem, using
from tacit.storage.files import make_folders, replace_file

ROOT = Path("/disk")


def test_what_was_not_synced_is_there_up_to_any_byte_or_as_zeros():
    disk = CrashDisk(ROOT, {ROOT / "a": b"x"})
    file = disk.open_to_append(ROOT / "a", create=True)
    disk.write(file, b"yz")
    assert {state[ROOT / "a"] for state in disk.after_crash()} == {b"x", b"xy", b"xyz", b"x\0\0", b"xy\0"}
    disk.sync_data(file)
    assert [state[ROOT / "a"] for state in disk.after_crash()] == [b"xyz"]


def test_a_name_lasts_when_its_folder_was_synced():
    disk = CrashDisk(ROOT)
    disk.make_folder(ROOT / "f")
    disk.sync_data(disk.open_new(ROOT / "f" / "a"))
    assert {len(state) for state in disk.after_crash()} == {0, 1}
    disk.sync_folder(ROOT / "f")
    assert {len(state) for state in disk.after_crash()} == {0, 1}  # the folder itself may still be lost
    disk.sync_folder(ROOT)
    assert {len(state) for state in disk.after_crash()} == {1}


def test_a_rename_is_done_or_not():
    disk = CrashDisk(ROOT, {ROOT / "a": b"old", ROOT / "a.new": b"new"})
    disk.rename(ROOT / "a.new", ROOT / "a")
    assert {state[ROOT / "a"] for state in disk.after_crash()} == {b"old", b"new"}


class FoundError(Exception):
    """A state that breaks a promise; one is enough."""


def finds(script, every=1):
    """Whether a state is found that breaks a promise; looks at each ``every``-th."""
    tally = crashes.Tally(1 / every)

    def look(files, released):
        tally(files, released)
        if tally.lost:
            raise FoundError

    try:
        crashes.run(script, {}, look)
    except FoundError:
        return True
    assert tally.times > 100
    return False


def test_all_states_keep_the_promise():
    assert not finds(crashes.blocks, every=20)


@pytest.mark.parametrize("call", ["sync_data", "sync_folder"])
def test_without_a_sync_it_is_broken(monkeypatch, call):
    monkeypatch.setattr(CrashDisk, call, lambda disk, _: disk.at_call(call))
    assert finds(crashes.blocks)


def test_a_head_renamed_before_its_content_came_would_lock_its_owner_out(monkeypatch):
    def unsynced(disk, path, data):
        file = disk.open_new(path.with_name(path.name + ".new"))
        disk.write(file, data)
        disk.close(file)
        disk.rename(path.with_name(path.name + ".new"), path)

    monkeypatch.setattr(append_only, "replace_by", unsynced)
    assert finds(crashes.blocks)


def test_releasing_before_charging_is_found():
    def backwards(disk):
        with LedgerFile(crashes.LEDGER, crashes.HEADER) as file:
            disk.released += crashes.BLOCK
            file.reserve([Charge(crashes.EVENT, crashes.BLOCK)])

    assert finds(backwards)


def test_a_settle_cut_short_is_not_paid_for_twice(tmp_path, event):
    path = tmp_path / "ledger.jsonl"
    with LedgerFile(path, LedgerHeader()) as ledger:
        ledger.settle(ledger.reserve([Charge(event, 20)]), 3)
    lines = path.read_bytes().splitlines(keepends=True)
    (tmp_path / "ledger.jsonl.head").unlink()
    for length in (1, 2, 3, 40, len(lines[-1]) - 1):
        path.write_bytes(lines[0] + lines[1] + lines[-1][:length])
        with pytest.raises(LedgerError, match="head file is missing"):
            LedgerFile(path, LedgerHeader())
    path.write_bytes(lines[0])
    LedgerFile(path, LedgerHeader()).close()  # writes the head of one record
    for length in (1, 2, 3, 40, len(lines[-1]) - 1):
        path.write_bytes(lines[0] + lines[1] + lines[-1][:length])
        assert read_ledger(path).steps == 20


class Noting(OperatingSystem):
    def __init__(self):
        self.calls = []

    def __getattribute__(self, name):
        if name.startswith(("sync", "rename", "make", "open_new")):
            self.calls.append(name)
        return super().__getattribute__(name)


def test_a_file_is_on_disk_before_its_name_is(tmp_path):
    disk = Noting()
    with using(disk):
        replace_file(tmp_path / "file", b"content")
    assert disk.calls == ["make_folder", "sync_folder", "open_new", "sync_data", "rename", "sync_folder"]
    assert (tmp_path / "file").read_bytes() == b"content"


def test_new_folders_are_synced_from_the_outside_in(tmp_path):
    disk = Noting()
    with using(disk):
        make_folders(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert disk.calls == ["make_folder"] * 2 + ["sync_folder"] * 2 + ["make_folder", "sync_folder"]


def test_a_folder_that_may_not_be_looked_into_is_passed(tmp_path, monkeypatch):
    def refuse(disk, path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(OperatingSystem, "sync_folder", refuse)
    make_folders(tmp_path)
    with pytest.raises(LedgerError, match="Permission denied"):
        LedgerFile(tmp_path / "ledger.jsonl", LedgerHeader())  # but the ledger's own name has to last


def test_a_ledger_that_is_being_written_does_not_look_rolled_back(tmp_path, event, monkeypatch):
    """The head is read before the ledger; a record that comes in between is only one more."""
    path = tmp_path / "ledger.jsonl"
    with LedgerFile(path, LedgerHeader()) as ledger:
        read = storage.read_bytes

        def read_and_charge(name):
            found = read(name)
            ledger.reserve([Charge(event, 1)])
            return found

        monkeypatch.setattr("tacit.ledger.file.read_bytes", read_and_charge)
        assert verify_ledger(path).head.count == 2


@pytest.mark.parametrize("call", ["write", "fdatasync"])
def test_a_full_or_failing_disk_is_one_line_and_ends_the_ledger(tmp_path, event, monkeypatch, call):
    def full(*_):
        raise OSError(28, "No space left on device")

    path = tmp_path / "ledger.jsonl"
    with LedgerFile(path, LedgerHeader()) as ledger:
        with monkeypatch.context() as patched:
            patched.setattr(os, call, full)
            with pytest.raises(LedgerError, match="No space left"):
                ledger.reserve([Charge(event, 1)])
        with pytest.raises(LedgerError, match="open it again"):
            ledger.reserve([Charge(event, 1)])
    with pytest.raises(StorageError, match="cannot be written"):
        replace_file(path / "inside a file", b"")


def test_a_short_write_goes_on(tmp_path, event, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:7]))
    with LedgerFile(tmp_path / "ledger.jsonl", LedgerHeader()) as ledger:
        ledger.reserve([Charge(event, 4)])
    monkeypatch.undo()
    assert read_ledger(tmp_path).steps == 4


@pytest.mark.parametrize("make", [partial(os.mkfifo), partial(os.mkdir)], ids=["pipe", "folder"])
def test_what_is_no_ordinary_file_is_refused_at_once(tmp_path, make):
    make(tmp_path / "odd")
    with pytest.raises(LedgerError, match="odd"):
        LedgerFile(tmp_path / "odd", LedgerHeader())
    with pytest.raises(LedgerError, match="odd"):
        read_ledger(tmp_path / "odd")
