"""What every registered sampling policy must do, run on all of them."""

import numpy as np
import pytest
from scipy import stats

from tacit.ledger import GaussianSumQuery, event_from_json, event_to_json
from tacit.randomness import Randomness
from tacit.sampling import SAMPLING_POLICIES

POPULATION, DRAWS = 100, 4000


@pytest.fixture(params=SAMPLING_POLICIES.values(), ids=SAMPLING_POLICIES)
def policy(request):
    return request.param


@pytest.fixture
def taken(policy):
    """Whether unit u took part in draw d."""
    randomness = Randomness.seeded(5)
    taken = np.zeros((DRAWS, POPULATION), dtype=bool)
    for draw, units in zip(taken, policy.draws(POPULATION, randomness), strict=False):
        draw[units] = True
    return taken


def test_every_unit_is_drawn_at_the_recorded_rate(policy, taken):
    rate = policy.event((GaussianSumQuery(1.0, 1.0),)).probability
    counts = taken.sum(0)
    assert stats.binomtest(int(counts.sum()), DRAWS * POPULATION, rate).pvalue > 1e-6
    assert min(stats.binomtest(int(count), DRAWS, rate).pvalue for count in counts) > 1e-6 / POPULATION


def test_draws_of_one_unit_do_not_depend_on_the_pass_before(policy, taken):
    lag, rate = policy.steps_per_pass, taken.mean()
    repeated = (taken[lag:] & taken[:-lag]).mean()
    assert abs(repeated - rate**2) < 6 * np.sqrt(rate**2 / taken.size)


def test_steps_that_are_drawn_together_see_every_unit_once(policy, taken):
    if policy.steps_per_pass > 1:
        passes = taken.reshape(-1, policy.steps_per_pass, POPULATION).sum(1)
        assert (passes == 1).all()


def test_units_are_independent_of_each_other(policy, taken):
    together = (taken[:, :50] & taken[:, 50:]).mean()
    assert together == pytest.approx(taken.mean() ** 2, rel=0.15)


def test_the_size_varies_as_the_policy_says(policy, taken):
    sizes, rate = taken.sum(1), taken.mean()
    if policy.neighbours == "replace_one":
        assert (sizes == policy.denominator).all()
    else:
        assert sizes.var() == pytest.approx(POPULATION * rate * (1 - rate), rel=0.15)


def test_the_draw_and_the_event_come_from_the_same_fields(policy):
    event = policy.event((GaussianSumQuery(1.0, 1.0),))
    assert event.probability == pytest.approx(policy.denominator / policy.implied_size)
    assert event.neighbours == policy.neighbours
    assert event_from_json(event_to_json(event)) == event


def test_units_come_once_and_in_order(policy):
    drawn = next(policy.draws(POPULATION, Randomness()))
    assert (np.diff(drawn) > 0).all()
