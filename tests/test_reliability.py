"""Every proof of the reliability table runs and holds with a small part of its tries."""

import pytest

from reliability.__main__ import document, proofs

# Tests of their own try the same: test_stopped_anywhere, test_stopped_regression, test_exits, test_mutants.
SLOW = {"audit_mutants", "f25_exits", "f30_coefficients", "f30_kills", "f30_writes"}


@pytest.mark.parametrize(
    ("name", "prove"),
    [pytest.param(*one, marks=[pytest.mark.slow] if one[0].split("-")[0] in SLOW else []) for one in proofs([])],
)
def test_a_proof_holds_with_a_thousandth_of_its_tries(name, prove):
    figures = list(prove(0.001))
    assert figures
    assert all(one.lost == 0 and one.times > 0 for one in figures)
    assert "DOES NOT" not in document([one for one in figures if one.good], 0.001)
