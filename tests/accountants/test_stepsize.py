import pytest

from tacit.accountants import (
    SGLDTask,
    calibrate_noise,
    gaussian_limit,
    max_decreasing_step,
    max_fixed_step,
    theorem_3_bound,
    wang_bound,
)
from tacit.errors import InputError

TASK = SGLDTask(epsilon=0.5, delta=1e-5, dataset_size=50_000, steps=1000)


def test_the_exact_step_lies_between_wang_and_the_gaussian_limit():
    _, fixed, decreasing = gaussian_limit(TASK)
    assert wang_bound(TASK) < max_fixed_step(TASK, 256, "rdp") <= max_fixed_step(TASK, 256, "pld") < fixed * 1.01
    assert max_fixed_step(TASK, 256, "rdp") < max_decreasing_step(TASK, 256) < decreasing


def test_the_quoted_step_of_paper_m_is_not_allowed():
    task = SGLDTask(epsilon=0.1, delta=1e-5, dataset_size=50_000, steps=10_000)
    assert theorem_3_bound(task, c2=0.908**0.5) == pytest.approx(0.103, abs=1e-3)
    assert gaussian_limit(task)[2] < 0.103


def test_a_finer_schedule_is_no_worse():
    coarse, fine = (max_decreasing_step(TASK, 256, "rdp", buckets) for buckets in (20, 300))
    assert coarse <= fine * (1 + 1e-6)


def test_the_step_is_the_noise_in_other_words():
    noise = calibrate_noise(0.5, 1e-5, probability=256 / 50_000, steps=1000, accountant="rdp").noise_multiplier
    q = 256 / 50_000
    assert q * (50_000 / max_fixed_step(TASK, 256, "rdp")) ** 0.5 == pytest.approx(noise, rel=1e-9)


@pytest.mark.parametrize("field", ["epsilon", "delta", "dataset_size", "steps", "lipschitz"])
@pytest.mark.parametrize("value", [0, float("nan")])
def test_bad_input_is_named(field, value):
    with pytest.raises(InputError, match=field):
        SGLDTask(**{"epsilon": 0.1, "delta": 1e-5, "dataset_size": 10, "steps": 1, "lipschitz": 1.0, field: value})


def test_a_batch_larger_than_the_data_is_named():
    with pytest.raises(InputError, match="batch_size"):
        max_fixed_step(TASK, 60_000)
