"""What every registered accountant must keep, run by itself on each."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from tacit.accountants import ACCOUNTANTS, Refusal, guarantees, ledger_bracket
from tacit.errors import InputError, RefusedError
from tacit.ledger import Charge, GaussianSumQuery, Ledger, LedgerHeader, PoissonSample, ShuffledStep

DELTA = 1e-5
LEDGERS = {
    "typical": [(0.01, 1.0, 500)],
    "mixed": [(0.005, 0.8, 30), (0.02, 2.0, 200), (1.0, 30.0, 3)],
    "full batch": [(1.0, 10.0, 20)],
    "one step": [(0.1, 1.5, 1)],
}

pytestmark = pytest.mark.parametrize("accountant", ACCOUNTANTS.values(), ids=ACCOUNTANTS)


def charge(q, z, steps):
    return Charge(PoissonSample(q, (GaussianSumQuery(1.0, z),)), steps)


def ledger_of(rows, **header):
    return Ledger.planned([charge(*row) for row in rows], LedgerHeader(**header))


def epsilon(accountant, rows, delta=DELTA):
    return accountant.guarantee(ledger_of(rows), delta=delta).epsilon


def test_an_empty_ledger_costs_nothing(accountant):
    assert accountant.guarantee(Ledger(), delta=DELTA).epsilon == 0


@pytest.mark.parametrize("rows", LEDGERS.values(), ids=LEDGERS)
def test_repeats_equal_entries(accountant, rows):
    split = [(q, z, 1) for q, z, steps in rows for _ in range(steps)]
    assert epsilon(accountant, split) == pytest.approx(epsilon(accountant, rows), rel=1e-12)


@dataclass(frozen=True)
class Unheard:
    kind: ClassVar[str] = "unheard_of"
    neighbours: ClassVar[str] = "add_remove"


def test_an_unknown_event_is_refused_by_name(accountant):
    with pytest.raises(RefusedError, match="unheard_of"):
        accountant.guarantee(Ledger.planned([charge(0.01, 1.0, 5), Charge(Unheard(), 1)]), delta=DELTA)


def test_shuffled_passes_are_refused_by_name(accountant):
    event = ShuffledStep(10, (GaussianSumQuery(1.0, 1.0),))
    with pytest.raises(RefusedError, match="shuffled"):
        accountant.guarantee(Ledger.planned([Charge(event, 10)]), delta=DELTA)


@pytest.mark.parametrize("rows", LEDGERS.values(), ids=LEDGERS)
def test_more_noise_never_costs_more(accountant, rows):
    assert epsilon(accountant, [(q, 1.2 * z, n) for q, z, n in rows]) <= epsilon(accountant, rows)


@pytest.mark.parametrize("rows", LEDGERS.values(), ids=LEDGERS)
def test_more_steps_sampling_or_a_smaller_delta_never_cost_less(accountant, rows):
    cost = epsilon(accountant, rows)
    assert epsilon(accountant, [(q, z, 2 * n) for q, z, n in rows]) >= cost
    assert epsilon(accountant, [(min(1.0, 1.5 * q), z, n) for q, z, n in rows]) >= cost
    assert epsilon(accountant, rows, delta=DELTA / 10) >= cost


@pytest.mark.parametrize("rows", LEDGERS.values(), ids=LEDGERS)
def test_a_bound_is_not_below_the_certified_bracket(accountant, rows):
    ledger = ledger_of(rows)
    guarantee = accountant.guarantee(ledger, delta=DELTA)
    if guarantee.is_bound and guarantee.notion == "dp":
        assert guarantee.epsilon >= ledger_bracket(ledger, DELTA).lower
    else:
        assert any("not a bound" in sentence for sentence in guarantee.assumptions)


def test_the_statement_repeats_what_was_declared(accountant):
    header = {"unit": "user", "randomness": "seeded", "assumptions": ("the labels are public",)}
    guarantee = accountant.guarantee(ledger_of([(1.0, 10.0, 3)], **header), delta=DELTA)
    assert guarantee.unit == "user"
    assert guarantee.delta == DELTA
    assert {"the labels are public", "seeded randomness: not releasable"} <= set(guarantee.assumptions)
    assert "hypothetical: no run was recorded" in guarantee.assumptions


def test_an_early_stop_is_said(accountant):
    ledger = replace(ledger_of([(1.0, 10.0, 3)]), planned_steps=9, hypothetical=False)
    assert accountant.guarantee(ledger, delta=DELTA).assumptions == ("holds if the early stop ignored the outputs",)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, float("nan"), float("inf")])
def test_a_meaningless_delta_is_refused_by_name(accountant, delta):
    with pytest.raises(InputError, match="delta"):
        accountant.guarantee(Ledger(), delta=delta)


def test_a_delta_that_allows_publication_is_refused(accountant):
    with pytest.raises(InputError, match="delta"):
        accountant.guarantee(ledger_of([(0.1, 1.0, 1)], dataset_size=1000), delta=1e-3)


def test_other_neighbours_are_refused(accountant):
    with pytest.raises(RefusedError, match="neighbours"):
        accountant.guarantee(ledger_of([(0.1, 1.0, 1)], neighbours="replace_one"), delta=DELTA)


def test_an_adaptive_schedule_is_stated_at_its_budget_or_refused(accountant):
    budget = {"schedule": "adaptive", "epsilon": 2.0, "delta": DELTA}
    [answer] = [
        answer
        for answer in guarantees(ledger_of([(0.01, 1.0, 100)], **budget), DELTA)
        if answer.accountant == accountant.name
    ]
    if isinstance(answer, Refusal):
        assert "adaptive" in answer.reason
    else:
        assert answer.epsilon == pytest.approx(2.0)
        assert any("filter" in sentence for sentence in answer.assumptions)
