from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accountants import ACCOUNTANTS, Budget, BudgetGate, RenyiFilter, renyi_curve
from tacit.accountants import budget as gate
from tacit.errors import BudgetError, InputError, RefusedError
from tacit.ledger import (
    BallsInBinsStep,
    Charge,
    FixedSizeSample,
    GaussianSumQuery,
    Ledger,
    LedgerHeader,
    PoissonSample,
    ShuffledStep,
)

BUDGET = Budget(1.0, 1e-5)
ADAPTIVE = LedgerHeader(schedule="adaptive", epsilon=1.0, delta=1e-5)
schedules = st.lists(
    st.tuples(st.sampled_from([0.01, 0.02, 0.1]), st.sampled_from([0.8, 1.0, 2.0]), st.integers(1, 30)), max_size=25
)


def charge(q=0.01, z=1.0, steps=20):
    return Charge(PoissonSample(q, (GaussianSumQuery(1.0, z),)), steps)


def run(check, blocks, ledger=None):
    """Charge blocks until the gate says no, as a training loop does."""
    ledger = Ledger() if ledger is None else ledger
    for block in blocks:
        try:
            check(ledger, [block])
        except BudgetError:
            return ledger, block
        ledger = replace(ledger, charges=(*ledger.charges, block))
    return ledger, None


def epsilon(ledger, name="pld"):
    return ACCOUNTANTS[name].guarantee(ledger, delta=BUDGET.delta).epsilon


def test_a_fixed_schedule_stops_within_a_block_of_the_optimum():
    ledger, refused = run(BudgetGate(BUDGET), [charge()] * 1000)
    assert epsilon(ledger) <= BUDGET.epsilon
    assert epsilon(replace(ledger, charges=(*ledger.charges, refused))) > BUDGET.epsilon


def test_many_distinct_events_are_asked_about_in_few_and_the_answer_is_the_same(monkeypatch):
    """At the edge of a budget PLD took a millisecond for each distinct event of the whole ledger, at every block."""
    sizes = []
    original = gate.ledger_bracket

    def counted(ledger, delta):
        sizes.append(len(ledger.charges))
        return original(ledger, delta)

    monkeypatch.setattr(gate, "ledger_bracket", counted)
    blocks = [charge(z=1.0 + number * 1e-6, steps=1) for number in range(400)]
    ledger, refused = run(BudgetGate(BUDGET), blocks[245:], Ledger(charges=tuple(blocks[:245])))
    assert epsilon(ledger) <= BUDGET.epsilon < epsilon(replace(ledger, charges=(*ledger.charges, refused)))
    assert len(ledger.charges) > 247
    assert [size > 64 for size in sizes] == [False] * (len(sizes) - 1) + [True]


def test_noise_is_only_ever_rounded_down():
    for z in (0.1, 0.99999, 1.0, 1.0000001, 7.3, 1e6):
        rounded = gate._rounded_noise(charge(z=z).event).noise_multiplier
        assert z * (1 - 1.1e-3) < rounded <= z


@settings(max_examples=15, deadline=None)
@given(schedules)
def test_a_mixed_schedule_is_never_over(rows):
    ledger, refused = run(BudgetGate(BUDGET), [charge(*row) for row in rows])
    assert epsilon(ledger) <= BUDGET.epsilon
    assert refused is None or epsilon(replace(ledger, charges=(*ledger.charges, refused))) > BUDGET.epsilon


@settings(max_examples=60)
@given(schedules)
def test_an_adaptive_schedule_stays_within_its_filter(rows):
    ledger, _ = run(BudgetGate(BUDGET), [charge(*row) for row in rows], Ledger(ADAPTIVE))
    if ledger.steps:
        assert epsilon(ledger, "rdp") == pytest.approx(BUDGET.epsilon)
        opened = RenyiFilter.opened(BUDGET.epsilon, BUDGET.delta, ledger.charges[0], ledger)
        assert renyi_curve(ledger, [opened.order])[0] <= opened.allowed


