"""Every proof of the reliability table runs and holds with a small part of its tries."""

import pytest

from reliability.__main__ import document, proofs


@pytest.mark.parametrize(("name", "prove"), proofs([]))
def test_a_proof_holds_with_a_thousandth_of_its_tries(name, prove):
    figures = list(prove(0.001))
    assert figures
    assert all(one.lost == 0 and one.times > 0 for one in figures)
    assert "DOES NOT" not in document([one for one in figures if one.good], 0.001)
