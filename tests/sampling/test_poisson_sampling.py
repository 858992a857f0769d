import numpy as np
import pytest

from tacit.errors import InputError
from tacit.randomness import Randomness
from tacit.sampling import PoissonSampling


def test_adding_a_unit_does_not_shift_the_others():
    policy = PoissonSampling(probability=0.3, expected_size=30)
    few, many = next(policy.draws(100, Randomness.seeded(1))), next(policy.draws(101, Randomness.seeded(1)))
    assert (many[many < 100] == few).all()


def test_the_numbers_of_several_steps_come_at_once_and_decide_one_step_each():
    policy, asked = PoissonSampling(probability=0.5, expected_size=50), []
    source = Randomness.seeded(3)
    words = source.words
    source.words = lambda purpose, count: asked.append(count) or words(purpose, count)
    draws = policy.draws(100, source)
    taken = np.array([np.isin(np.arange(100), next(draws)) for _ in range(2000)])
    assert asked == [100 * 20] * 100
    assert abs(taken.mean() - 0.5) < 5 * 0.5 / taken.size**0.5
    assert abs((taken[1:] == taken[:-1]).mean() - 0.5) < 5 * 0.5 / taken.size**0.5  # neither steps ...
    assert abs((taken[:, 1:] == taken[:, :-1]).mean() - 0.5) < 5 * 0.5 / taken.size**0.5  # ... nor units go together


def test_of_far_more_units_than_were_declared_one_step_is_drawn_at_a_time():
    policy, asked = PoissonSampling(probability=0.5, expected_size=1), []
    source = Randomness.seeded(3)
    words = source.words
    source.words = lambda purpose, count: asked.append(count) or words(purpose, count)
    next(policy.draws(10**6, source))
    assert asked == [10**6]


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


@pytest.mark.parametrize("probability", [0.05, 1e-3])
def test_adding_a_unit_does_not_shift_the_others_where_few_are_drawn(probability):
    policy = PoissonSampling(probability, expected_size=30)
    few, many = policy.draws(5000, Randomness.seeded(1)), policy.draws(5001, Randomness.seeded(1))
    for _ in range(20):
        here, there = next(few), next(many)
        assert (there[there < 5000] == here).all()


def test_the_work_follows_the_sample_not_the_population(monkeypatch):
    asked = []
    words = Randomness.words
    monkeypatch.setattr(
        Randomness, "words", lambda self, purpose, count: (asked.append(count), words(self, purpose, count))[1]
    )
    drawn = next(PoissonSampling(1e-7, expected_size=1000).draws(10**10, Randomness()))
    assert 700 < len(drawn) < 1300
    assert (np.diff(drawn) > 0).all()
    assert drawn[-1] < 10**10
    assert sum(asked) < 2000
