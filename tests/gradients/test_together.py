"""The fast path is right, or steps aside: models in all the shapes that users give them."""

import gc
from functools import cache

import pytest
import torch
from conftest import classify
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from tacit.errors import LossesError
from tacit.gradients import clipped_sum
from tacit.isolation.rows import Isolated, UncoveredError
from tacit.losses import ModelLosses
from tacit.mechanisms import (
    AdaptiveClip,
    ClipGroups,
    ClipLayers,
    ClipRecords,
    GaussianNoise,
    VectorGroup,
    build_mechanism,
)

pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")  # vmap says so of some layers


def summed(losses, batch, clipping=None, params=None, **options):
    params = losses.params if params is None else params
    shapes = {name: value.shape for name, value in params.items()}
    noise = None if isinstance(clipping, ClipGroups) else GaussianNoise(multiplier=0.9)
    mechanism = build_mechanism(clipping or ClipRecords(0.3), noise, shapes, slack=1e-5)
    return clipped_sum(losses, params, batch, mechanism, **{"chunk": 1000, **options})


def assert_same(one, other, tolerance=2e-5):
    assert one.sums.keys() == other.sums.keys()
    total = sum(float(value.square().sum()) for value in other.sums.values()) ** 0.5
    for name, value in other.sums.items():
        assert (one.sums[name] - value).norm() <= tolerance * total, name
    norms = other.squared_norms.sum(1)
    torch.testing.assert_close(one.squared_norms.sum(1), norms, rtol=2 * tolerance, atol=1e-20, equal_nan=True)


def assert_fast_and_right(model, batch, losses=classify, **options):
    losses = ModelLosses(model, losses)
    wanted = summed(losses, batch, strategy="record", **options)
    assert_same(summed(losses, batch, strategy="fast", **options), wanted)


class Net(nn.Module):
    """Parts by name, and a forward pass given as a function."""

    def __init__(self, forward, **parts):
        super().__init__()
        self.run = forward
        for name, part in parts.items():
            setattr(self, name, part if isinstance(part, nn.Module) else nn.Parameter(part))

    def forward(self, x):
        return self.run(self, x)


