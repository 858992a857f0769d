import math

import pytest

from tacit.errors import InputError
from tacit.ledger import GaussianSumQuery, merged_noise_multiplier
from tacit.mechanisms import (
    VectorGroup,
    clip_norms_by_dimension,
    joint_clip,
    noise_by_dimension,
    noise_proportional,
)

NORMS, DIMENSIONS = [1.0, 2.0, 4.0], [100, 300, 600]


@pytest.mark.parametrize(
    "stddevs", [noise_proportional(1.1, NORMS), noise_by_dimension(1.1, NORMS, DIMENSIONS)], ids=["equal", "dimension"]
)
def test_every_allocation_gives_the_multiplier_of_the_whole(stddevs):
    queries = tuple(GaussianSumQuery(norm, stddev) for norm, stddev in zip(NORMS, stddevs, strict=True))
    assert merged_noise_multiplier(queries) == pytest.approx(1.1)


def test_clip_norms_by_dimension_add_up():
    assert math.hypot(*clip_norms_by_dimension(2.0, DIMENSIONS)) == pytest.approx(2.0)


def test_joint_clipping_on_the_papers_example():
    scaled, norms = joint_clip([3.0, 100.0], [1, 100], 1.0)
    assert scaled == pytest.approx(math.sqrt(10))
    assert norms == pytest.approx([3 / math.sqrt(10), 100 / math.sqrt(10)])


def test_a_zero_vector_stays_zero():
    assert joint_clip([0.0, 0.0], [1, 2], 1.0) == (0.0, [0.0, 0.0])


@pytest.mark.parametrize(
    "arguments",
    [
        {"names": ()},
        {"clip_norm": 0},
        {"clip_norm": math.nan},
        {"noise_stddev": -1},
        {"scales": (1.0, 2.0)},
        {"scales": (0.0,)},
    ],
)
def test_a_bad_group_is_refused(arguments):
    with pytest.raises(InputError):
        VectorGroup(**{"names": ("w",), "clip_norm": 1.0, **arguments})
