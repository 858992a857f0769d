"""The rule for defaults: public numbers in, settings with reasons out."""

from dataclasses import replace

import pytest

from tacit.accountants import get_accountant
from tacit.errors import InputError
from tacit.ledger import Charge, GaussianSumQuery, Ledger, PoissonSample
from tacit.tables import Facts, default_delta, recipe
from tacit.tables.settings import spread_event

ADULT = Facts(32_561, 143, 143, 1, "classification", "sgld", "linear", 0.5, 1e-5)
SMALL = Facts(426, 31, 31, 1, "classification", "sgld", "linear", 1.0, 1e-5)


def test_the_rule_on_the_tables_it_was_measured_on():
    large, small = recipe(ADULT), recipe(SMALL)
    assert (large.probability, large.clip_norm, large.learning_rate) == (0.05, 0.7, 40.0)
    assert (small.probability, small.clip_norm, small.prior_stddev) == (0.2, 0.5, 10.0)
    assert small.snr == pytest.approx(41, abs=0.5)
    assert small.learning_rate == pytest.approx(3.2, abs=0.1)
    assert not small.warnings


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
@pytest.mark.parametrize("facts", [ADULT, replace(SMALL, task="regression")])
def test_all_charges_together_use_the_budget_and_no_more(facts, accountant):
    found = recipe(replace(facts, accountant=accountant))
    charges = [Charge(PoissonSample(found.probability, (GaussianSumQuery(1.0, found.noise_multiplier),)), found.steps)]
    if found.spread_noise is not None:
        charges.append(Charge(spread_event(found.spread_noise), 1))
    cost = get_accountant(accountant).guarantee(Ledger.planned(charges), delta=facts.delta).epsilon
    assert 0.999 * facts.epsilon < cost <= facts.epsilon
    assert (found.spread_noise is not None) == (facts.task == "regression")


def test_every_setting_has_a_reason():
    settings = recipe(ADULT).settings
    assert {"noise multiplier", "clip norm", "steps", "learning rate", "sampling probability"} <= {
        s.name for s in settings
    }
    assert all(len(setting.why) > 10 for setting in settings)


def test_too_little_data_is_said():
    assert "too little data" in recipe(replace(SMALL, units=100)).warnings[0]


@pytest.mark.parametrize("units", [10, 426, 9_999, 10_001, 48_842, 10**7])
def test_delta_is_well_below_one_over_n(units):
    assert default_delta(units) <= min(1e-5, 0.1 / units)


@pytest.mark.parametrize("change", [{"epsilon": 0.0}, {"delta": 0.1}, {"units": 0}, {"method": "none"}])
def test_bad_numbers_are_refused(change):
    with pytest.raises(InputError):
        replace(SMALL, **change)
