"""The pooling kernel against PyTorch's, bit for bit, and what autograd makes of a pooling that it computed."""

from math import inf, nan

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from tacit import kernels
from tacit.gradients import clipped_sum
from tacit.kernels import max_pool
from tacit.layers import whole_rows
from tacit.layers.whole_rows import call_faster
from tacit.losses import ModelLosses
from tacit.mechanisms import ClipRecords, GaussianNoise, build_mechanism

pytestmark = pytest.mark.skipif(kernels.library() is None, reason="no compiler")
by_torch = torch.ops.aten.max_pool2d_with_indices
VALUES = torch.tensor([0.0, -0.0, 1.0, 1.0, -1.0, nan, -nan, inf, -inf, -inf, -inf, 1e-45])


@pytest.fixture(scope="module", autouse=True)
def _however_small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole_rows, "POOLED_BY_KERNEL", 0)
        yield


def same_bits(found, wanted):
    assert found[0].shape == wanted[0].shape
    assert found[0].stride() == wanted[0].stride()
    assert torch.equal(found[0].view(torch.int32), wanted[0].view(torch.int32))
    assert torch.equal(found[1], wanted[1])


@st.composite
def poolings(draw):
    """An image of values that are equal, infinite or none at all, and the arguments of a pooling."""
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    kernel = draw(st.sampled_from([kernel, (2, 2), (3, 3)]))
    padding = [draw(st.integers(0, k // 2)) for k in kernel]
    stride = draw(st.sampled_from([(1, 1), (2, 2), kernel, (3, 1), (1, 4), (2, 3)]))
    most = draw(st.sampled_from([3, 9, 40]))
    least = [max(1, k - 2 * pad) for k, pad in zip(kernel, padding, strict=True)]
    sizes = [draw(st.integers(low, low + most)) for low in least]
    lead = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    values = draw(st.sampled_from([VALUES, VALUES[:5], VALUES[7:11], torch.arange(-100.0, 100.0) / 7]))
    image = values[torch.randint(0, len(values), (*lead, *sizes), generator=generator)]
    return image, kernel, stride, padding


@settings(max_examples=300, deadline=None)
@given(poolings())
def test_the_kernel_finds_the_bits_that_pytorch_finds(pooling):
    found = max_pool(*pooling)
    assert found is not None
    same_bits(found, by_torch(*pooling))


def test_many_planes_on_several_threads_change_nothing():
    image, before, found = VALUES[torch.randint(0, len(VALUES), (9, 40, 14, 14))], torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(max_pool(image, [2, 2], [1, 1]))
    finally:
        torch.set_num_threads(before)
    same_bits(*found)
    same_bits(found[0], by_torch(image, [2, 2], [1, 1]))


x = torch.randn(2, 3, 8, 8)
LEFT_TO_PYTORCH = {
    "double": (x.double(), {}),
    "half": (x.half(), {}),
    "bfloat16": (x.bfloat16(), {}),
    "channels last": (x.to(memory_format=torch.channels_last), {}),
    "transposed": (x.mT, {}),
    "a part": (x[..., 1:], {}),
    "dilated": (x, {"dilation": 2}),
    "ceiling": (x[..., 1:, 1:].contiguous(), {"ceil_mode": True}),
    "no records": (x[:0], {}),
}


@pytest.mark.parametrize(("image", "options"), LEFT_TO_PYTORCH.values(), ids=LEFT_TO_PYTORCH)
def test_what_the_kernel_does_not_cover_is_left_to_pytorch(image, options):
    dilation, ceil_mode = [options.get("dilation", 1)], options.get("ceil_mode", False)
    assert max_pool(image, [2, 2], [2, 2], [0, 0], dilation, ceil_mode) is None
    found, wanted = call_faster(functional.max_pool2d, (image, 2), options), functional.max_pool2d(image, 2, **options)
    assert torch.equal(found, wanted)
    assert found.stride() == wanted.stride()


@pytest.mark.parametrize("options", [{"padding": 2}, {"stride": 0}, {"kernel_size": 9}])
def test_what_pytorch_refuses_stays_refused(options):
    options = {"kernel_size": 2, **options}
    with pytest.raises(RuntimeError) as wanted:
        functional.max_pool2d(x, **options)
    with pytest.raises(RuntimeError) as found:
        call_faster(functional.max_pool2d, (x,), options)
    assert str(found.value) == str(wanted.value)


FUNCTIONS = [
    (functional.max_pool1d, x[0]),
    (torch.max_pool1d, x[0]),
    (functional.max_pool1d_with_indices, x[0]),
    (functional.max_pool2d, x),
    (functional.max_pool2d, x[0]),
    (torch.max_pool2d, x),
    (functional.max_pool2d_with_indices, x),
]


@pytest.mark.parametrize(("function", "image"), FUNCTIONS)
def test_functions_answer_alike_by_the_kernel_in_pytorchs_graph(function, image, monkeypatch):
    image, calls = image.clone().requires_grad_(), counted(monkeypatch)
    found, wanted = call_faster(function, (image, 2, 1), {}), function(image, 2, 1)
    found, wanted = ((each,) if isinstance(each, torch.Tensor) else each for each in (found, wanted))
    assert calls == [True]
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    assert found[0].grad_fn.name() == wanted[0].grad_fn.name()
    gradients = [torch.autograd.grad(each[0].square().sum(), image)[0] for each in (found, wanted)]
    assert torch.equal(*gradients)


def counted(monkeypatch):
    """A list that grows with every call, by whether the kernel answered."""
    calls, real = [], max_pool

    def counting(*args):
        found = real(*args)
        calls.append(found is not None)
        return found

    monkeypatch.setattr(whole_rows, "max_pool", counting)
    return calls


def test_clipped_sums_are_the_same_with_and_without_the_kernel(monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(4, 5, 3), nn.Tanh(), nn.MaxPool2d(2, padding=1)
    )
    of_model = ModelLosses(model, lambda model, batch: model(batch).square().flatten(1).mean(1))
    batch = torch.randn(6, 1, 10, 10)
    shapes = {name: value.shape for name, value in of_model.params.items()}
    mechanism = build_mechanism(ClipRecords(0.1), GaussianNoise(multiplier=1.0), shapes, slack=1e-5)

    def run():
        return clipped_sum(of_model, of_model.params, batch, mechanism, chunk=8, strategy="fast")

    calls = counted(monkeypatch)
    found = run(), run()
    assert calls
    assert all(calls)
    monkeypatch.setattr(whole_rows, "max_pool", lambda *args: None)
    wanted = run()
    for each in found:
        torch.testing.assert_close(each.squared_norms, wanted.squared_norms)
        torch.testing.assert_close(each.sums, wanted.sums)
