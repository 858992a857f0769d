import numpy as np
import pytest

from tacit.errors import InputError
from tacit.randomness import Randomness
from tacit.sampling import PoissonSampling


def test_adding_a_unit_does_not_shift_the_others():
    policy = PoissonSampling(probability=0.3, expected_size=30)
    few, many = next(policy.draws(100, Randomness.seeded(1))), next(policy.draws(101, Randomness.seeded(1)))
    assert (many[many < 100] == few).all()


def test_probability_one_takes_everybody():
    policy = PoissonSampling(probability=1, expected_size=7)
    assert (next(policy.draws(7, Randomness())) == np.arange(7)).all()


def test_from_the_numbers_people_know():
    policy = PoissonSampling.of(batch_size=256, dataset_size=60_000)
    assert policy.denominator == 256
    assert policy.implied_size == pytest.approx(60_000)
    with pytest.raises(InputError, match="batch_size"):
        PoissonSampling.of(batch_size=11, dataset_size=10)


@pytest.mark.parametrize("field", ["probability", "expected_size"])
@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), None])
def test_bad_numbers_are_named(field, bad):
    values = {"probability": 0.1, "expected_size": 10, field: bad}
    with pytest.raises(InputError, match=field):
        PoissonSampling(**values)
