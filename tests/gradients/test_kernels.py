"""Compiled kernels of layers against the same layers without them."""

import pytest
import torch
from torch import nn

from tacit.gradients.layers import convolution_kernel, normalisation, normalisation_kernel
from tacit.gradients.layers.convolution import Geometry, PatchProducts
from tacit.gradients.layers.convolution_kernel import form_rows

pytestmark = pytest.mark.skipif(convolution_kernel._kernel() is None, reason="no compiler")

SHAPES = [  # channels in and out, height, width, kernel, stride, padding
    (1, 16, 28, 28, (8, 8), (2, 2), ((3, 3), (3, 3))),
    (3, 5, 9, 7, (3, 2), (1, 2), ((1, 0), (0, 2))),
    (16, 32, 13, 13, (4, 4), (2, 2), ((0, 0), (0, 0))),
    (17, 9, 6, 8, (1, 3), (3, 1), ((0, 0), (1, 1))),
    (40, 8, 5, 5, (5, 5), (1, 1), ((0, 0), (0, 0))),
]


def products(shape, records=6, seed=0):
    channels, out, height, width, kernel, stride, padding = shape
    torch.manual_seed(seed)
    sizes = [
        (size + sum(pads) - k) // s + 1
        for size, pads, k, s in zip((height, width), padding, kernel, stride, strict=True)
    ]
    image, g = torch.randn(records, channels, height, width), torch.randn(records, out, *sizes)
    geometry = Geometry(kernel, stride, padding, (1, 1), 1)
    return PatchProducts(image, g, records, torch.Size((out, channels, *kernel)), geometry)


def formed(products):
    return form_rows(products.image, products.g, products.shape, products.geometry.stride, products.geometry.padding)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_convolution_kernel_forms_the_same_gradients(shape):
    fast, slow = formed(products(shape)), products(shape)
    torch.testing.assert_close(fast.squared_norms(), slow.squared_norms(), rtol=2e-6, atol=0)
    torch.testing.assert_close(fast.materialise(1, 4), slow.materialise(1, 4), rtol=1e-4, atol=1e-4)
    factors = torch.rand(6)
    torch.testing.assert_close(fast.weighted_sum(factors), slow.weighted_sum(factors), rtol=1e-4, atol=1e-4)
    some = torch.tensor([True, False, True, True, False, False])
    one, other = fast.select(some).weighted_sum(factors[some]), slow.select(some).weighted_sum(factors[some])
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_a_record_without_finite_values_stays_alone():
    bad, good = products(SHAPES[1]), products(SHAPES[1])
    bad.image[2], bad.g[3] = float("nan"), float("inf")
    found, wanted = formed(bad).squared_norms(), formed(good).squared_norms()
    assert not torch.isfinite(found[2:4]).any()
    keep = torch.tensor([0, 1, 4, 5])
    assert (found[keep] == wanted[keep]).all()


@pytest.mark.parametrize("offset", [0.0, 100.0])
@pytest.mark.parametrize("shape", [(4, 8, 5, 7), (3, 6, 33), (5, 12, 40, 40)])
def test_the_group_norm_kernel_gives_the_same_sums(shape, offset):
    torch.manual_seed(0)
    x, g = torch.randn(shape) + offset, torch.randn(shape)
    right = normalisation._group_norm_rows(x.double(), g.double(), 2, 1e-5)
    for found, wanted in zip(normalisation_kernel.group_norm_by_kernel(x, g, 2, 1e-5), right, strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4 * (1 + offset))


def test_threads_change_nothing():
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            part = products((16, 32, 13, 13, (4, 4), (2, 2), ((0, 0), (0, 0))), records=9)
            norm = nn.GroupNorm(4, 16)
            rows = normalisation_kernel.group_norm_by_kernel(part.image, part.image, 4, norm.eps)
            found.append((formed(part).squares, formed(part).rows.clone(), *rows))
    finally:
        torch.set_num_threads(before)
    assert all((one == other).all() for one, other in zip(*found, strict=True))
