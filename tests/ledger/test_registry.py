"""Ledgers that a registry knows: whatever becomes of them, they count."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from reliability.crash_disk import CrashDisk
from tacit.errors import LedgerError
from tacit.ledger import (
    Charge,
    GaussianSumQuery,
    LedgerFile,
    LedgerHeader,
    PoissonSample,
    RegisteredLedger,
    joined,
    read_ledger,
    registered_runs,
)
from tacit.ledger.registry import read_registry
from tacit.storage.disk import using

HEADER = LedgerHeader(dataset="patients")


@pytest.fixture
def place(tmp_path):
    return RegisteredLedger(tmp_path / "run" / "ledger.jsonl", tmp_path / "registry.jsonl")


def charge(place, event, blocks, size=20):
    with LedgerFile(place, HEADER) as ledger:
        ledger.plan(blocks * size)
        for _ in range(blocks):
            ledger.reserve([Charge(event, size)])


def only(place):
    (run,) = registered_runs(place.registry)
    return run


def test_a_closed_run_counts_what_its_ledger_says(place, event):
    charge(place, event, blocks=3)
    assert (only(place).state, only(place).ledger) == ("closed", read_ledger(place))
    assert only(place).path == place.path


def test_a_ledger_that_charges_nothing_enters_nothing(place):
    with LedgerFile(place, HEADER) as ledger:
        ledger.plan(20)
    assert not place.registry.exists()


@pytest.mark.parametrize("blocks", [1, 4, 60])
def test_the_registry_knows_of_every_charge_before_it_is_made(place, event, blocks):
    with LedgerFile(place, HEADER) as ledger:
        for _ in range(blocks):
            ledger.reserve([Charge(event, 20)])
            (entry,) = read_registry(place.registry)
            assert ledger.ledger.steps <= entry.spent[event] <= max(20, 1.25 * ledger.ledger.steps + 20)
    assert read_registry(place.registry)[0].spent == {event: 20 * blocks}


def test_a_long_run_announces_rarely_and_a_changing_one_every_block(place, event, tmp_path):
    charge(place, event, blocks=500)
    assert len(place.registry.read_bytes().splitlines()) < 40
    changing = RegisteredLedger(tmp_path / "other.jsonl", tmp_path / "other.registry")
    with LedgerFile(changing, HEADER) as ledger:
        for number in range(50):
            ledger.reserve([Charge(PoissonSample(0.01, (GaussianSumQuery(1.0, 1 + number / 100),)), 20)])
        assert sum(read_registry(changing.registry)[0].spent.values()) == 1000


def test_a_deleted_run_counts(place, event):
    charge(place, event, blocks=3)
    shutil.rmtree(place.path.parent)
    assert only(place).state == "missing"
    assert only(place).ledger.merged() == {event: 60}
    assert only(place).ledger.header == HEADER


def test_a_new_run_in_the_place_of_a_deleted_one_is_counted_beside_it(place, event):
    charge(place, event, blocks=3)
    shutil.rmtree(place.path.parent)
    charge(place, event, blocks=1)
    runs = registered_runs(place.registry)
    assert [(run.state, run.ledger.steps) for run in runs] == [("replaced", 60), ("closed", 20)]
    assert joined([run.ledger for run in runs]).merged() == {event: 80}
    assert joined([run.ledger for run in runs]).runs == 2


def test_a_rollback_counts_in_full(place, event):
    charge(place, event, blocks=1)
    kept = {path: path.read_bytes() for path in place.path.parent.iterdir()}
    charge(place, event, blocks=2)
    for path, data in kept.items():
        path.write_bytes(data)
    assert only(place).state == "changed"
    assert only(place).ledger.merged() == {event: 60 + 20}


def test_a_damaged_ledger_counts_as_registered(place, event):
    charge(place, event, blocks=2)
    place.path.write_bytes(place.path.read_bytes()[:-200] + b"x" * 200)
    assert (only(place).state, only(place).ledger.steps) == ("unreadable", 40)


def test_charges_made_without_the_registry_are_seen_in_the_ledger(place, event):
    charge(place, event, blocks=1)
    charge(place.path, event, blocks=2)
    assert (only(place).state, only(place).ledger.steps) == ("grown", 60)
    charge(place, event, blocks=1)
    assert (only(place).state, only(place).ledger.steps) == ("closed", 80)
    shutil.rmtree(place.path.parent)
    assert only(place).ledger.steps == 80


KILLED = """
import os, signal, sys
from tacit.ledger import *
event = PoissonSample(0.01, (GaussianSumQuery(1.0, 1.1),))
ledger = LedgerFile(RegisteredLedger(sys.argv[1], sys.argv[2]), LedgerHeader(dataset="patients"))
for _ in range(int(sys.argv[3])):
    ledger.reserve([Charge(event, 20)])
