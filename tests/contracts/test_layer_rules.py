"""Every layer rule equals vmap on drawn shapes. A rule without an example here fails: add one to ``EXAMPLES``."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tacit.gradients import clipped_sum
from tacit.layers import LAYER_RULES
from tacit.losses import ModelLosses, map_tensors, tensors_of
from tacit.mechanisms import ClipRecords, GaussianNoise, build_mechanism

small = st.integers(1, 4)


def summed(model, batch, losses, norm, **options):
    losses = ModelLosses(model, losses or (lambda model, x: model(x).square().flatten(1).mean(1)))
    shapes = {name: value.shape for name, value in losses.params.items()}
    mechanism = build_mechanism(ClipRecords(norm), GaussianNoise(multiplier=1.0), shapes, slack=1e-5)
    options = {"chunk": len(tensors_of(batch)[0]), **options}
    return clipped_sum(losses, losses.params, batch, mechanism, **options)


def assert_both_ways_agree(model, batch, tolerance, norm=0.3, judge=torch.float64):
    """The judge works in float64 if it can: PyTorch's own gradients in float32 err by 1e-4 for some convolutions."""
    found = summed(model, batch, None, norm, strategy="fast")
    exact = map_tensors(lambda part: part.to(judge) if part.is_floating_point() else part, batch)
    wanted = summed(_as_precise_as(model, judge), exact, None, norm, strategy="record")
    scale = wanted.squared_norms.sum(1).sqrt().clamp(max=norm).sum()  # what the records' shares add up to in length
    assert scale > 0 or isinstance(model, nn.Embedding | nn.EmbeddingBag)  # a record that raises gives zero both ways
    total, right = (torch.cat([value.flatten() for value in result.sums.values()]) for result in (found, wanted))
    assert (total - right).norm() <= tolerance * scale


def _as_precise_as(model, judge):
    """A copy in the judge's type, with the ``eps`` of the model's own type where none is given."""
    twin, own = copy.deepcopy(model).to(judge), torch.finfo(next(model.parameters()).dtype).eps
    for module in twin.modules():
        if getattr(module, "eps", own) is None:
            module.eps = own
    return twin


class Through(nn.Module):
    """A module whose forward is a function of itself and the input."""

    def __init__(self, forward, **parameters):
        super().__init__()
        self.run = forward
        for name, shape in parameters.items():
            self.register_parameter(name, nn.Parameter(torch.randn(shape)))

    def forward(self, x):
        return self.run(self, x)


@st.composite
def linear(draw):
    width, out, positions = draw(st.integers(1, 40)), draw(st.integers(1, 40)), draw(st.lists(small, max_size=2))
    return nn.Linear(width, out, bias=draw(st.booleans())), torch.randn(draw(records), *positions, width)


@st.composite
def product(draw, right):
    width, out = draw(small), draw(small)
    return Through(right, w=(width, out), b=(out,)), torch.randn(draw(records), draw(small), width)


