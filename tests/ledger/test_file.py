import errno
import json
import os
import subprocess
import sys
import threading
from dataclasses import asdict

import pytest

from tacit.errors import InputError, LedgerError, StorageError
from tacit.ledger import (
    Charge,
    FixedSizeSample,
    GaussianSumQuery,
    Head,
    LedgerFile,
    LedgerHeader,
    PoissonSample,
    read_ledger,
    verify_ledger,
)
from tacit.ledger.chain import GENESIS, Chain, seal
from tacit.storage.disk import OperatingSystem, using
from tacit.storage.files import replace_file

HEADER = LedgerHeader(dataset="test")


@pytest.fixture
def path(tmp_path, event):
    path = tmp_path / "run" / "ledger.jsonl"
    with LedgerFile(path, HEADER) as ledger:
        ledger.plan(50)
        ledger.reserve([Charge(event, 20)])
        ledger.reserve([Charge(event, 20)])
    return path


def test_what_is_written_is_read_back(path, event):
    ledger = read_ledger(path.parent)
    assert ledger.header == HEADER
    assert ledger.merged() == {event: 40}
    assert ledger.planned_steps == 50


def test_settling_lowers_only_its_own_block(path, event):
    with LedgerFile(path, HEADER) as ledger:
        block = ledger.reserve([Charge(event, 20)])
        ledger.settle(block, 3)
        assert ledger.ledger.steps == 43
        with pytest.raises(InputError, match="settle"):
            ledger.settle(block, 4)
    assert read_ledger(path).steps == 43


def test_a_schedule_is_settled_from_its_end(tmp_path, event):
    other = FixedSizeSample(1, 2, (GaussianSumQuery(1.0, 2.0),))
    header = LedgerHeader(neighbours="replace_one")
    more = FixedSizeSample(1, 3, (GaussianSumQuery(1.0, 2.0),))
    with LedgerFile(tmp_path / "l", header) as ledger:
        block = ledger.reserve([Charge(other, 2), Charge(more, 5)])
        ledger.settle(block, 3)
        assert ledger.ledger.merged() == {other: 2, more: 1}


def test_an_event_of_other_neighbours_is_refused_and_not_charged(path):
    other = FixedSizeSample(1, 2, (GaussianSumQuery(1.0, 2.0),))
    with LedgerFile(path, HEADER) as ledger, pytest.raises(InputError, match="replace_one"):
        ledger.reserve([Charge(other, 1)])
    assert read_ledger(path).steps == 40


def test_a_torn_last_line_is_charged_as_a_block(path):
    data = path.read_bytes()
    path.write_bytes(data + b'{"charges":[{"event":{"pro')
    assert read_ledger(path).steps == 50  # a block of 20, of which 10 were still planned
    with LedgerFile(path, HEADER) as ledger:
        assert ledger.ledger.steps == 50
    assert verify_ledger(path).torn_bytes == 0
    assert read_ledger(path).steps == 50


def test_a_block_that_repeats_is_not_spelled_out_again(path, event):
    groups = PoissonSample(0.01, tuple(GaussianSumQuery(1.0, 9.0, group=f"layer {number}") for number in range(50)))
    with LedgerFile(path, HEADER) as ledger:
        numbers = [ledger.reserve([Charge(groups, 20)]) for _ in range(3)]
        ledger.settle(numbers[1], 7)
        ledger.settle(numbers[2], 5)
        ledger.reserve([Charge(groups, 20)])  # as it was reserved, not as it was settled
        charged = ledger.ledger
    sizes = [len(line) for line in path.read_bytes().splitlines()[numbers[0] - 1 :]]
    assert sizes[0] > 4000
    assert max(sizes[1:]) < 210
    assert read_ledger(path) == charged
    assert charged.merged() == {event: 40, groups: 52}


def test_what_repeats_is_spelled_out_once_in_every_opening(path, event):
    for _ in range(2):
        with LedgerFile(path, HEADER) as ledger:
            for _ in range(3):
                ledger.reserve([Charge(event, 20)])
    assert read_ledger(path).steps == 40 + 6 * 20
    assert path.read_bytes().count(b'"again"') == 1 + 2 * 2


