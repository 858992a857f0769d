import pytest

from tacit.errors import RefusedError
from tacit.ledger import Charge, Ledger, LedgerHeader
from tacit.reports import draw_privacy


def test_a_ledger_becomes_a_picture(tmp_path, event):
    draw_privacy(Ledger.planned([Charge(event, 1000)]), 1e-5, tmp_path / "privacy.png")
    assert (tmp_path / "privacy.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_accounted_is_not_drawn(tmp_path, event):
    ledger = Ledger(LedgerHeader(schedule="adaptive"), (Charge(event, 10),))
    with pytest.raises(RefusedError):
        draw_privacy(ledger, 1e-5, tmp_path / "privacy.png")
    assert not (tmp_path / "privacy.png").exists()
