"""Charges that grow at a constant price, and mean what a plain list of them means."""

import copy
import json
import pickle
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.accountants import Budget, BudgetGate
from tacit.errors import LedgerError
from tacit.ledger import Charge, Charges, GaussianSumQuery, Ledger, LedgerFile, LedgerHeader, PoissonSample, read_ledger
from tacit.ledger.chain import Chain, Head, seal
from tacit.ledger.charges import Block, charges_to_json
from tacit.ledger.replay import Replay

EVENTS = [PoissonSample(0.01, (GaussianSumQuery(1.0, 1.0 + number / 10),)) for number in range(3)]
blocks = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=3).map(
    lambda rows: tuple(Charge(EVENTS[number], steps) for number, steps in rows)
)


def plain(blocks):
    """The charges of blocks as a list in which equal neighbours are one."""
    found = []
    for charge in (charge for block in blocks for charge in block if charge.steps):
        if found and found[-1].event == charge.event:
            found[-1] = Charge(charge.event, found[-1].steps + charge.steps)
        else:
            found.append(charge)
    return found


def lowered(block, steps):
    kept = []
    for charge in block:
        kept.append(Charge(charge.event, min(steps, charge.steps)))
        steps -= kept[-1].steps
    return tuple(kept)


@given(st.lists(st.tuples(blocks, st.integers(0, 40), st.integers(0, 15))), st.booleans())
def test_blocks_and_settles_in_any_order_mean_the_same_as_a_plain_list(rows, as_text):
    """Every look in between sees what was charged then, and still does at the end."""
    replay, model, looks = Replay(), [], []
    replay.apply({"record": "open", "format": 1, "header": {"assumptions": []}, "versions": {}})
    for block, which, steps in rows:
        if as_text:
            replay.read([json.dumps(charges_to_json(block)).encode()])
        else:
            replay.apply(Block(block))
        model.append(block)
        if which % 3 == 0:
            looks.append((replay.ledger(), plain(model)))
        number = which % len(model)
        if model[number] and steps <= sum(charge.steps for charge in model[number]):
            if_settled = replay.ledger({number + 2: steps})
            replay.apply({"record": "settle", "reserve": number + 2, "steps": steps})
            model[number] = lowered(model[number], steps)
            replay._blocks.pop()  # the settle is a record too; without it numbers stay simple here
            replay._folded -= 1
            assert if_settled.charges == plain(model)
    looks.append((replay.ledger(), plain(model)))
    for ledger, charges in looks:
        assert ledger.charges == tuple(charges)
        assert ledger.steps == sum(charge.steps for charge in charges)


@given(st.lists(blocks), st.integers(0, 10))
def test_what_is_new_is_what_came_after(rows, place):
    all_of_them = at_place = Charges()
    for number, block in enumerate(rows):
        all_of_them = all_of_them.plus(Block(block))
        at_place = all_of_them if number == place else at_place
    new = all_of_them.since(at_place)
    if all_of_them.steps > at_place.steps or at_place is all_of_them:
        assert plain([tuple(at_place), tuple(new)]) == list(all_of_them)
    other = Charges.of((Charge(EVENTS[0], 7),))
    assert other.since(all_of_them) is None or not all_of_them
    assert all_of_them.without(all_of_them.steps) == ()


def test_a_long_list_can_be_copied_compared_and_forgotten():
    charges = Charges()
    for number in range(100_000):
        charges = charges.plus(Block((Charge(EVENTS[number % 2], 1),)))
    assert len(charges) == 100_000
    again = pickle.loads(pickle.dumps(charges))
    assert again == charges == copy.deepcopy(charges)
    assert hash(again) == hash(charges)
    del charges  # one inside the other, they must not end the stack


@pytest.fixture
def looks(monkeypatch):
    """How many charges are looked at."""
    seen = []
    whole, since = Charges._tuple, Charges.since
    monkeypatch.setattr(Charges, "_tuple", lambda self: seen.extend(found := whole(self)) or found)
    monkeypatch.setattr(Charges, "since", lambda self, one: [found := since(self, one), seen.extend(found or ())][0])
    return seen


@pytest.mark.parametrize("schedule", ["fixed", "adaptive"])
@pytest.mark.parametrize("distinct", [True, False])
def test_a_gated_block_looks_at_as_much_whatever_went_before(tmp_path, looks, schedule, distinct):
    header = LedgerHeader(schedule=schedule, epsilon=50.0, delta=1e-5)
    gate, counts = BudgetGate(Budget(50.0, 1e-5)), []
    with LedgerFile(tmp_path / "l", header) as file:
        for number in range(300):
            event = PoissonSample(0.01, (GaussianSumQuery(1.0, 2.0 + number * distinct / 1000),))
            before = len(looks)
            gate(file.ledger, [Charge(event, 20)])
            file.reserve([Charge(event, 20)])
            counts.append(len(looks) - before)
        assert file.ledger.steps == 6000
    assert max(counts[2:]) <= 4  # once for the counts, and once for each of the curves
    assert counts[299] == counts[10]