def vit():
    """Raw class token and positions, a scale, and attention written with one product for q, k and v."""

    def forward(m, x):
        x = m.patch(x).flatten(2).mT
        x = torch.cat([m.token.expand(len(x), -1, -1), x], 1) + m.positions[:, : x.shape[1] + 1]
        q, k, v = m.qkv(m.norm(x)).unflatten(2, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return m.head((x + m.scale * m.out(mixed))[:, 0])

    return Net(
        forward,
        patch=nn.Conv2d(1, 8, 2, 2),
        token=torch.randn(1, 1, 8),
        positions=torch.randn(1, 20, 8),
        scale=torch.randn(8),
        norm=nn.LayerNorm(8),
        qkv=nn.Linear(8, 24),
        out=nn.Linear(8, 8),
        head=nn.Linear(8, 3),
    )


def tied():
    def forward(m, x):
        return m.head(torch.tanh(m.middle(m.middle(m.words(x))))).mean(1)

    model = Net(forward, words=nn.Embedding(9, 6), middle=nn.Linear(6, 6), head=nn.Linear(6, 9, bias=False))
    model.head.weight = model.words.weight
    return model


RECORDS = 6
IMAGES, LABELS = torch.randn(RECORDS, 1, 6, 6), torch.arange(RECORDS) % 3
TOKENS = torch.arange(RECORDS * 5).view(RECORDS, 5) % 9
SERIES = torch.randn(RECORDS, 4, 5)


def encoder(**options):
    return nn.TransformerEncoderLayer(6, 2, 12, dropout=0.0, **options)


def last_of(kind, **options):
    return Net(
        lambda m, x: m.head(m.rnn(x)[0][:, -1]), rnn=kind(5, 4, batch_first=True, **options), head=nn.LazyLinear(3)
    )


MODELS = {
    "cnn": lambda: (nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(64, 3)), IMAGES),
    "a vision transformer": lambda: (vit(), IMAGES),
    "tied weights and a layer used twice": lambda: (tied(), TOKENS),
    "attention, records first": lambda: (
        Net(lambda m, x: m.a(m.e(x)).mean(1), e=nn.Embedding(9, 6), a=encoder(batch_first=True)),
        TOKENS,
    ),
    "attention, records second": lambda: (
        Net(lambda m, x: m.a(m.e(x).transpose(0, 1)).mean(0), e=nn.Embedding(9, 6), a=encoder()),
        TOKENS,
    ),
    "positions looked up once, as many as records": lambda: (
        Net(
            lambda m, x: (m.e(x) + m.p(torch.arange(x.shape[1]))).tanh().mean(1),
            e=nn.Embedding(9, 3),
            p=nn.Embedding(9, 3),
        ),
        torch.arange(RECORDS * RECORDS).view(RECORDS, RECORDS) % 9,
    ),
    "records flattened with positions": lambda: (
        Net(lambda m, x: m.a(x.flatten(0, 1)).view(len(x), -1, 3).mean(1), a=nn.Linear(5, 3)),
        SERIES,
    ),
    "lstm": lambda: (last_of(nn.LSTM, num_layers=2, bidirectional=True), SERIES),
    "gru": lambda: (last_of(nn.GRU), SERIES),
    "rnn": lambda: (last_of(nn.RNN, nonlinearity="relu"), SERIES),
    "weight norm": lambda: (nn.utils.parametrizations.weight_norm(nn.Linear(5, 3)), SERIES[:, 0]),
    "an operation without a rule": lambda: (nn.Sequential(nn.Linear(5, 4), nn.PReLU(4), nn.Linear(4, 3)), SERIES[:, 0]),
    "a matrix turned by hand": lambda: (Net(lambda m, x: x @ m.w.t(), w=torch.randn(3, 5)), SERIES[:, 0]),
    "unused parameters": lambda: (Net(lambda m, x: m.a(x), a=nn.Linear(5, 3), b=nn.Linear(2, 2)), SERIES[:, 0]),
    "a penalty on weights in the losses": lambda: (
        Net(lambda m, x: m.a(x) + m.a.weight.square().sum(), a=nn.Linear(5, 3)),
        SERIES[:, 0],
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_fast_path_is_right_on(name):
    model, inputs = MODELS[name]()
    model(inputs)  # settles lazy layers
    labels = LABELS if model(inputs).shape[1] == 3 else LABELS % model(inputs).shape[1]
    assert_fast_and_right(model, (inputs, labels))


def test_frozen_layers_get_nothing_and_others_are_right(model, data):
    model[0].requires_grad_(False)
    assert_fast_and_right(model, data)


@pytest.mark.parametrize(
    "clipping",
    [
        ClipRecords(0.3, rule="normalise"),
        ClipLayers(0.4),
        AdaptiveClip(0.5),
        ClipGroups([VectorGroup(("2.weight", "0.bias"), 0.1, 1.0), VectorGroup(("0.weight", "2.bias"), 0.2, 1.0)]),
        ClipGroups([VectorGroup(("2.bias", "0.weight", "0.bias", "2.weight"), 0.3, 1.0, scales=(1, 2, 3, 4))]),
    ],
    ids=lambda clipping: type(clipping).__name__,
)
def test_every_grouping_works(model, data, clipping):
    assert_fast_and_right(model, data, clipping=clipping)


def test_views_are_averaged_before_the_clip(data):
    model = nn.Sequential(nn.Conv1d(1, 2, 2), nn.Flatten(), nn.Linear(8, 3))
    batch = (torch.randn(7, 3, 1, 5), data[1][:7, None].expand(7, 3))
    assert_fast_and_right(model, batch, views=3)


def test_other_tensors_than_the_models_own_are_used_when_given(model, data):
    losses = ModelLosses(model, classify)
    params = {name: torch.randn_like(value) for name, value in model.named_parameters()}
    wanted = summed(losses, data, params=params, strategy="record")
    assert_same(summed(losses, data, params=params, strategy="fast"), wanted)


def test_a_huge_record_counts_as_it_does_alone(model, data):
    losses = ModelLosses(model, classify)
    huge = (data[0].clone(), data[1])
    huge[0][7] = 3e38
    assert_same(summed(losses, huge, strategy="fast"), summed(losses, huge, strategy="record"))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_faulty_record_contributes_nothing_and_the_others_stay(model, data, value):
    losses = ModelLosses(model, classify)
    bad = (data[0].clone(), data[1])
    bad[0][7] = value
    keep = torch.arange(40) != 7
    found, wanted = summed(losses, bad), summed(losses, (data[0][keep], data[1][keep]), strategy="record")
    for name, total in wanted.sums.items():
        torch.testing.assert_close(found.sums[name].double(), total.double(), rtol=1e-5, atol=1e-6)


def test_a_label_out_of_range_stays_silent(model, data):
    bad = (data[0], torch.where(torch.arange(40) == 7, 99, data[1]))
    keep = torch.arange(40) != 7
    losses = ModelLosses(model, classify)
    found, wanted = summed(losses, bad), summed(losses, (data[0][keep], data[1][keep]))
    for name, total in wanted.sums.items():
        torch.testing.assert_close(found.sums[name].double(), total.double(), rtol=1e-5, atol=1e-6)


def test_the_sum_stays_within_the_clip_when_gradients_cancel():
    model = nn.Linear(64, 64, bias=False)
    x = torch.ones(2, 8, 64) + 1e-4 * torch.randn(2, 8, 64)
    signs = torch.tensor([1.0, -1.0] * 4).view(1, 8, 1)
    losses = ModelLosses(model, lambda model, x: (model(x) * signs * 1e3).sum((1, 2)))
    summed(losses, x, strategy="fast")
    for record in range(2):
        alone = summed(losses, x[record : record + 1], strategy="fast").sums["weight"]
        assert alone.norm() <= 0.3 * (1 + 1e-5)


def test_a_statistic_of_the_batch_is_one_of_the_record(data):
    model = Net(lambda m, x: m.a(x - x.mean(0)), a=nn.Linear(5, 3))
    mixing = ModelLosses(model, lambda model, batch: classify(model, batch) * model(batch[0]).sum())
    assert_same(summed(mixing, data, strategy="fast"), summed(mixing, data, strategy="record"))


def test_a_copy_of_a_weight_that_is_changed_after_its_use_has_the_gradient_of_its_use(data):
    def changed(m, x):
        weight = m.weight.clone()
        out = functional.linear(x, weight).tanh()
        weight *= 3
        return out

    losses = ModelLosses(Net(changed, weight=torch.randn(3, 5)), classify)
    assert_same(summed(losses, data), summed(losses, data, strategy="record"))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_are_run_as_they_are_written_and_nothing_of_it_stays(data, reentrant):
    def checkpointed(m, x):
        x = torch.utils.checkpoint.checkpoint(m.body, x, use_reentrant=reentrant)
        return m.head(torch.utils.checkpoint.checkpoint_sequential(m.rest, 2, x, use_reentrant=reentrant))

    rest = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.0), nn.Tanh(), nn.Linear(8, 8))
    parts = {"body": nn.Linear(data[0].shape[1], 8), "rest": rest, "head": nn.Linear(8, 3)}
    home = torch.utils.checkpoint
    before = home._checkpoint_without_reentrant_generator, dict(vars(home.CheckpointFunction))
    found = summed(ModelLosses(Net(checkpointed, **parts), classify), data, strategy="fast")
    plain = Net(lambda m, x: m.head(m.rest(m.body(x))), **parts)
    assert_same(found, summed(ModelLosses(plain, classify), data, strategy="record"))
    assert before == (home._checkpoint_without_reentrant_generator, dict(vars(home.CheckpointFunction)))


