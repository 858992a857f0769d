"""What every clipping rule must do: no record exceeds the bound, whatever its values (failure-modes F5, F6)."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.layers.record_gradients import Dense
from tacit.mechanisms import CLIPPING_RULES, SLACK, ClipGroups, ClipRecords, GaussianNoise, VectorGroup, build_mechanism

HOSTILE = [0.0, -0.0, math.nan, math.inf, -math.inf, 3e38, -3e38, 1e-45, 5e-324, 6e-8, 65504.0, 1.0, -1.0]
values = st.one_of(st.sampled_from(HOSTILE), st.floats(width=32, allow_nan=True, allow_infinity=True))
dtypes = st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64])


def clip_and_sum(vectors, mechanism):
    """What the records in rows of these vectors add up to."""
    rows = {n: Dense(v if v.dtype == torch.float64 else v.float()) for n, v in vectors.items()}
    factors = mechanism.factors(torch.stack([one.squared_norms() for one in rows.values()], dim=1))
    return {n: one.weighted_sum(factors[:, i].contiguous()) for i, (n, one) in enumerate(rows.items())}


def released_norm(record: torch.Tensor, rule: str, clip_norm: float) -> float:
    """The norm of what one record adds to the sum."""
    mechanism = build_mechanism(
        ClipRecords(clip_norm, rule), GaussianNoise(multiplier=1.0), {"w": record.shape}, slack=SLACK
    )
    sums = clip_and_sum({"w": record[None]}, mechanism)
    assert torch.isfinite(sums["w"]).all()
    return float(sums["w"].norm())


@pytest.mark.parametrize("rule", CLIPPING_RULES)
@settings(max_examples=5000, deadline=None)
@given(st.lists(values, min_size=1, max_size=12), dtypes, st.floats(1e-3, 1e3))
def test_no_record_exceeds_the_bound(rule, record, dtype, clip_norm):
    vector = torch.tensor(record, dtype=torch.float64).to(dtype)
    assert released_norm(vector, rule, clip_norm) <= clip_norm * (1 + SLACK)


@pytest.mark.parametrize("rule", CLIPPING_RULES)
@pytest.mark.parametrize("dimension", [1, 1000, 100_000])
def test_no_long_vector_exceeds_the_bound(rule, dimension):
    generator = np.random.default_rng(dimension)
    for scale in (1e-20, 1e-3, 1.0, 1e3, 1e30):
        vector = torch.from_numpy(generator.standard_normal(dimension) * scale).float()
        assert released_norm(vector, rule, 1.0) <= 1 + SLACK


@pytest.mark.parametrize("rule", CLIPPING_RULES)
def test_a_zero_gradient_adds_nothing(rule):
    assert released_norm(torch.zeros(3), rule, 1.0) == 0.0


@pytest.mark.parametrize("rule", CLIPPING_RULES)
def test_joint_clipping_bounds_the_scaled_concatenation(rule):
    groups = (VectorGroup(("a", "b"), 1.0, scales=(1.0, 100.0)),)
    shapes = {"a": torch.Size([2]), "b": torch.Size([3])}
    mechanism = build_mechanism(ClipGroups(groups, rule), GaussianNoise(multiplier=1.0), shapes, slack=SLACK)
    sums = clip_and_sum({"a": torch.full((1, 2), 7.0), "b": torch.full((1, 3), 900.0)}, mechanism)
    assert math.hypot(float(sums["a"].norm()), float(sums["b"].norm()) / 100) <= 1 + SLACK
