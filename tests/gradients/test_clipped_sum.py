import pytest
import torch
from conftest import classify
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tacit import kernels
from tacit.errors import InputError
from tacit.gradients import clipped_sum
from tacit.losses import ModelLosses
from tacit.mechanisms import ClipRecords, GaussianNoise, build_mechanism


def summed(losses: ModelLosses, batch, norm=0.5, **options):
    shapes = {name: value.shape for name, value in losses.params.items()}
    mechanism = build_mechanism(ClipRecords(norm), GaussianNoise(multiplier=1.0), shapes, slack=1e-5)
    return clipped_sum(losses, losses.params, batch, mechanism, **{"chunk": 16, **options})


def by_hand(model, batch, norm=0.5):
    """One plain backward pass per record."""
    total = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in model.named_parameters() if p.requires_grad}
    for record in range(len(batch[0])):
        loss = classify(model, (batch[0][record : record + 1], batch[1][record : record + 1])).sum()
        parameters = [p for p in model.parameters() if p.requires_grad]
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        size = sum(g.double().square().sum() for g in gradients).sqrt()
        for name, gradient in zip(total, gradients, strict=True):
            total[name] += gradient.double() * min(1.0, norm / float(size))
    return total


def assert_same(sums, wanted, tolerance=1e-5):
    for name, value in wanted.items():
        torch.testing.assert_close(
            sums[name], value, rtol=tolerance, atol=tolerance * (1 + float(value.abs().max())), check_dtype=False
        )


def test_it_equals_one_backward_pass_per_record(model, data):
    assert_same(summed(ModelLosses(model, classify), data).sums, by_hand(model, data))


@settings(max_examples=100, deadline=None)
@given(chunk=st.integers(1, 50))
def test_the_physical_batch_changes_nothing(chunk):
    torch.manual_seed(1)
    model, data = nn.Linear(3, 2), (torch.randn(23, 3), torch.randint(0, 2, (23,)))
    losses = ModelLosses(model, classify)
    assert_same(summed(losses, data, chunk=chunk).sums, summed(losses, data, chunk=23).sums, 1e-6)


@pytest.mark.skipif(kernels.library() is None, reason="no compiler")
@pytest.mark.parametrize(
    ("records", "chunk", "norm", "singles"),
    [(20, 20, 0.5, 4), (20, 16, 0.5, 0), (88, 88, 0.5, 4), (89, 89, 0.5, 1), (683, 683, 0.5, 0), (20, 20, 1e-30, 0)],
)
def test_only_sums_of_few_records_stay_in_float32(records, chunk, norm, singles):
    """A single stretch does; of more records what has one position is rounded at its end. Several physical batches are
    added in float64, and so are clip norms beyond float32's digits."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv1d(3, 4, 1), nn.Flatten(), nn.Linear(36, 2))
    data = torch.randn(records, 3, 9), torch.randint(0, 2, (records,))
    sums = summed(ModelLosses(model, classify), data, norm, chunk=chunk).sums
    assert [value.dtype for value in sums.values()].count(torch.float32) == singles
    assert_same(sums, by_hand(model, data, norm))


def test_an_empty_sample_sums_to_zero(model):
    result = summed(ModelLosses(model, classify), None)
    assert all((value == 0).all() for value in result.sums.values())


def test_frozen_parameters_have_no_sum(model, data):
    model[0].weight.requires_grad_(False)
    result = summed(ModelLosses(model, classify), data)
    assert set(result.sums) == {"0.bias", "2.weight", "2.bias"}
    assert_same(result.sums, by_hand(model, data))


def test_tied_weights_are_counted_once(data):
    model = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5))
    model[2].weight = model[0].weight
    assert_same(summed(ModelLosses(model, classify), data).sums, by_hand(model, data))


def test_faulty_records_add_nothing_and_others_stay(model, data):
    inputs, labels = data[0].clone(), data[1].clone()
    good = torch.ones(40, dtype=torch.bool)
    for record, value in ((3, float("nan")), (7, float("inf")), (11, 3e38)):
        inputs[record], good[record] = value, False
    labels[20], good[20] = 99, False
    losses = ModelLosses(model, classify)
    poisoned, clean = summed(losses, (inputs, labels)), summed(losses, (inputs[good], labels[good]))
    finite = {name: value for name, value in poisoned.sums.items() if torch.isfinite(value).all()}
    assert set(finite) == set(clean.sums)
    shift = sum(float((poisoned.sums[name] - clean.sums[name]).square().sum()) for name in clean.sums) ** 0.5
    assert shift <= 4 * 0.5 * (1 + 1e-5)


def test_a_fault_of_every_one_of_many_records_is_an_error(model, data):
    with pytest.raises(InputError, match="on every record: IndexError"):
        summed(ModelLosses(model, lambda model, batch: batch[0][:, 77]), data)


@pytest.mark.parametrize("sizes", [None, [3]])
def test_a_fault_of_the_only_record_is_silent(model, data, sizes):
    batch = data[0][:3], torch.full((3,), 99)
    result = summed(ModelLosses(model, classify), batch, sizes=sizes)
    assert all((value == 0).all() for value in result.sums.values())


def test_views_are_averaged_before_the_clip(model, data):
    views = torch.stack([data[0], data[0] + 1], dim=1), torch.stack([data[1], data[1]], dim=1)

    def two(model, batch):
        first, second = (batch[0], batch[1]), (batch[0] + 1, batch[1])
        return (classify(model, first) + classify(model, second)) / 2

    seen = summed(ModelLosses(model, classify), views, views=2).sums
    assert_same(seen, summed(ModelLosses(model, two), data).sums)


def test_units_are_clipped_once_each(model, data):
    sizes = [10, 1, 29]
    result = summed(ModelLosses(model, classify), data, norm=1e-3, sizes=sizes)
    total = sum(float(value.square().sum()) for value in result.sums.values()) ** 0.5
    assert result.squared_norms.shape == (3, 4)
    assert total <= 3e-3


def test_a_unit_of_any_size_is_the_mean_of_its_rows(model, data):
    losses = ModelLosses(model, classify)
    whole = summed(losses, data, norm=1e9, sizes=[40]).sums
    rows = summed(losses, data, norm=1e9).sums
    assert_same(whole, {name: value / 40 for name, value in rows.items()})


def test_a_mean_over_records_is_refused(model, data):
    with pytest.raises(InputError, match="one loss per record"):
        summed(ModelLosses(model, lambda model, batch: classify(model, batch).mean()), data)


def test_the_model_is_left_as_it_was(model, data):
    before = {name: set(vars(module)) for name, module in model.named_modules()}
    keys, grads = list(model.state_dict()), [p.grad for p in model.parameters()]
    summed(ModelLosses(model, classify), data)
    assert list(model.state_dict()) == keys
    assert [p.grad for p in model.parameters()] == grads
    assert {name: set(vars(module)) for name, module in model.named_modules()} == before
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert not module._backward_hooks
