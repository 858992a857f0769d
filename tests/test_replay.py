"""The replay (failure-modes, first paragraph): the same randomness on D and on D plus one hostile record.

Everything that leaves is compared: ledger bytes must be identical, the released mean may move by C (1 + slack) over the
declared denominator and no more, whatever the record holds.
"""

import math
import tempfile
from functools import cache
from pathlib import Path

import pytest
import torch
from conftest import classify
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import tacit
from tacit.losses import ModelLosses
from tacit.training import DataSource, PrivateSum

STEPS, SIZE, CHUNK, CLIP = 2, 6, 4, 0.8
SAMPLING = {
    "poisson": tacit.PoissonSampling(probability=0.5, expected_size=3),
    "full batch": tacit.PoissonSampling(probability=1.0, expected_size=6),
}
CLIPPING = {
    "clip": tacit.ClipRecords(CLIP),
    "normalise": tacit.ClipRecords(CLIP, rule="normalise"),
    "layers": tacit.ClipLayers(CLIP),
}
hostile = st.lists(
    st.one_of(
        st.sampled_from([math.nan, math.inf, -math.inf, 3e38, -3e38, 1e-45, 0.0, 1e4]), st.floats(-100, 100, width=32)
    ),
    min_size=4,
    max_size=4,
)


def released(folder, name, data, sampling, clipping, unit=None, user_ids=None):
    """Ledger bytes and released means at fixed parameters, with seeded randomness."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    losses = ModelLosses(model, classify)
    path = folder / name / "ledger.jsonl"
    noise, unit = tacit.GaussianNoise(multiplier=1.0), unit or tacit.Records()
    plan = tacit.TrainingPlan(sampling, clipping, noise, STEPS, path, unit=unit, physical_batch=CHUNK)
    engine = PrivateSum(losses, losses.params, plan, randomness=tacit.Randomness.seeded(11))
    source = DataSource(data, user_ids=user_ids)
    means = [engine.release(sample, losses.params) for sample in engine.samples(source, STEPS)]
    engine.close()
    return path.read_bytes() + (folder / name / "ledger.jsonl.head").read_bytes(), means


def plain_data(scale):
    torch.manual_seed(2)
    return torch.randn(SIZE, 4) * scale, torch.randint(0, 2, (SIZE,))


@cache
def without(sampling, clipping, scale):
    """The release on D, the same for every hostile record."""
    with tempfile.TemporaryDirectory() as folder:
        return released(Path(folder), "without", plain_data(scale), SAMPLING[sampling], CLIPPING[clipping])


def distance(one, other):
    return math.sqrt(sum(float((one[name] - other[name]).square().sum()) for name in one))


def check_neighbours(sampling, clipping, record, label, scale):
    inputs, labels = plain_data(scale)
    more = torch.cat([inputs, torch.tensor([record], dtype=torch.float32)]), torch.cat([labels, torch.tensor([label])])
    ledger, means = without(sampling, clipping, scale)
    with tempfile.TemporaryDirectory() as folder:
        ledger_with, means_with = released(Path(folder), "with", more, SAMPLING[sampling], CLIPPING[clipping])
    assert ledger == ledger_with
    bound = CLIP * (1 + 1e-5 + CHUNK * 2**-22) / SAMPLING[sampling].denominator
    for one, other in zip(means, means_with, strict=True):
        assert all(torch.isfinite(value).all() for value in other.values())
        assert distance(one, other) <= bound * (1 + 1e-9)


hostile_records = given(
    record=hostile, label=st.sampled_from([0, 1, -1, 2, 99, -100]), scale=st.sampled_from([1.0, 1e-3, 1e6])
)


@pytest.mark.parametrize("clipping", CLIPPING)
@pytest.mark.parametrize("sampling", SAMPLING)
@settings(max_examples=20, deadline=None)
@hostile_records
def test_neighbours_leave_the_same_ledger_and_nearly_the_same_release(sampling, clipping, record, label, scale):
    check_neighbours(sampling, clipping, record, label, scale)


@pytest.mark.slow
@pytest.mark.parametrize("clipping", CLIPPING)
@pytest.mark.parametrize("sampling", SAMPLING)
@settings(max_examples=170, deadline=None)
@hostile_records
def test_a_thousand_neighbours(sampling, clipping, record, label, scale):
    check_neighbours(sampling, clipping, record, label, scale)


def test_all_rows_of_a_user_count_as_one(tmp_path):
    inputs, labels = torch.randn(20, 4), torch.randint(0, 2, (20,))
    users = [i // 4 for i in range(20)]
    sampling, clipping = tacit.PoissonSampling(probability=1.0, expected_size=5), tacit.ClipRecords(CLIP)
    ledger, means = released(tmp_path, "all", (inputs, labels), sampling, clipping, tacit.Users(), users)
    fewer, means_fewer = released(
        tmp_path, "fewer", (inputs[:16], labels[:16]), sampling, clipping, tacit.Users(), users[:16]
    )
    assert ledger == fewer
    for one, other in zip(means, means_fewer, strict=True):
        assert 0 < distance(one, other) <= CLIP * (1 + 1e-4) / 5


def test_a_record_in_a_microbatch_moves_the_sum_by_at_most_twice_the_clip(tmp_path):
    inputs, labels = torch.randn(20, 4), torch.randint(0, 2, (20,))
    sampling, clipping = tacit.PoissonSampling(probability=1.0, expected_size=20), tacit.ClipRecords(CLIP)
    unit = tacit.Microbatches(5, protect="record")
    _, means = released(tmp_path, "all", (inputs, labels), sampling, clipping, unit)
    _, fewer = released(tmp_path, "fewer", (inputs[:19], labels[:19]), sampling, clipping, unit)
    assert tacit.read_ledger(tmp_path / "all").charges[0].event.queries[0].multiplicity == 2
    for one, other in zip(means, fewer, strict=True):
        assert 0 < distance(one, other) <= 2 * CLIP * (1 + 1e-4) / 20
