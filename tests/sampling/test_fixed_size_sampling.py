import pytest

from tacit.errors import InputError
from tacit.randomness import Randomness
from tacit.sampling import FixedSizeSampling


def test_another_population_is_refused():
    with pytest.raises(InputError, match="declared population is 10"):
        next(FixedSizeSampling(size=3, population=10).draws(11, Randomness()))


def test_a_sample_larger_than_the_population_is_refused():
    with pytest.raises(InputError, match="size"):
        FixedSizeSampling(size=11, population=10)
