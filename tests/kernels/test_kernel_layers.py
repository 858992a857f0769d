"""Kernels of layers against PyTorch, record by record."""

from math import inf, nan

import pytest
import torch
from torch.nn import functional

from tacit import kernels
from tacit.kernels import calls, comparisons

pytestmark = pytest.mark.skipif(kernels.library() is None, reason="no compiler")

SHAPES = [  # channels in and out, height, width, kernel, stride, padding
    (1, 16, 28, 28, (8, 8), (2, 2), ((3, 3), (3, 3))),
    (3, 5, 9, 7, (3, 2), (1, 2), ((1, 0), (0, 2))),
    (16, 32, 13, 13, (4, 4), (2, 2), ((0, 0), (0, 0))),
    (17, 9, 6, 8, (1, 3), (3, 1), ((0, 0), (1, 1))),
    (40, 8, 5, 5, (5, 5), (1, 1), ((0, 0), (0, 0))),
]


def convolution(channels, out, height, width, kernel, stride, padding, records=6):
    torch.manual_seed(0)
    image = torch.randn(records, channels, height, width)
    padded = functional.pad(image, [*padding[1], *padding[0]])
    g = torch.randn_like(functional.conv2d(padded, torch.zeros(out, channels, *kernel), stride=stride))
    return image, g, (out, channels, *kernel), stride, padding