def test_data_that_is_marked_as_needing_a_gradient_is_data_like_any_other(data):
    """As Hugging Face's enable_input_require_grads does, for checkpoints."""
    parts = {"body": nn.Linear(5, 8), "head": nn.Linear(8, 3)}
    assert_fast_and_right(Net(lambda m, x: m.head(m.body(x.requires_grad_()).tanh()), **parts), data)
    asking = ModelLosses(Net(lambda m, x: m.head(m.body(x.requires_grad_()).tanh()), **parts), penalised)
    assert_same(summed(asking, data), summed(asking, data, strategy="record"))


def penalised(model, batch):
    """By the gradient of the loss with respect to the input, which one record after the other has."""
    x = batch[0].clone().requires_grad_()
    loss = classify(model, (x, batch[1]))
    (slope,) = torch.autograd.grad(loss.sum(), x, create_graph=True)
    return loss + slope.square().sum(1)


def test_an_input_changed_in_place_is_left_to_the_other_path(data):
    def losses(model, batch):
        x = batch[0].clone()
        y = model(x)
        x.zero_()
        return y.square().sum(1)

    with pytest.raises(UncoveredError):
        summed(ModelLosses(nn.Linear(5, 3), losses), data, strategy="fast")


def test_dropout_masks_differ_between_records():
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 1, bias=False))
    losses = ModelLosses(model, lambda model, x: model(x)[:, 0])
    norms = summed(losses, torch.ones(50, 8), strategy="fast").squared_norms
    assert len(norms.unique()) > 2


