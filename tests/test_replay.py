"""The replay (failure-modes, first paragraph): the same randomness on D and on D plus one hostile record.

Everything that leaves is compared: files must be identical, the release may move by what was charged for and no more,
whatever the record holds. The machinery is the audit's own (``tacit.audit.replay``).
"""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.audit.neighbours import (
    CLIPPING,
    HOSTILE,
    LABELS,
    SAMPLING,
    SCALES,
    UNITS,
    Case,
    every_case,
    opposite_of_its_companion,
)
from tacit.audit.replay import check_replay, compare, run_output

FEW = ["poisson", "full batch"], ["clip", "normalise", "layers"]
KNOWN = {}  # the releases on D, the same for every hostile record
hostile = st.lists(
    st.one_of(st.sampled_from(HOSTILE), st.floats(-100, 100, width=32)),
    min_size=4,
    max_size=4,
)


def check_neighbours(sampling, clipping, record, label, scale):
    broke, share = compare(Case(SAMPLING[sampling], CLIPPING[clipping], record, label, scale), KNOWN)
    assert not broke
    assert share <= 1 + 1e-9


hostile_records = given(record=hostile, label=st.sampled_from(LABELS), scale=st.sampled_from(SCALES))


@pytest.mark.parametrize("clipping", FEW[1])
@pytest.mark.parametrize("sampling", FEW[0])
@settings(max_examples=10, deadline=None)
@hostile_records
def test_neighbours_leave_the_same_files_and_nearly_the_same_release(sampling, clipping, record, label, scale):
    check_neighbours(sampling, clipping, record, label, scale)


@pytest.mark.slow
@pytest.mark.parametrize("clipping", CLIPPING)
@pytest.mark.parametrize("sampling", SAMPLING)
@settings(max_examples=50, deadline=None)
@hostile_records
def test_a_thousand_neighbours(sampling, clipping, record, label, scale):
    check_neighbours(sampling, clipping, record, label, scale)


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 5))])
def test_every_policy_rule_and_unit(part):
    finding = check_replay(every_case()[part::5])
    assert finding.held, finding.broke
    assert finding.times > 10


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_moves_the_sum_but_not_by_more_than_its_charge(name):
    unit, rows = UNITS[name]
    case = Case(SAMPLING["full batch"], CLIPPING["clip"], [5.0, -2.0, 3.0, 9.0], unit=unit, rows=rows)
    broke, share = compare(case)
    assert not broke
    assert 0 < share <= 1


def test_a_record_in_a_microbatch_is_charged_for_twice_the_clip():
    case = opposite_of_its_companion(SAMPLING["full batch"])
    assert run_output(case, case.data()).queries[0].multiplicity == 2
    broke, share = compare(case)
    assert not broke
    assert 0 < share <= 1


def test_a_record_that_is_no_number_moves_nothing():
    """But for the last bits of the others, which may be added up in other stretches; the slack is 1e-3."""
    _, share = compare(Case(SAMPLING["full batch"], CLIPPING["clip"], [math.nan] * 4))
    assert share < 1e-6
