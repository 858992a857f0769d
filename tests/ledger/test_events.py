import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import InputError, LedgerError
from tacit.ledger import (
    BallsInBinsStep,
    Charge,
    FixedSizeSample,
    GaussianSumQuery,
    NegativeBinomialTrials,
    PoissonSample,
    PoissonTrials,
    PosteriorSample,
    ShuffledStep,
    Tuned,
    event_from_json,
    event_to_json,
    merged_noise_multiplier,
)

QUERY = GaussianSumQuery(1.5, 2.0, slack=1e-5, multiplicity=2, group="conv")
positive = st.floats(1e-6, 1e6)


@pytest.mark.parametrize(
    "event",
    [
        PoissonSample(0.25, (QUERY, QUERY)),
        FixedSizeSample(3, 10, (QUERY,)),
        BallsInBinsStep(7, (QUERY,)),
        ShuffledStep(7, (QUERY,)),
        PosteriorSample(2.5, 0.1, exact=True),
        Tuned(((PoissonSample(0.25, (QUERY,)), 30), (PoissonSample(1.0, (QUERY,)), 1)), PoissonTrials(5.0)),
        Tuned(((PoissonSample(0.25, (QUERY,)), 30),), NegativeBinomialTrials(0.0, 0.05)),
    ],
)
def test_an_event_survives_json(event):
    assert event_from_json(event_to_json(event)) == event


@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=5))
def test_groups_merge_to_one_query(groups):
    queries = tuple(GaussianSumQuery(clip, noise) for clip, noise in groups)
    S_star = math.sqrt(sum((clip / noise) ** 2 for clip, noise in groups))
    assert merged_noise_multiplier(queries) == pytest.approx(1 / S_star)


def test_sensitivity_counts_slack_and_multiplicity():
    assert QUERY.sensitivity == pytest.approx(2 * 1.5 * (1 + 1e-5))


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, "1"])
def test_a_query_needs_positive_finite_numbers(bad):
    with pytest.raises(InputError, match="clip_norm"):
        GaussianSumQuery(bad, 1.0)
    with pytest.raises(InputError, match="noise_stddev"):
        GaussianSumQuery(1.0, bad)


@pytest.mark.parametrize("bad", [0, -0.1, 1.1, math.nan])
def test_a_probability_lies_in_its_range(bad):
    with pytest.raises(InputError, match="probability"):
        PoissonSample(bad, (QUERY,))


def test_an_unknown_event_is_refused_by_name():
    with pytest.raises(LedgerError, match="'quantum'"):
        event_from_json({"sampling": "quantum", "queries": []})


def test_a_fixed_size_sample_is_not_larger_than_its_population():
    with pytest.raises(InputError, match="population 10"):
        FixedSizeSample(11, 10, (QUERY,))


def test_a_count_beyond_all_counting_is_refused(event):
    with pytest.raises(InputError, match="at most 1,000,000,000,000"):
        Charge(event, 10**30)
    with pytest.raises(InputError, match="multiplicity"):
        GaussianSumQuery(1.0, 1.0, multiplicity=10**13)


def test_a_group_is_named_by_text():
    with pytest.raises(InputError, match="group must be a name"):
        GaussianSumQuery(1.0, 1.0, group={"a": 1})