def test_a_run_that_repeats_itself_needs_no_more_memory(tmp_path, event):
    with LedgerFile(tmp_path / "l", LedgerHeader()) as file:
        for _ in range(50):
            file.reserve([Charge(event, 20)])
        assert len({id(block) for block in file._replay._blocks}) == 2  # that block, and nothing
        assert file.ledger.charges == (Charge(event, 1000),)
        assert file.ledger.charges._depth == 1


def test_an_old_ledger_opens_and_goes_on(tmp_path):
    """Written before charges were kept as they are now: all kinds of records, and a torn line."""
    here = Path(__file__).parent
    for name in ("old.jsonl", "old.jsonl.head"):
        shutil.copy(here / name, tmp_path / name)
    ledger = read_ledger(tmp_path / "old.jsonl")
    assert [charge.steps for charge in ledger.charges] == [33, 2, 20, 1]
    assert (ledger.steps, ledger.planned_steps, ledger.runs) == (56, 65, 2)
    with LedgerFile(tmp_path / "old.jsonl", ledger.header, create=False) as file:
        assert file.head.to_bytes() == (here / "old.jsonl.head").read_bytes()
        file.settle(file.reserve([Charge(EVENTS[0], 20)]), 3)
    assert read_ledger(tmp_path / "old.jsonl").steps == 59


def sealed(*records):
    """A ledger of these records with an intact chain, and its head."""
    head, lines = Head(0, "0" * 64), []
    opened = {"record": "open", "format": 1, "header": {"assumptions": []}, "versions": {}}
    for record in (opened, *records):
        line, head = seal(record, head)
        lines.append(line)
    return b"".join(lines), head


GOOD = {
    "steps": 20,
    "event": {"sampling": "poisson", "probability": 0.1, "queries": [{"clip_norm": 1.0, "noise_stddev": 1.0}]},
}


@pytest.mark.parametrize(
    "charges",
    [
        [{**GOOD, "event": {"sampling": "of a later version"}}],
        [{**GOOD, "steps": 1.5}],
        [{**GOOD, "steps": -1}],
        [{"steps": 20}],
        ["reserve"],
        [{**GOOD, "event": {**GOOD["event"], "queries": [{"clip_norm": 1.0, "noise_stddev": 0.0}]}}],
        [{**GOOD, "event": {**GOOD["event"], "sampling": ["poisson"]}}],
    ],
)
def test_a_charge_that_cannot_be_understood_is_refused_when_it_is_looked_at(tmp_path, charges):
    """Its line is intact, so it opens; but nothing is admitted, stated or charged on top by anybody who asks."""
    path = tmp_path / "ledger.jsonl"
    data, head = sealed({"record": "reserve", "charges": [GOOD]}, {"record": "reserve", "charges": charges})
    path.write_bytes(data)
    (tmp_path / "ledger.jsonl.head").write_bytes(head.to_bytes())
    with pytest.raises(LedgerError, match="record 3 cannot be read"):
        read_ledger(path)
    with LedgerFile(path, LedgerHeader()) as file, pytest.raises(LedgerError, match="record 3 cannot be read"):
        file.ledger  # noqa: B018


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_a_number_beyond_all_bounds_is_refused_under_an_intact_chain_too(number):
    data, _ = sealed({"record": "reserve", "charges": [GOOD]})
    text = json.dumps([GOOD]).replace('"noise_stddev": 1.0', f'"noise_stddev": {number}').encode()
    chain, replay = Chain("here"), Replay()
    for records in chain.follow([data]):
        replay.read([record if isinstance(record, dict) else text for record in records])
    with pytest.raises(LedgerError, match="record 2 cannot be read"):
        replay.ledger()


def test_a_chain_is_followed_in_parts_of_any_size():
    data, head = sealed(*[{"record": "reserve", "charges": [GOOD]}, {"record": "note", "planned_steps": 20}] * 5)
    torn = data + b'{"charges"'
    for size in (1, 7, 100, 10_000):
        chain, count = Chain("here"), 0
        for records in chain.follow([torn[start : start + size] for start in range(0, len(torn), size)], head):
            count += len(records)
        assert (count, chain.head, chain.whole_bytes, chain.torn) == (11, head, len(data), b'{"charges"')


@pytest.mark.parametrize("number", [0, -1, 1, 3, 99, True, 2.0, "2", None])
def test_a_settle_of_what_charged_nothing_is_refused(number):
    replay = Replay()
    replay.apply({"record": "open", "format": 1, "header": {"assumptions": []}, "versions": {}})
    replay.apply(Block((Charge(EVENTS[0], 20),)))
    with pytest.raises(LedgerError):
        replay.apply({"record": "settle", "reserve": number, "steps": 0})
    assert replay.ledger().charges == Ledger(charges=(Charge(EVENTS[0], 20),)).charges