def by_autograd(image, g, shape, stride, padding):
    padded = functional.pad(image.double(), [*padding[1], *padding[0]])
    return torch.stack(
        [torch.nn.grad.conv2d_weight(x[None], shape, d[None].double(), stride) for x, d in zip(padded, g, strict=True)]
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_convolutions_gradients_and_norms(shape):
    arguments = convolution(*shape)
    rows, squares = kernels.convolution_rows(*arguments)
    wanted = by_autograd(*arguments).movedim(2, -1).flatten(1)
    torch.testing.assert_close(rows.double(), wanted, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(squares, rows.double().square().sum(1), rtol=1e-13, atol=0)
    torch.testing.assert_close(squares, wanted.square().sum(1), rtol=1e-6, atol=0)


@pytest.mark.parametrize("shape", [*SHAPES, (130, 70, 8, 8, (3, 3), (1, 1), ((1, 1), (1, 1)))])
@pytest.mark.parametrize("threads", [1, 2])
def test_norms_and_sums_of_convolutions_without_their_gradients(shape, threads):
    image, g, *geometry = convolution(*shape, records=40)
    wanted = by_autograd(image, g, *geometry).movedim(2, -1)
    factors = torch.rand(40).double()
    factors[3] = 0.0
    total = torch.einsum("r,r...->...", factors, wanted)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        squares = kernels.convolution_squares(image, g, *geometry)
        image[3] = nan
        double, single = (kernels.convolution_sum(image, g, factors, *geometry, single=one) for one in (False, True))
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(squares, wanted.flatten(1).square().sum(1), rtol=1e-5, atol=0)
    assert (double.dtype, single.dtype) == (torch.float64, torch.float32)
    torch.testing.assert_close(double, total, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(single.double(), total, rtol=1e-5, atol=1e-4)


def test_a_convolutions_norm_does_not_overflow():
    image, g, *geometry = convolution(*SHAPES[1])
    _, squares = kernels.convolution_rows(image * 1e15, g * 1e15, *geometry)
    _, wanted = kernels.convolution_rows(image, g, *geometry)
    torch.testing.assert_close(squares, wanted * 1e60, rtol=1e-5, atol=0)


def test_a_record_without_finite_values_stays_alone():
    image, g, *geometry = convolution(*SHAPES[1])
    _, wanted = kernels.convolution_rows(image, g, *geometry)
    image[2], g[3] = nan, inf
    _, found = kernels.convolution_rows(image, g, *geometry)
    assert not found[2:4].isfinite().any()
    assert torch.equal(found[[0, 1, 4, 5]], wanted[[0, 1, 4, 5]])


def test_convolutions_that_are_left_to_pytorch():
    image, g, shape, stride, padding = convolution(*SHAPES[1])
    assert kernels.convolution_rows(image.double(), g.double(), shape, stride, padding) is None
    assert kernels.convolution_rows(image, g, (shape[0], 1, *shape[2:]), stride, padding) is None  # groups
    assert kernels.convolution_rows(image, g, shape, (9, 9), padding) is None  # beyond the edge
    assert kernels.convolution_squares(image, g, shape, (9, 9), padding) is None
    factors = torch.ones(6, dtype=torch.float64)
    assert kernels.convolution_sum(image, g, factors[:5], shape, stride, padding, single=False) is None
    assert kernels.convolution_sum(image, g, factors.float(), shape, stride, padding, single=False) is None
    assert kernels.convolution_rows(image[..., 0], g[..., 0], shape[:3], stride[:1], padding[:1]) is None


@pytest.mark.parametrize("offset", [0.0, 100.0])
@pytest.mark.parametrize("shape", [(4, 8, 5, 7), (3, 6, 33), (5, 12, 40, 40), (3, 4)])
def test_group_norms_gradients(shape, offset):
    torch.manual_seed(0)
    x, g = torch.randn(shape) + offset, torch.randn(shape)
    normed = functional.group_norm(x.double(), 2, eps=1e-5)
    wanted = (normed * g).flatten(2).sum(2) if x.dim() > 2 else normed * g, g.flatten(2).sum(2) if x.dim() > 2 else g
    for found, right in zip(kernels.group_norm_rows(x, g, 2, 1e-5), wanted, strict=True):
        torch.testing.assert_close(found.double(), right.double(), rtol=1e-4, atol=1e-4 * (1 + offset))


def test_group_norms_that_are_left_to_pytorch():
    x = torch.randn(3, 4, 5)
    assert kernels.group_norm_rows(x, x, 3, 1e-5) is None
    assert kernels.group_norm_rows(x, x[:2], 2, 1e-5) is None
    assert kernels.group_norm_rows(x[:0], x[:0], 2, 1e-5) is None
    assert kernels.group_norm_rows(x.double(), x.double(), 2, 1e-5) is None
    assert kernels.group_norm_forward(x, None, None, 3, 1e-5, activated=False) is None
    assert kernels.group_norm_forward(x, x[0, :3, 0], None, 2, 1e-5, activated=False) is None
    assert kernels.group_norm_forward(x.double(), None, None, 2, 1e-5, activated=False) is None
    moments = torch.ones(3, 2), torch.ones(3, 2)
    assert kernels.group_norm_backward(x, None, None, *moments, x[:2].clone(), activated=False) is None
    assert kernels.group_norm_backward(x, None, None, *moments, x.mT.contiguous().mT, activated=False) is None


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("activated", [True, False])
@pytest.mark.parametrize("groups", [1, 2, 12])
@pytest.mark.parametrize("places", [(1,), (7,), (8, 8), (32, 32), (33, 33)])
def test_group_norms_both_ways(affine, activated, groups, places):
    torch.manual_seed(0)
    x, g, weight, bias = torch.randn(3, 12, *places), torch.randn(3, 12, *places), torch.randn(12), torch.randn(12)
    weight, bias = (weight, bias) if affine else (None, None)
    out, mean, inverse = kernels.group_norm_forward(x, weight, bias, groups, 1e-5, activated=activated)
    for r in range(3):
        row, scale, shift = x[[r]].double().requires_grad_(), torch.ones(12).double(), torch.zeros(12).double()
        scale, shift = (weight.double(), bias.double()) if affine else (scale, shift)
        wanted = torch.group_norm(row, groups, scale.requires_grad_(), shift.requires_grad_(), 1e-5)
        wanted = torch.where(out[[r]] > 0, wanted, 0.0) if activated else wanted
        torch.testing.assert_close(out[[r]].double(), wanted, rtol=1e-4, atol=1e-5)
        by_x = g[[r]].clone()
        one = [None if part is None else part[[r]] for part in (mean, inverse)]
        found = kernels.group_norm_backward(x[[r]], weight, bias, *one, by_x, activated=activated)
        right = torch.autograd.grad(wanted, (row, scale, shift), g[[r]].double())
        for part, value in zip((by_x, *found), right, strict=True):
            torch.testing.assert_close(part.double().view(value.shape), value, rtol=1e-4, atol=1e-3)


def test_neither_the_other_rows_nor_threads_change_a_bit_of_a_group_norm():
    x, g, weight, bias = torch.randn(37, 6, 11, 9), torch.randn(37, 6, 11, 9), torch.randn(6), torch.randn(6)
    before = torch.get_num_threads()

    def both_ways(rows):
        out, mean, inverse = kernels.group_norm_forward(x[rows], weight, bias, 2, 1e-5, activated=True)
        by_x = g[rows].clone()
        return out, by_x, *kernels.group_norm_backward(x[rows], weight, bias, mean, inverse, by_x, activated=True)

    try:
        torch.set_num_threads(1)
        wanted = both_ways(slice(0, 37))
        x[5], g[6] = nan, inf
        for threads, rows in ((1, [3, 5, 20]), (2, [36]), (3, [*range(37)])):
            torch.set_num_threads(threads)
            for one, other in zip(both_ways(rows), wanted, strict=True):
                kept = [place for place, row in enumerate(rows) if row not in (5, 6)]
                assert torch.equal(one[kept], other[[rows[place] for place in kept]])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("shape", [(4, 8, 5), (3, 70, 33), (2, 1, 256)])
def test_layer_norms_gradients(shape):
    torch.manual_seed(0)
    x, g = torch.randn(shape) + 3, torch.randn(shape)
    _, mean, spread = torch.native_layer_norm(x, shape[2:], None, None, 1e-5)
    found = kernels.layer_norm_rows(x, g, mean[:, :, 0], spread[:, :, 0])
    wanted = (functional.layer_norm(x.double(), shape[2:]) * g).sum(1), g.double().sum(1)
    for one, right in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.double(), right, rtol=1e-4, atol=1e-4)
    assert kernels.layer_norm_rows(x.double(), g.double(), mean[:, :, 0].double(), spread[:, :, 0].double()) is None
    assert kernels.layer_norm_rows(x, g, mean, spread) is None


def test_threads_change_nothing():
    before, found = torch.get_num_threads(), []
    image, g, *geometry = convolution(*SHAPES[2], records=9)
    large = torch.randn(9, 16, 30, 30)
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            pooled = kernels.max_pool(large, [2, 2], [1, 1])
            normed = kernels.group_norm_rows(large, large, 4, 1e-5)
            found.append((*kernels.convolution_rows(image, g, *geometry), *normed, *pooled))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_max_pooling_is_pytorchs_to_the_bit():
    values = torch.tensor([0.0, -0.0, 1.0, 1.0, -1.0, nan, inf, -inf, -inf, 1e-45])
    image = values[torch.randint(0, len(values), (3, 4, 13, 45), generator=torch.Generator().manual_seed(0))]
    for kernel, stride, padding in [([2, 2], [2, 2], [0, 0]), ([3, 3], [2, 2], [1, 1]), ([2, 5], [3, 1], [1, 2])]:
        found = kernels.max_pool(image, kernel, stride, padding)
        wanted = torch.ops.aten.max_pool2d_with_indices(image, kernel, stride, padding)
        assert torch.equal(found[0].view(torch.int32), wanted[0].view(torch.int32))
        assert torch.equal(found[1], wanted[1])
        g = torch.randn_like(found[0])
        backwards = torch.ops.aten.max_pool2d_with_indices_backward(
            g, image, kernel, stride, padding, [1, 1], False, wanted[1]
        )
        assert torch.equal(kernels.max_pool_backward(g, wanted[1], image.shape), backwards)


def test_poolings_that_are_left_to_pytorch():
    x = torch.randn(2, 3, 8, 8)
    assert kernels.max_pool(x.double(), [2]) is None
    assert kernels.max_pool(x.mT, [2]) is None
    assert kernels.max_pool(x, [2], [2], [0], [2]) is None
    assert kernels.max_pool(x, [2], [2], [0], [1], True) is None
    assert kernels.max_pool(x, [9]) is None
    assert kernels.max_pool_backward(x.double(), x.long(), x.shape) is None
    assert kernels.max_pool_backward(x, x.long()[:1], x.shape) is None


def test_a_pytorch_that_finds_other_places_leaves_the_kernel_out(monkeypatch):
    real = comparisons._pool

    def last_of_equal(image, *windows):
        values, places = real(image.flip(-1, -2), *windows)
        return values.flip(-1, -2), image[0].numel() - 1 - places.flip(-1, -2)

    assert calls.POOLING.checked(kernels.library()) is not None
    monkeypatch.setattr(comparisons, "_pool", last_of_equal)
    assert calls.POOLING.checked(kernels.library()) is None


def lstm_steps(projected, weight, g):
    rows, steps, size = g.shape
    gates, states = projected.clone(), torch.zeros(2, rows, steps + 1, size)
    assert kernels.lstm_forward(gates, *states, weight)
    return states[0, :, 1:], *kernels.lstm_backward(gates, states[1], weight, g, torch.zeros(rows, size))


def test_an_lstm_is_left_to_pytorch_where_its_numbers_lie_in_another_order():
    """The kernel would read them as if they did not, and give other numbers without a word."""
    gates, weight, states = torch.randn(5, 64, 48 * 4), torch.randn(48 * 4, 48), torch.zeros(2, 64, 6, 48)
    assert not kernels.lstm_forward(gates.transpose(0, 1), *states, weight)
    gates = gates.transpose(0, 1).contiguous()
    assert kernels.lstm_forward(gates, *states, weight)
    g, last = torch.randn(64, 5, 48), torch.zeros(64, 48)
    assert kernels.lstm_backward(gates, states[1], weight, g, last) is not None
    turned = states[1].transpose(0, 1).contiguous().transpose(0, 1)
    assert kernels.lstm_backward(gates, turned, weight, g, last) is None


@pytest.mark.parametrize(("rows", "steps", "size"), [(1, 3, 7), (20, 9, 40), (64, 5, 128)])
def test_the_steps_of_an_lstm(rows, steps, size):
    torch.manual_seed(0)
    layer, x, g = (
        torch.nn.LSTM(4 * size, size, batch_first=True),
        torch.randn(rows, steps, 4 * size),
        torch.randn(rows, steps, size),
    )
    with torch.no_grad():
        layer.weight_ih_l0.copy_(torch.eye(4 * size))
        layer.bias_ih_l0.zero_()
        layer.bias_hh_l0.zero_()
    wanted = layer(x.requires_grad_())[0]
    (backwards,) = torch.autograd.grad(wanted, x, g)
    found = lstm_steps(x.detach(), layer.weight_hh_l0.detach(), g)
    torch.testing.assert_close(found[0], wanted.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found[1], backwards, rtol=1e-5, atol=1e-6)


def test_neither_the_other_rows_nor_threads_change_a_bit_of_an_lstm():
    projected, weight, g = torch.randn(37, 4, 140), torch.randn(140, 35), torch.randn(37, 4, 35)
    before, wanted = torch.get_num_threads(), lstm_steps(projected, weight, g)
    try:
        for threads, some in ((1, slice(3, 20)), (2, slice(36, 37)), (3, slice(0, 37))):
            torch.set_num_threads(threads)
            found = lstm_steps(projected[some], weight, g[some])
            assert all(torch.equal(one, other[some]) for one, other in zip(found, wanted, strict=True))
    finally:
        torch.set_num_threads(before)
