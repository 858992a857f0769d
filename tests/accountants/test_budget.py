import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.accountants import Budget
from tacit.errors import InputError
from tacit.ledger import Ledger, LedgerHeader


@pytest.mark.parametrize(
    ("field", "value"),
    [("epsilon", 0.0), ("epsilon", -1.0), ("epsilon", math.nan), ("epsilon", math.inf), ("delta", 0.0), ("delta", 1.0)],
)
def test_bad_input_is_named(field, value):
    with pytest.raises(InputError, match=field):
        Budget(**{"epsilon": 1.0, "delta": 1e-5, field: value})


@given(st.lists(st.floats(0.001, 0.1), min_size=1, max_size=10))
def test_the_shares_never_exceed_the_whole(shares):
    parts = Budget(2.0, 1e-5).split(shares)
    assert math.fsum(part.epsilon for part in parts) <= 2.0
    assert math.fsum(part.delta for part in parts) <= 1e-5


@pytest.mark.parametrize("shares", [[], [0.5, 0.6], [1.0, 0.0], [-0.1, 0.5]])
def test_impossible_shares_are_refused(shares):
    with pytest.raises(InputError, match="shares"):
        Budget(1.0, 1e-5).split(shares)


def test_a_ledger_may_declare_one():
    assert Budget.of(Ledger()) is None
    assert Budget.of(Ledger(LedgerHeader(epsilon=1.0, delta=1e-5))) == Budget(1.0, 1e-5)
