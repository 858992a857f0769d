import os
import stat

import numpy as np
import pytest

from tacit.errors import InputError
from tacit.evidence import Evidence, Stretch, check_bound, evidence_path, load_evidence, round_up, save_evidence
from tacit.ledger import Head, LedgerFile, LedgerHeader

SHARES = np.array([[0.1, 0.5], [0.3, 0.2]], dtype=np.float32)
STRETCHES = (Stretch(0.1, 1.0, 1, 0, 0), Stretch(0.1, 1.0, 4, 0, 1), Stretch(0.1, 1.0, 1, 1, 1))


HEAD = Head(1, "a" * 64)


def evidence(head=HEAD, shares=SHARES, stretches=STRETCHES, kind="probes"):
    return Evidence(head, kind, shares, stretches)


def test_a_stretch_between_evaluations_counts_the_larger_share():
    steps = [(item.steps, shares.tolist()) for item, shares in evidence().between()]
    assert [count for count, _ in steps] == [1, 4, 1]
    np.testing.assert_allclose(steps[1][1], [0.3, 0.5], rtol=1e-6)


def test_a_file_gives_back_what_was_saved_and_is_for_its_owner_alone(tmp_path):
    path = evidence_path(tmp_path, "probes")
    save_evidence(evidence(), path)
    found = load_evidence(path)
    assert (found.stretches, found.head, found.kind) == (STRETCHES, HEAD, "probes")
    np.testing.assert_array_equal(found.shares, SHARES)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_evidence_belongs_to_one_ledger(tmp_path):
    with LedgerFile(tmp_path / "ledger.jsonl", LedgerHeader()) as ledger:
        head = ledger.head
    check_bound(evidence(head), tmp_path)
    with pytest.raises(InputError, match="another head"):
        check_bound(evidence(Head(1, "b" * 64)), tmp_path)
    with pytest.raises(InputError, match="another head"):
        check_bound(evidence(Head(2, head.hash)), tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"shares": SHARES + 1},
        {"shares": np.full((2, 2), np.nan, dtype=np.float32)},
        {"shares": SHARES.astype(float)},
        {"shares": SHARES[0]},
        {"stretches": (Stretch(0.1, 1.0, 1, 0, 2),)},
        {"stretches": (Stretch(0.1, 1.0, 0, 0, 0),)},
        {"kind": "rumours"},
    ],
)
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(InputError):
        evidence(**wrong)


@pytest.mark.parametrize("damage", [b"", b"not safetensors", b"\x00" * 64])
def test_a_damaged_file_is_refused(tmp_path, damage):
    (tmp_path / "broken").write_bytes(damage)
    with pytest.raises(InputError, match="broken"):
        load_evidence(tmp_path / "broken")


def test_every_byte_cut_off_is_found(tmp_path):
    path = tmp_path / "evidence"
    save_evidence(evidence(), path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError):
            load_evidence(path)


def test_rounding_goes_up_and_stops_at_one():
    exact = np.random.default_rng(0).uniform(0, 1, 10_000)
    assert (round_up(exact).astype(float) >= exact).all()
    assert round_up([1 + 1e-9])[0] == 1
