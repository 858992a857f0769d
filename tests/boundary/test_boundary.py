"""One record more moves a release by at most what is charged, whatever the user's code does; and honest code works."""

import pytest

from reliability.boundary.attack import ATTACKS as ENTERED
from reliability.boundary.attack import ROOM, Loop, Outcome, compare
from reliability.boundary.catalogue import ATTACKS
from reliability.boundary.honest import PATTERNS


def _parameters():
    for name, one in ATTACKS.items():
        marks = [pytest.mark.slow] if one.slow or one.apart else []
        if one.limit:
            marks.append(pytest.mark.xfail(reason=one.limit, strict=True))
        yield pytest.param(one, id=name.replace(" ", "_"), marks=marks)


@pytest.mark.parametrize("attack", list(_parameters()))
def test_an_attack_does_not_break_the_promise(attack):
    outcome = attack.run()
    assert outcome.holds, f"{attack.name} ({attack.finding}): {outcome}"


@pytest.mark.parametrize("name", PATTERNS)
def test_honest_code_gives_the_sum_record_by_record(name):
    assert PATTERNS[name]().problem() == ""


@pytest.mark.slow
@pytest.mark.parametrize("attack", [pytest.param(one, id=name.replace(" ", "_")) for name, one in ATTACKS.items()])
def test_an_attack_measures_the_record_and_nothing_else(attack):
    """On the same data twice nothing moves, so that what moves is the record's doing."""
    found = attack.control()
    assert found is None or found.kind in ("refused", "broke") or (found.kind == "moves" and found.moved <= ROOM)


def test_every_finding_has_an_attack():
    found = {one.finding for one in ATTACKS.values()}
    assert {*(f"A{number}" for number in range(1, 12)), "B1", "B2"} <= found
    assert len(ATTACKS) >= 70
    assert ENTERED is ATTACKS


def test_every_attack_says_what_a_user_meant():
    assert all(one.build.__doc__ for one in ATTACKS.values())


def test_a_move_that_is_too_large_is_seen():
    one = Loop().run(with_record=False)
    other = Loop().run(with_record=True)
    assert 0.9 < compare(one, other, Loop()).moved <= 1 + ROOM
    for value in other.released[0].values():
        value.add_(0.1)
    assert not compare(one, other, Loop()).holds


def test_a_state_that_differs_is_a_leak():
    one, other = Loop().run(with_record=False), Loop().run(with_record=True)
    other.state["bias"] = other.state["bias"] + 1
    assert str(compare(one, other, Loop())).startswith("leaked: bias")


def test_an_error_of_another_type_breaks_the_promise_and_a_refusal_does_not():
    one, other = Loop().run(with_record=False), Loop().run(with_record=True)
    other.ended = Outcome("broke", "KeyError: weight")
    assert str(compare(one, other, Loop())) == "broke: KeyError: weight (with the record only)"
    other.ended = Outcome("refused", "one line")
    assert compare(one, other, Loop()).holds
    assert not compare(one, other, Loop(must_run=True)).holds
    assert Outcome("refused", "one line").holds
    assert not Outcome("refused", "one line", must_run=True).holds