def test_a_compiled_model_is_as_right_as_the_model(model, data):
    compiled = torch.compile(model, backend="eager")
    assert_same(summed(ModelLosses(compiled, classify), data), _renamed(summed(ModelLosses(model, classify), data)))


def _renamed(result):
    sums = {f"_orig_mod.{name}": value for name, value in result.sums.items()}
    return type(result)(sums, result.squared_norms)


def test_bfloat16_autocast_has_norms_in_high_precision(data):
    def losses(model, batch):
        with torch.autocast("cpu", torch.bfloat16):
            output = model(batch[0])
        return functional.cross_entropy(output.float(), batch[1], reduction="none")

    model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3))
    found = summed(ModelLosses(model, losses), data, strategy="fast")
    assert_same(found, summed(ModelLosses(model, losses), data, strategy="record"), tolerance=2e-2)
    alone = summed(ModelLosses(model, losses), data, ClipRecords(0.01), strategy="fast")
    assert sum(v.square().sum() for v in alone.sums.values()).sqrt() <= 40 * 0.01 * (1 + 1e-5)


def test_nothing_is_left_behind(model, data):
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    summed(ModelLosses(model, classify), data)
    with pytest.raises(LossesError, match="on every record"):
        summed(ModelLosses(model, lambda model, batch: model(batch[0] @ torch.ones(2, 2))), data)
    for name, module in model.named_modules():
        assert vars(module).keys() == before[name].keys()
        assert not module._forward_hooks
        assert not module._backward_hooks
    assert all(p.grad is None for p in model.parameters())


SMALL = ModelLosses(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), classify)
TWELVE = (torch.randn(12, 3), torch.arange(12) % 2)


@cache
def in_one_chunk():
    return summed(SMALL, TWELVE, chunk=12)


@settings(max_examples=500, deadline=None)
@given(order=st.permutations(range(12)), chunk=st.integers(1, 12))
def test_the_chunking_changes_nothing(order, chunk):
    found = summed(SMALL, (TWELVE[0][order], TWELVE[1][order]), chunk=chunk)
    for name, total in in_one_chunk().sums.items():
        torch.testing.assert_close(found.sums[name].double(), total.double(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("records", "chunk"), [(n, c) for n in (8, 16, 24, 32) for c in range(1, 33)])
def test_every_record_enters_once_whatever_its_chunk_is_filled_up_to(records, chunk):
    losses = ModelLosses(nn.Linear(records, 1, bias=False), lambda model, x: model(x)[:, 0])
    counted = summed(losses, torch.eye(records) * 5, ClipRecords(1.0), chunk=chunk, strategy="fast").sums["weight"]
    torch.testing.assert_close(counted, torch.ones_like(counted), rtol=0.0, atol=1e-3)


def test_units_of_one_size_are_fast_and_right(model, data):
    losses = ModelLosses(model, classify)
    wanted = summed(losses, data, sizes=[5] * 8, strategy="record")
    assert_same(summed(losses, data, sizes=[5] * 8, strategy="fast"), wanted)


def test_a_call_keeps_no_tensor_alive(model, data):
    losses = ModelLosses(model, classify)
    gc.collect()
    gc.disable()  # nothing may wait for the collector of cycles: it would hold a step's activations
    try:
        summed(losses, data)
        assert not [kept for kept in gc.get_objects() if type(kept) is Isolated]
    finally:
        gc.enable()
