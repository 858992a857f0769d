"""Files and records made up at random: only Tacit's own errors, and nothing damaged believed (failure-modes F22)."""

import random
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit
from reliability.f22_fuzz import changed, prove
from tacit.data.abalone import parse_table
from tacit.data.mnist import read_idx
from tacit.errors import TacitError
from tacit.ledger import Head, event_from_json
from tacit.ledger.chain import GENESIS, Chain, seal
from tacit.ledger.replay import Replay
from tacit.training.checkpoints import put_together

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["record", "charges", "steps", "event", "sampling", "queries", "header", "format", "reserve", "planned_steps"]
)
WORDS = st.sampled_from(["open", "reserve", "settle", "void", "note", "release", "poisson", "fixed_size", "shuffled"])
RECORDS = st.dictionaries(NAMES, JSON | WORDS, max_size=5)
CHARGES = st.fixed_dictionaries(
    {"record": st.sampled_from(["reserve", "void"]),
     "charges": JSON | st.lists(st.fixed_dictionaries({"steps": JSON, "event": JSON | RECORDS}), max_size=2)}
)  # fmt: skip


def fails_only_by_tacit(act, *given):
    said = ""
    try:
        act(*given)
    except TacitError as error:
        said = str(error)
    assert "\n" not in said


@given(RECORDS | CHARGES)
def test_made_up_records_are_read_or_refused(record):
    """In good form, hash and all, as somebody with a text editor and time could make them."""
    replay = Replay()
    replay.apply({"record": "open", "format": 1, "header": {"assumptions": []}})
    fails_only_by_tacit(replay.apply, record)


@given(RECORDS)
def test_made_up_events_are_read_or_refused(record):
    fails_only_by_tacit(event_from_json, record)


@given(
    st.lists(st.dictionaries(st.text(max_size=6), JSON.filter(lambda value: value == value), max_size=3), max_size=3)
)
def test_a_chain_is_verified_whatever_it_holds(records):
    data, head = b"", Head(0, GENESIS)
    for record in records:
        try:
            line, head = seal(record, head)
        except ValueError:  # NaN has no place in a ledger
            continue
        data += line
    chain = Chain("x")
    list(chain.follow([data], head))
    assert chain.head == head


@given(JSON)
def test_made_up_content_of_a_checkpoint(value):
    with suppress(TacitError, KeyError, TypeError, ValueError):  # read_checkpoint makes one line of all of them
        put_together(value, {})


@given(st.binary(max_size=60) | st.binary(max_size=20).map(lambda rest: b"\0\0\x08" + rest))
def test_made_up_images(data):
    fails_only_by_tacit(read_idx, data, "x")


@given(st.text(max_size=80))
def test_made_up_tables(text):
    fails_only_by_tacit(parse_table, text)


@settings(max_examples=50)
@given(st.lists(st.text(alphabet="-0123456789.einfax\0 ", max_size=8), max_size=5))
def test_made_up_command_lines(arguments):
    from tacit.commands.app import run

    assert run(["account", *arguments, "--dance"]) == 2


def test_a_change_is_a_change():
    chance = random.Random(0)
    assert all(changed(b"content", chance) != b"content" for _ in range(500))


def test_some_hundred_changed_files():
    assert sum(figure.times for figure in prove(0.03)) >= 250
    assert [figure for figure in prove(0.03) if figure.lost] == []


@pytest.mark.slow
def test_ten_thousand_changed_files():
    assert [figure for figure in prove(1.0) if figure.lost] == []


def test_a_ledger_that_was_opened_is_read_again(tmp_path):
    tacit.ledger.LedgerFile(tmp_path / "ledger.jsonl", tacit.ledger.LedgerHeader()).close()
    assert tacit.read_ledger(tmp_path).steps == 0