def test_a_repeated_block_cut_short_is_charged(path, event):
    with LedgerFile(path, HEADER) as ledger:
        ledger.plan(100)
        ledger.reserve([Charge(event, 20)])
        ledger.reserve([Charge(event, 20)])
    data = path.read_bytes()
    start = data.rindex(b'{"charges"')
    (path.parent / "ledger.jsonl.head").unlink()
    for size in range(len(data) - start):
        torn = data[: start + size]
        chain = Chain("here")
        list(chain.follow([torn]))
        path.write_bytes(torn)
        (path.parent / "ledger.jsonl.head").write_bytes(chain.head.to_bytes())
        assert read_ledger(path).steps == (60 if size <= 2 else 80)


def test_a_first_block_cannot_be_charged_again(tmp_path):
    line, head = seal({"record": "open", "format": 1, "header": asdict(HEADER), "versions": {}}, Head(0, GENESIS))
    again, head = seal({"record": "reserve", "charges": ["again"]}, head)
    (tmp_path / "ledger.jsonl").write_bytes(line + again)
    (tmp_path / "ledger.jsonl.head").write_bytes(head.to_bytes())
    with pytest.raises(LedgerError, match="record 2 charges a block again, and there is none before it"):
        read_ledger(tmp_path)


def test_every_changed_byte_is_found(path):
    data = path.read_bytes()
    for index in range(len(data) - 1):
        path.write_bytes(data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :])
        with pytest.raises(LedgerError):
            read_ledger(path)


def test_every_removed_line_is_found(path):
    lines = path.read_bytes().splitlines(keepends=True)
    for index in range(len(lines)):
        path.write_bytes(b"".join(lines[:index] + lines[index + 1 :]))
        with pytest.raises(LedgerError):
            read_ledger(path)


def test_a_missing_head_is_refused(path):
    (path.parent / "ledger.jsonl.head").unlink()
    with pytest.raises(LedgerError, match="head file is missing"):
        read_ledger(path)


def test_an_older_head_is_forgiven(path, event):
    old = (path.parent / "ledger.jsonl.head").read_bytes()
    with LedgerFile(path, HEADER) as ledger:
        ledger.reserve([Charge(event, 20)])
    (path.parent / "ledger.jsonl.head").write_bytes(old)
    assert read_ledger(path).steps == 60


def test_another_declaration_is_refused(path):
    with pytest.raises(InputError, match="dataset 'test'"):
        LedgerFile(path, LedgerHeader(dataset="other"))


def test_a_symbolic_link_is_refused(path, tmp_path):
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    with pytest.raises(LedgerError, match="link"):
        LedgerFile(link, HEADER)


def test_the_file_is_for_its_owner_only(path):
    assert path.stat().st_mode & 0o777 == 0o600


def test_nothing_but_public_facts_is_in_a_line(path):
    names = {name for line in path.read_text().splitlines() for name in json.loads(line)}
    assert names == {
        "record", "previous", "hash", "format", "header", "versions", "charges", "planned_steps",
    }  # fmt: skip


def test_reading_needs_no_torch(path):
    code = f"""
import sys
from tacit.ledger import read_ledger
from tacit.accountants import guarantees
read_ledger({str(path)!r})
assert not [name for name in sys.modules if name.split('.')[0] == 'torch'], 'torch was imported'
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity"])
def test_a_number_beyond_all_bounds_is_damage(tmp_path, event, number):
    path = tmp_path / "ledger.jsonl"
    with LedgerFile(path, LedgerHeader()) as ledger:
        ledger.reserve([Charge(event, 20)])
    path.write_text(path.read_text().replace('"steps":20', f'"steps":{number}'))
    with pytest.raises(LedgerError, match="damaged"):
        read_ledger(path)


def test_threads_that_charge_one_ledger_follow_each_other(tmp_path, event):
    """Two threads once sealed the same line, and the ledger could never be read again."""
    with LedgerFile(tmp_path / "ledger.jsonl", LedgerHeader()) as ledger:
        start = threading.Barrier(4)

        def charge():
            start.wait()
            for _ in range(25):
                ledger.reserve([Charge(event, 1)])

        threads = [threading.Thread(target=charge) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ledger.ledger.steps == 100
    assert read_ledger(tmp_path).steps == 100


def test_a_file_that_cannot_be_written_leaves_no_part_of_it(tmp_path):
    """On a full disk the part would keep the room that the run needs to go on."""

    class Full(OperatingSystem):
        def write(self, file, data):
            os.write(file, bytes(data)[:1])
            raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "f").write_text("old")
    with using(Full()), pytest.raises(StorageError, match="No space left"):
        replace_file(tmp_path / "f", b"new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("f", "old")]
