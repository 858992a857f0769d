import math

import pytest

import tacit
from tacit.errors import InputError


def test_paper_m_s_schedule_is_a_power():
    power = tacit.inference.PolynomialStep(0.3, gamma=1 / 3)
    for step in (0, 1, 17, 1000):
        assert power.at(step) == pytest.approx(tacit.inference.DecreasingStep(0.3).at(step))


def test_a_cycle_repeats_and_falls():
    cycle = tacit.inference.CyclicalStep(0.5, length=20, exploration=0.75)
    sizes = [cycle.at(step) for step in range(20)]
    assert sizes == sorted(sizes, reverse=True)
    assert [cycle.at(step + 20) for step in range(20)] == sizes
    assert sizes[10] == pytest.approx(0.25)
    assert min(sizes) > 0
    assert [step for step in range(20) if cycle.samples(step)] == [15, 16, 17, 18, 19]


@pytest.mark.parametrize(
    "bad",
    [
        lambda: tacit.inference.PolynomialStep(0.0),
        lambda: tacit.inference.PolynomialStep(1.0, b=-1),
        lambda: tacit.inference.PolynomialStep(1.0, gamma=math.inf),
        lambda: tacit.inference.CyclicalStep(-1.0, 5),
        lambda: tacit.inference.CyclicalStep(1.0, 0),
        lambda: tacit.inference.CyclicalStep(1.0, 5, exploration=1.0),
    ],
)
def test_what_is_no_schedule_is_refused(bad):
    with pytest.raises(InputError):
        bad()
