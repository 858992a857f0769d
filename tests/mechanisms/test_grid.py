"""The integer grid: no record is longer than its clip norm, in exact arithmetic."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import InputError
from tacit.mechanisms import AdaptiveClip, ClipLayers, ClipRecords, GaussianNoise, Grid, build_mechanism
from tacit.randomness import Randomness

SHAPES = {"w": torch.Size([3, 2]), "b": torch.Size([2])}


def mechanism(clipping=None, multiplier=1.1):
    noise = GaussianNoise(multiplier=multiplier)
    return build_mechanism(clipping or ClipRecords(0.7), noise, SHAPES, slack=0.1, numerics="strict")


@given(st.floats(1e-200, 1e200), st.floats(0.01, 100))
def test_the_step_is_a_power_of_two_and_the_noise_is_rounded_up(clip_norm, multiplier):
    grid = Grid.of(clip_norm)
    steps = Fraction(clip_norm) / Fraction(grid.step)
    assert 2**30 <= steps < 2**31
    stddev = multiplier * clip_norm
    assert Fraction(grid.rounded_up(stddev)) == grid.sigma(stddev) * Fraction(grid.step)
    assert stddev <= grid.rounded_up(stddev) <= stddev + grid.step


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=20), st.floats(1e-3, 1.0))
def test_rounding_never_lengthens(values, clip_norm):
    vector = torch.tensor(values, dtype=torch.float64)
    norm = float(vector.norm())
    clipped = vector * min(1.0, clip_norm / norm if norm else 1.0)
    grid = Grid.of(clip_norm)
    (whole,) = grid.whole([clipped], [1.0])
    length = sum(int(value) ** 2 for value in whole) * Fraction(grid.step) ** 2
    assert length <= Fraction(clip_norm) ** 2
    assert ((whole.double() * grid.step).abs() <= clipped.abs()).all()


def test_a_vector_that_is_too_long_by_rounding_contributes_nothing():
    grid = Grid.of(1.0)
    (whole,) = grid.whole([torch.tensor([1.0, 2.0**-29], dtype=torch.float64)], [1.0])
    assert (whole == 0).all()


def test_queries_say_what_was_done():
    (query,) = mechanism().queries
    assert query.slack == 0
    assert query.grid == Grid.of(0.7).step
    assert query.noise_multiplier == pytest.approx(1.1, rel=1e-9)
    assert query.noise_multiplier >= 1.1
    assert len(mechanism(ClipLayers(1.0)).queries) == 1


def test_the_release_is_whole_steps_over_the_denominator():
    strict = mechanism()
    sums = {name: torch.full(shape, 5, dtype=torch.int64) for name, shape in SHAPES.items()}
    released = strict.release(sums, 4.0, Randomness.seeded(1))
    grid = Grid.of(0.7)
    noise = Randomness.seeded(1).discrete_normals(grid.sigma(strict.stddevs[0]), 6)
    expected = (torch.from_numpy(noise).view(3, 2) + 5).double() * grid.step / 4
    assert torch.equal(released["w"], expected)
    assert strict.zeros(torch.device("cpu"))["b"].dtype == torch.int64


def test_scaled_vectors_are_rounded_in_their_own_units():
    grid = Grid.of(1.0)
    parts = grid.whole([torch.tensor([0.3]), torch.tensor([30.0])], [1.0, 100.0])
    assert [int(part) for part in parts] == [int(float(torch.tensor(0.3)) / grid.step), int(0.3 / grid.step)]


def test_a_grid_cannot_follow_outputs():
    with pytest.raises(InputError, match="AdaptiveClip"):
        mechanism(AdaptiveClip(1.0))
    with pytest.raises(InputError, match="clip norm"):
        Grid.of(1e-300)