if sys.argv[4] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
ledger.close()
"""


def start(path, registry, blocks, end):
    return subprocess.Popen([sys.executable, "-c", KILLED, str(path), str(registry), str(blocks), end])


def test_a_killed_run_counts_with_what_it_announced_until_it_goes_on(place, event):
    assert start(place.path, place.registry, 12, "kill").wait() < 0
    assert only(place).state == "open"
    assert 240 <= only(place).ledger.steps <= 1.25 * 240
    shutil.copytree(place.path.parent, place.registry.parent / "kept")
    shutil.rmtree(place.path.parent)
    assert (only(place).state, only(place).ledger.steps >= 240) == ("missing", True)
    (place.registry.parent / "kept").rename(place.path.parent)
    charge(place, event, blocks=1)
    assert (only(place).state, only(place).ledger.steps) == ("closed", 260)


def test_after_a_crash_at_any_point_the_registry_knows_no_less_than_was_released(event):
    root = Path("/disk")
    place = RegisteredLedger(root / "run" / "ledger.jsonl", root / "registry.jsonl")
    looked, chance = Counter(), random.Random(0)

    def look(disk):
        for files in disk.after_crash():
            if chance.random() < 0.04:
                looked[disk.released] += 1
                with using(CrashDisk(root, files)):
                    if disk.released:
                        assert sum(run.ledger.steps for run in registered_runs(place.registry)) >= disk.released
                    charge(place, event, blocks=1)
                    assert (only(place).state, only(place).ledger) == ("closed", read_ledger(place))

    class Watched(CrashDisk):
        def at_call(self, name):
            look(self)

    disk = Watched(root)
    with using(disk), LedgerFile(place, HEADER) as ledger:
        for _ in range(3):
            ledger.reserve([Charge(event, 20)])
            disk.released += 20
    look(disk)
    assert sorted(looked) == [0, 20, 40, 60]
    assert sum(looked.values()) > 200


def test_many_runs_use_one_registry_at_once(tmp_path, event):
    registry = tmp_path / "registry.jsonl"
    runs = [start(tmp_path / f"{number}.jsonl", registry, 30, "end") for number in range(6)]
    assert [run.wait() for run in runs] == [0] * 6
    found = registered_runs(registry)
    assert [(run.state, run.ledger.steps) for run in found] == [("closed", 600)] * 6
    assert joined([run.ledger for run in found]).merged() == {event: 3600}


def test_a_tree_of_runs_and_registry_can_be_moved(place, event, tmp_path):
    charge(place, event, blocks=1)
    shutil.copytree(tmp_path, tmp_path.parent / "moved")
    shutil.rmtree(place.path.parent)
    assert [run.state for run in registered_runs(tmp_path.parent / "moved" / "registry.jsonl")] == ["closed"]
    shutil.rmtree(tmp_path.parent / "moved")


def test_a_forked_process_says_nothing_to_the_registry(place, event):
    with LedgerFile(place, HEADER) as ledger:
        ledger.reserve([Charge(event, 20)])
        before = place.registry.read_bytes()
        child = os.fork()
        if not child:
            ledger.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert place.registry.read_bytes() == before


def test_a_registry_that_cannot_be_written_stops_the_charge(place, event):
    place.registry.mkdir()
    with LedgerFile(place, HEADER) as ledger, pytest.raises(LedgerError, match="registry"):
        ledger.reserve([Charge(event, 20)])
    assert read_ledger(place).steps == 0


def test_a_registry_that_is_removed_or_rolled_back_in_mid_run_stops_the_next_charge(place, event):
    other = PoissonSample(0.01, (GaussianSumQuery(1.0, 2.0),))
    head = place.registry.with_name("registry.jsonl.head")
    with LedgerFile(place, HEADER) as ledger:
        ledger.reserve([Charge(event, 20)])
        kept, early = place.registry.read_bytes(), head.read_bytes()
        ledger.reserve([Charge(event, 20)])
        late = place.registry.read_bytes()
        place.registry.unlink()
        with pytest.raises(LedgerError, match="never makes it anew"):
            ledger.reserve([Charge(other, 20)])
        place.registry.write_bytes(kept)
        whole = head.read_bytes()
        head.write_bytes(early)
        with pytest.raises(LedgerError, match="rolled back"):
            ledger.reserve([Charge(other, 20)])
        place.registry.write_bytes(late)
        head.write_bytes(whole)
        ledger.reserve([Charge(other, 20)])
    assert (only(place).state, only(place).ledger.merged()) == ("closed", {event: 40, other: 20})


@pytest.mark.parametrize("content", [b"a private table\n", b"a,b", b'{"format":2,"record":"registry"}\n'])
def test_another_file_is_no_registry_and_is_left_as_it_is(place, event, content):
    place.registry.write_bytes(content)
    with LedgerFile(place, HEADER) as ledger, pytest.raises(LedgerError):
        ledger.reserve([Charge(event, 20)])
    assert place.registry.read_bytes() == content
    with pytest.raises(LedgerError):
        registered_runs(place.registry)


def test_a_ledger_is_no_registry_and_a_registry_no_ledger(place, event, tmp_path):
    charge(place, event, blocks=1)
    with pytest.raises(LedgerError, match="no registry"):
        registered_runs(place.path)
    with pytest.raises(LedgerError, match="first record"):
        read_ledger(place.registry)
    with pytest.raises(LedgerError, match="no registry at"):
        registered_runs(tmp_path / "none")


def test_every_changed_bit_and_a_rollback_of_the_registry_are_found(place, event):
    charge(place, event, blocks=2)
    whole = place.registry.read_bytes()
    for number in range(0, len(whole), 37):
        place.registry.write_bytes(whole[:number] + bytes([whole[number] ^ 1]) + whole[number + 1 :])
        with pytest.raises(LedgerError):
            registered_runs(place.registry)
    place.registry.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    with pytest.raises(LedgerError, match="rolled back"):
        registered_runs(place.registry)


def test_a_torn_record_is_cut_off_and_said_again(place, event):
    charge(place, event, blocks=1)
    with place.registry.open("ab") as file:
        file.write(b'{"charges":[{"ev')
    assert only(place).ledger.steps == 20
    charge(place, event, blocks=1)
    assert (only(place).state, only(place).ledger.steps) == ("closed", 40)


def test_sealed_records_that_make_no_sense_are_refused(place, event):
    from tacit.ledger.chain import Chain, seal

    charge(place, event, blocks=1)
    whole, head = place.registry.read_bytes(), place.registry.with_name("registry.jsonl.head").read_bytes()
    chain = Chain("registry")
    good = json.loads(whole.splitlines()[2])
    for _ in chain.follow([whole]):
        pass
    for change in ({"run": 0}, {"run": 9}, {"run": "1"}, {"head": 3}, {"charges": 5}, {"record": "spend"}):
        line, _ = seal({**{k: v for k, v in good.items() if k not in ("hash", "previous")}, **change}, chain.head)
        place.registry.write_bytes(whole + line)
        with pytest.raises(LedgerError):
            registered_runs(place.registry)
    assert head
