import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.accountants import RDPAccountant, selection_guarantee
from tacit.accountants.renyi.trials import expected_trials, gamma_for_trials
from tacit.errors import InputError
from tacit.ledger import Charge, GaussianSumQuery, Ledger, PoissonSample

TRIAL = Ledger.planned([Charge(PoissonSample(0.01, (GaussianSumQuery(1.0, 1.2),)), 1000)])


@given(st.floats(1.01, 1e4), st.floats(-0.5, 5))
def test_gamma_gives_the_expected_trials(trials, eta):
    assert expected_trials(gamma_for_trials(trials, eta), eta) == pytest.approx(trials, rel=1e-6)


def test_a_search_costs_more_than_a_trial_and_less_than_all_of_them():
    one = RDPAccountant().guarantee(TRIAL, delta=1e-5).epsilon
    all_of_them = RDPAccountant().guarantee(Ledger.planned(TRIAL.charges * 50), delta=1e-5).epsilon
    search = selection_guarantee(TRIAL, delta=1e-5, trials=50)
    assert one < search.epsilon < all_of_them
    assert "drawn" in search.assumptions[-1]


@pytest.mark.parametrize(("field", "value"), [("trials", 1), ("trials", float("nan")), ("eta", -1.0)])
def test_bad_input_is_named(field, value):
    with pytest.raises(InputError, match=field):
        selection_guarantee(TRIAL, delta=1e-5, **{"trials": 10, field: value})


@pytest.mark.slow
@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_against_dp_accounting(eta):
    dp = pytest.importorskip("dp_accounting")
    rdp = pytest.importorskip("dp_accounting.rdp")
    event = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(1.2)), 1000)
    search = dp.dp_event.RepeatAndSelectDpEvent(event, 50.0, eta)
    theirs = rdp.RdpAccountant(orders=range(2, 200)).compose(search)
    ours = selection_guarantee(TRIAL, delta=1e-5, trials=50, eta=eta).epsilon
    assert ours == pytest.approx(theirs.get_epsilon(1e-5), rel=0.02)
