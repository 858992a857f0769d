"""Strict numerics through the engine: exact sums, exact sensitivity, the same ledger on neighbours."""

import pytest
import torch
from conftest import classify
from torch import nn

import tacit
from tacit.gradients import clipped_sum
from tacit.ledger import DiscretePoissonSample
from tacit.losses import ModelLosses
from tacit.mechanisms import build_mechanism

CLIP = 0.8


def strict_sum(model, batch, numerics="strict", chunk=256, sizes=None, clipping=None):
    losses = ModelLosses(model, classify)
    shapes = {name: value.shape for name, value in losses.params.items()}
    noise, clipping = tacit.GaussianNoise(multiplier=1.0), clipping or tacit.ClipRecords(CLIP)
    mechanism = build_mechanism(clipping, noise, shapes, slack=1e-5, numerics=numerics)
    return clipped_sum(losses, losses.params, batch, mechanism, chunk=chunk, sizes=sizes).sums, mechanism


def permuted(data):
    order = torch.randperm(len(data[0]))
    return tuple(part[order] for part in data)


def test_the_order_of_records_and_the_chunks_change_nothing_at_all(model, data):
    whole, _ = strict_sum(model, data)
    for chunk in (1, 7, 256):
        other, _ = strict_sum(model, permuted(data), chunk=chunk)
        assert all(torch.equal(whole[name], other[name]) for name in whole)
        assert all(value.dtype == torch.int64 for value in other.values())


def test_in_float64_the_order_changes_the_twelfth_digit_at_most(model, data):
    double = model.double()
    data = (data[0].double(), data[1])
    whole, _ = strict_sum(double, data, "float64")
    other, _ = strict_sum(double, permuted(data), "float64", chunk=7)
    for name, value in whole.items():
        assert torch.allclose(value, other[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("record", [0.0, 1e4, float("nan"), float("inf"), 3e38])
def test_one_record_more_adds_its_own_whole_numbers_and_nothing_else(model, data, record):
    more = torch.cat([data[0], torch.full((1, 5), record)]), torch.cat([data[1], torch.tensor([1])])
    without, mechanism = strict_sum(model, data)
    with_it, _ = strict_sum(model, more)
    alone, _ = strict_sum(model, (more[0][-1:], more[1][-1:]))
    assert all(torch.equal(with_it[name] - without[name], alone[name]) for name in alone)
    (grid,) = mechanism._grids
    assert sum(int(value.square().sum()) for value in alone.values()) <= grid.longest


def test_strict_sums_are_the_plain_sums_on_a_grid(model, data):
    whole, mechanism = strict_sum(model, data)
    plain, _ = strict_sum(model, data, "float64")
    (grid,) = mechanism._grids
    for name, value in whole.items():
        assert torch.allclose(value.double() * grid.step, plain[name].double(), atol=1e-5)


def test_units_of_several_rows(model, data):
    sizes = [3, 1, 2, 2]
    whole, _ = strict_sum(model, (data[0][:8], data[1][:8]), sizes=sizes)
    parts = [
        strict_sum(model, (data[0][a:b], data[1][a:b]), sizes=[b - a])[0] for a, b in ((0, 3), (3, 4), (4, 6), (6, 8))
    ]
    assert all(torch.equal(whole[name], sum(part[name] for part in parts)) for name in whole)


def run(folder, data, randomness=None, **plan):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    method = tacit.SGD(model, classify, 0.1)
    plan = tacit.TrainingPlan(
        tacit.PoissonSampling(0.5, 20), tacit.ClipRecords(CLIP), tacit.GaussianNoise(multiplier=1.0), 3,
        folder / "ledger.jsonl", numerics="strict", **plan,
    )  # fmt: skip
    return tacit.train(method, data, plan, randomness=randomness)


def test_train_writes_what_it_did(tmp_path, data):
    found = run(tmp_path, data, budget=tacit.Budget(20.0, 1e-5))
    event = found.ledger.charges[0].event
    assert isinstance(event, DiscretePoissonSample)
    assert event.queries[0].grid > 0
    names = [one.accountant for one in tacit.guarantees(found.ledger, 1e-5) if isinstance(one, tacit.Guarantee)]
    assert names == ["pld", "rdp"]


def test_neighbours_leave_the_same_ledger(tmp_path, data):
    more = torch.cat([data[0], torch.full((1, 5), float("nan"))]), torch.cat([data[1], torch.tensor([99])])
    for name, rows in (("without", data), ("with", more)):
        (tmp_path / name).mkdir()
        run(tmp_path / name, rows, tacit.Randomness.seeded(3))
    one, other = ((tmp_path / name / "ledger.jsonl").read_bytes() for name in ("without", "with"))
    assert one == other


def test_a_permuted_data_set_gives_the_very_same_posterior_without_sampling(tmp_path, data):
    kept = []
    for name, rows in (("one", data), ("other", permuted(data))):
        torch.manual_seed(0)
        model = nn.Linear(5, 3)
        plan = tacit.TrainingPlan(
            tacit.PoissonSampling(1.0, 40), tacit.ClipRecords(CLIP), tacit.GaussianNoise(multiplier=1.0), 3,
            tmp_path / f"{name}.jsonl", numerics="strict",
        )  # fmt: skip
        method = tacit.SGD(model, classify, 0.1)
        kept.append(next(iter(tacit.train(method, rows, plan, randomness=tacit.Randomness.seeded(5)).posterior)))
    assert all(torch.equal(kept[0][name], kept[1][name]) for name in kept[0])


def test_strict_langevin_noise(tmp_path, data):
    method = tacit.SGLD(nn.Linear(5, 3), classify, prior=tacit.GaussianPrior(1.0), step_size=1e-3, dataset_size=40)
    sampling = tacit.PoissonSampling(0.5, 20)
    plan = tacit.TrainingPlan(sampling, tacit.ClipRecords(CLIP), None, 3, tmp_path / "ledger.jsonl", numerics="strict")
    assert isinstance(tacit.train(method, data, plan).ledger.charges[0].event, DiscretePoissonSample)


def test_what_is_not_proved_is_refused_before_a_ledger_exists(tmp_path, data):
    noise, clipping = tacit.GaussianNoise(multiplier=1.0), tacit.ClipRecords(1.0)
    path = tmp_path / "run" / "ledger.jsonl"
    for sampling, unit in (
        (tacit.FixedSizeSampling(5, 40), tacit.Records()),
        (tacit.BallsInBinsSampling(4, 10), tacit.Records()),
        (tacit.PoissonSampling(0.5, 20), tacit.Microbatches(4, protect="record")),
    ):
        with pytest.raises(tacit.InputError, match="strict numerics"):
            tacit.PrivateGradient(
                nn.Linear(5, 3), classify, sampling, clipping, noise, ledger=path, unit=unit, numerics="strict"
            )
    with pytest.raises(tacit.InputError, match="numerics must be"):
        tacit.TrainingPlan(tacit.PoissonSampling(0.5, 20), clipping, noise, 3, path, numerics="exact")
    assert not path.exists()