@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(schedules)
def test_two_thousand_adaptive_schedules(rows):
    ledger, _ = run(BudgetGate(BUDGET), [charge(*row) for row in rows], Ledger(ADAPTIVE))
    assert not ledger.steps or epsilon(ledger, "rdp") <= BUDGET.epsilon * (1 + 1e-9)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(schedules)
def test_five_hundred_fixed_schedules(rows):
    ledger, refused = run(BudgetGate(BUDGET), [charge(*row) for row in rows])
    assert epsilon(ledger) <= BUDGET.epsilon
    assert refused is None or epsilon(replace(ledger, charges=(*ledger.charges, refused))) > BUDGET.epsilon


def test_repeating_blocks_ask_the_engine_only_now_and_then(monkeypatch):
    calls = []
    real = gate.ledger_bracket
    monkeypatch.setattr(gate, "ledger_bracket", lambda *args: calls.append(args) or real(*args))
    ledger, _ = run(BudgetGate(BUDGET), [charge(0.001, 2.0)] * 5000)
    assert len(ledger.charges) > 500
    assert len(calls) < 60


def test_a_plan_that_fits_is_checked_once(monkeypatch):
    plan = [charge(0.01, 1.0 + i / 10) for i in range(10)]
    check = BudgetGate(BUDGET, plan=plan)
    check(Ledger(), plan[:1])
    monkeypatch.setattr(gate, "ledger_bracket", None)
    monkeypatch.setattr(gate, "renyi_curve", None)
    monkeypatch.setattr(gate, "_block_curve", lambda charges, orders: 0.0)
    assert run(check, plan)[1] is None


def test_a_charge_made_behind_the_gate_counts():
    check = BudgetGate(BUDGET)
    check(Ledger(), [charge()])
    with pytest.raises(BudgetError):
        check(Ledger(charges=(charge(0.5, 0.5, 100),)), [charge()])


def test_another_past_is_counted_afresh():
    check, same = BudgetGate(BUDGET), charge()
    check(Ledger(charges=(same, same)), [same])
    with pytest.raises(BudgetError):
        check(Ledger(charges=(charge(0.5, 0.5, 100), same)), [same])


def test_a_settled_block_gives_its_steps_back():
    check = BudgetGate(BUDGET)
    ledger, refused = run(check, [charge()] * 1000)
    settled = replace(ledger, charges=(*ledger.charges[:-1], charge(steps=1)))
    check(settled, [charge(steps=1)])
    with pytest.raises(BudgetError):
        check(ledger, [refused])


def test_a_share_pays_only_for_its_own_run():
    first, second = BUDGET.split([0.5, 0.5])
    ledger, _ = run(BudgetGate(first), [charge(0.01, 2.0)] * 1000)
    both, _ = run(BudgetGate(second, paid_elsewhere=ledger.steps), [charge(0.01, 2.0)] * 1000, ledger)
    assert both.steps == 2 * ledger.steps
    assert epsilon(both) <= BUDGET.epsilon


def test_other_policies_stop_at_the_budget_of_the_accountant_that_reads_them():
    for event, header, name in [
        (FixedSizeSample(10, 1000, (GaussianSumQuery(1.0, 4.0),)), LedgerHeader(neighbours="replace_one"), "pld"),
        (BallsInBinsStep(50, (GaussianSumQuery(1.0, 2.0),)), LedgerHeader(), "rdp"),
    ]:
        ledger, refused = run(BudgetGate(BUDGET), [Charge(event, 50)] * 500, Ledger(header))
        assert epsilon(ledger, name) <= BUDGET.epsilon
        assert refused is not None


def test_what_cannot_be_accounted_is_refused_before_it_is_run():
    event = ShuffledStep(10, (GaussianSumQuery(1.0, 1.0),))
    with pytest.raises(RefusedError, match="shuffled"):
        BudgetGate(BUDGET)(Ledger(LedgerHeader(neighbours="replace_one")), [Charge(event, 1)])


def test_a_delta_that_allows_publication_is_refused():
    with pytest.raises(InputError, match="delta"):
        BudgetGate(Budget(1.0, 1e-2))(Ledger(LedgerHeader(dataset_size=1000)), [charge()])