@st.composite
def convolution(draw, transposed=False):
    dims, groups, kernel = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    plain, turned = (nn.Conv1d, nn.Conv2d, nn.Conv3d), (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
    kinds = turned if transposed else plain
    options = {"stride": draw(st.integers(1, 2)), "dilation": draw(st.integers(1, 2)), "groups": groups}
    options["padding"] = draw(st.integers(0, 2))
    if not transposed:
        options["padding_mode"] = draw(st.sampled_from(["zeros", "reflect", "circular"]))
    channels, size = groups * draw(small), draw(st.integers(6, 8 if dims == 3 else 16))
    layer = kinds[dims - 1](channels, groups * draw(small), kernel, **options)
    return layer, torch.randn(draw(records), channels, *[size] * dims)


@st.composite
def wide_convolution(draw, transposed=False):
    """A large weight and few places: a linear map of patches, also with several rows of places a record."""
    dims, kernel, wide = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(20, 40))
    kinds = (
        (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
        if transposed
        else (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    )
    options = {"stride": draw(st.integers(1, 2)), "padding": draw(st.integers(0, kernel // 2))}
    return kinds[dims - 1](wide, wide, kernel, **options), torch.randn(draw(records), wide, *[kernel] * dims)


@st.composite
def embedding(draw, kind):
    words, width = draw(st.integers(2, 9)), draw(small)
    choice = {"mode": ["sum", "mean"]} if kind is nn.EmbeddingBag else {"scale_grad_by_freq": [False, True]}
    options = {name: draw(st.sampled_from(values)) for name, values in choice.items()}
    layer = kind(words, width, padding_idx=draw(st.sampled_from([None, 0, words - 1])), **options)
    return layer, torch.randint(0, words, (draw(records), draw(st.integers(1, 6))))


@st.composite
def last_dims(draw, kind):
    shape = draw(st.lists(st.integers(2, 5), min_size=1, max_size=2))
    return kind(shape), torch.randn(draw(records), *draw(st.lists(small, max_size=2)), *shape)


@st.composite
def channels(draw, kind):
    width = 2 * draw(small)
    return kind(width).eval(), torch.randn(draw(records), width, draw(st.integers(2, 6)), draw(st.integers(2, 6)))


@st.composite
def broadcast(draw, join):
    shape = draw(st.lists(small, min_size=1, max_size=3))
    inner = [draw(st.sampled_from([1, size])) for size in shape]
    inner = inner[draw(st.integers(0, len(inner) - 1)) :]
    return Through(join, p=inner), torch.randn(draw(records), *shape)


@st.composite
def recurrent(draw):
    kind, width = draw(st.sampled_from([nn.LSTM, nn.GRU, nn.RNN])), draw(small)
    options = {"num_layers": draw(st.integers(1, 2)), "bidirectional": draw(st.booleans()), "bias": draw(st.booleans())}
    if kind is nn.LSTM and draw(st.booleans()):
        options |= {"hidden_size": 3, "proj_size": 2}
    layer = kind(width, options.pop("hidden_size", draw(small)), batch_first=True, **options)
    if draw(st.booleans()):
        for name, parameter in layer.named_parameters():
            parameter.requires_grad_("_hh_" in name)
    return First(layer), torch.randn(draw(records), draw(st.integers(2, 4)), width)


@st.composite
def attention(draw):
    heads = draw(st.integers(1, 2))
    return Attend(nn.MultiheadAttention(4 * heads, heads, batch_first=True)), torch.randn(
        draw(records), draw(small), 4 * heads
    )


@st.composite
def losses_of_classes(draw):
    classes = draw(st.integers(2, 5))
    options = {
        "reduction": draw(st.sampled_from(["none", "mean", "sum"])),
        "label_smoothing": draw(st.sampled_from([0, 0.1])),
    }
    return Entropy(classes, options), torch.randn(draw(records), classes)


class Heteroscedastic(nn.Module):
    """A mean and a variance for each record, which may be given for all of its numbers at once."""

    def __init__(self, width, shared, full):
        super().__init__()
        self.mean, self.spread = nn.Linear(width, width), nn.Linear(width, 1 if shared else width)
        self.full = full

    def forward(self, x):
        variance = nn.functional.softplus(self.spread(x))
        return nn.functional.gaussian_nll_loss(self.mean(x), x, variance, full=self.full, reduction="none")


@st.composite
def variances(draw):
    width = draw(st.integers(2, 5))
    model = Heteroscedastic(width, draw(st.booleans()), draw(st.booleans()))
    return model, torch.randn(draw(records), width)


@st.composite
def pooling(draw):
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2, draw(st.integers(1, 2)))), torch.randn(
        draw(records), 1, 8, 8
    )


def route(m, x):
    """Each position to the expert of its largest feature, for one record after the other."""
    outputs = []
    for one in x:
        order = one[:, : len(m.w)].argmax(1).sort()
        counts = torch.histc(order.values.to(one.dtype), len(m.w), 0, len(m.w) - 1)
        offs = counts.cumsum(0).to(torch.int32)
        outputs.append(nn.functional.grouped_mm(one[order.indices].contiguous(), m.w.mT, offs=offs))
    return torch.stack(outputs)


@st.composite
def experts(draw):
    experts, width = draw(st.integers(1, 4)), 4 * draw(st.integers(1, 3))
    weights = (experts, 4 * draw(small), width)  # PyTorch wants strides of sixteen bytes
    return Through(route, w=weights), torch.randn(draw(records), draw(st.integers(1, 40)), width)


class First(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


class Attend(First):
    def forward(self, x):
        return self.layer(x, x, x)[0]


class Entropy(nn.Module):
    def __init__(self, classes, options):
        super().__init__()
        self.scale, self.options = nn.Parameter(torch.randn(classes)), options

    def forward(self, x):
        targets = x.argmax(1)
        return nn.functional.cross_entropy(x * self.scale, targets, **self.options).reshape(-1, 1).expand(len(x), 1)


records = st.integers(2, 7)
EXAMPLES = {
    "linear": linear(),
    "matmul": product(lambda m, x: x @ m.w + m.b),
    "addmm": product(lambda m, x: torch.addmm(m.b, x.flatten(0, 1), m.w).view(*x.shape[:2], -1)),
    "convolution": convolution() | wide_convolution(),
    "transposed_convolution": convolution(transposed=True) | wide_convolution(transposed=True),
    "embedding": embedding(nn.Embedding),
    "embedding_bag": embedding(nn.EmbeddingBag),
    "layer_norm": last_dims(nn.LayerNorm),
    "rms_norm": last_dims(nn.RMSNorm),
    "group_norm": channels(lambda width: nn.GroupNorm(2, width)),
    "instance_norm": channels(lambda width: nn.InstanceNorm2d(width, affine=True)),
    "batch_norm": channels(nn.BatchNorm2d),
    "recurrent": recurrent(),
    "attention": attention(),
    "experts": experts(),
    "cross_entropy": losses_of_classes(),
    "gaussian_nll": variances(),
    "max_pooling": pooling(),
    "product": broadcast(lambda m, x: (m.p * x * (x < 1)).flatten(1).prod(1, keepdim=True) + m.p.sum()),
}
WITHOUT_A_RULE = {
    "sum": broadcast(lambda m, x: x + m.p),
    "difference": broadcast(lambda m, x: (m.p - x) * 2 - m.p),
    "product": broadcast(lambda m, x: m.p * x),
    "expand": broadcast(lambda m, x: m.p.expand(x.shape).tanh() * x),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections")  # PyTorch says so of its own
@pytest.mark.parametrize("rule", LAYER_RULES, ids=lambda rule: rule.name)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_layer_rule_equals_one_record_after_the_other(rule, data):
    torch.manual_seed(data.draw(st.integers(0, 2**16)))  # so that what fails once fails again
    model, batch = data.draw(EXAMPLES[rule.name])
    torch.nn.init.normal_(next(model.parameters()))
    if rule.name == "experts":  # PyTorch has no grouped_mm in double
        assert_both_ways_agree(model, batch, 1e-5, judge=torch.float32)
        return
    assert_both_ways_agree(model, batch, 1e-5)
    batch = batch.double() if batch.is_floating_point() else batch
    assert_both_ways_agree(model.double(), batch, 1e-10)


@pytest.mark.parametrize("name", WITHOUT_A_RULE)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_an_operation_without_a_rule_does_too(name, data):
    torch.manual_seed(data.draw(st.integers(0, 2**16)))
    model, batch = data.draw(WITHOUT_A_RULE[name])
    assert_both_ways_agree(model, batch, 1e-5)
