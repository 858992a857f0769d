"""Norms from products of pairs of positions or places: never shorter than what is added to the sum."""

import pytest
import torch

from tacit.kernels import library
from tacit.layers.convolution import Geometry, PairsOfPlaces, PatchProducts, measured_by_pairs
from tacit.layers.embedding import TokenRows
from tacit.layers.record_gradients import ROUNDING, OuterProducts
from tacit.layers.several_uses import TiedRows

CHANNELS, SIDE = 64, 8
SHAPE = torch.Size((64, CHANNELS, 3, 3))


def places(image, g):
    geometry = Geometry((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1)
    products = PatchProducts(image, g, len(g), SHAPE, geometry)
    found = measured_by_pairs(products, image, g, SHAPE, geometry.stride, geometry.padding)
    assert isinstance(found, PairsOfPlaces)
    return found


def positions(image, g):
    found = OuterProducts(image.flatten(2).mT.contiguous(), g.flatten(2).mT.contiguous())
    assert found._by_gram() is not None
    return found


FORMS = [positions, pytest.param(places, marks=pytest.mark.skipif(library() is None, reason="no compiler"))]


def drawn(records=3):
    torch.manual_seed(0)
    return torch.randn(records, CHANNELS, SIDE, SIDE), torch.randn(records, 64, SIDE, SIDE)


def lengths_of_shares(gradients, records):
    """Of what each record alone adds to the sum, in float32 and in float64."""
    for several in (1, 88):
        for one in range(records):
            factors = torch.zeros(records, dtype=torch.float64)
            factors[one] = 1.0
            yield one, float(gradients.weighted_sum(factors, several).double().norm())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("nearly", [1.0, 1e-1, 1e-2, 1e-3, 1e-5, 0.0])
def test_a_record_that_cancels_adds_no_more_than_was_measured(form, nearly):
    """Equal patches whose gradients cancel all but a little."""
    image, g = drawn()
    image = image[:, :, :1, :1].expand_as(image).contiguous() + nearly * image
    g = g - g.mean((2, 3), keepdim=True) * (1 - nearly)
    gradients = form(image, g)
    norms = gradients.squared_norms().sqrt()
    for one, share in lengths_of_shares(gradients, len(image)):
        assert share <= float(norms[one]) * (1 + ROUNDING) + 1e-14


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1e-19, 1e-21, 2e-23, 5e-24, 1e-30, 1e-38])
@pytest.mark.parametrize("small", ["inputs", "gradients"])
def test_products_that_float32_loses_do_not_make_a_record_short(form, size, small):
    """Inputs of 2e-23 have squares of 0, but beside gradients of 1e17 they are no small record."""
    image, g = torch.full((1, CHANNELS, SIDE, SIDE), size), torch.full((1, 64, SIDE, SIDE), 1e17)
    gradients = form(image, g) if small == "inputs" else form(g, image)
    norm = float(gradients.squared_norms().sqrt())
    for _, share in lengths_of_shares(gradients, 1):
        assert share <= norm * (1 + ROUNDING) + 1e-14


def test_tied_rows_whose_products_float32_loses_are_not_short():
    """A row of 1e-8, and beside it the product of an input of 1e-38 with a gradient of 1e30, which is as long."""
    row, x = torch.full((1, 1, 256), 1e-8), torch.full((1, 1, 256), 2e-38)
    g = torch.zeros(1, 1, 5)
    g[..., 3] = 0.5e30
    tied = TiedRows(TokenRows(torch.tensor([[3]]), row, 5), OuterProducts(x, g))
    (_, share), *_ = lengths_of_shares(tied, 1)
    assert share > 3e-7
    assert share <= float(tied.squared_norms().sqrt()) * (1 + ROUNDING) + 1e-14


@pytest.mark.parametrize("form", FORMS)
def test_products_that_overflow_have_no_norm(form):
    image, g = drawn(2)
    image[1] *= 1e25
    g[1] *= 1e25
    squares = form(image, g).squared_norms()
    assert bool(squares[0].isfinite())
    assert not bool(squares[1].isfinite())


@pytest.mark.parametrize("form", FORMS)
def test_the_norm_of_an_ordinary_record_is_its_own(form):
    gradients = form(*drawn())
    wanted = gradients.materialise(0, 3).double().flatten(1).norm(dim=1)
    torch.testing.assert_close(gradients.squared_norms().sqrt(), wanted, rtol=1e-4, atol=0)


@pytest.mark.skipif(library() is None, reason="no compiler")
def test_company_changes_no_norm_and_many_records_are_added_in_float64():
    image, g = drawn(100)
    gradients = places(image, g)
    assert torch.equal(gradients.squared_norms()[:7], places(image[:7], g[:7]).squared_norms())
    factors = torch.rand(100).double()
    total = gradients.weighted_sum(factors, 40)
    assert total.dtype == torch.float64
    wanted = torch.einsum("r,r...->...", factors, gradients.materialise(0, 100).double())
    torch.testing.assert_close(total, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [0.0, 2e-23, 1e25])
def test_a_record_whose_products_are_lost_changes_no_other_norm(size):
    image, g = drawn()
    alone = positions(image, g).squared_norms()
    image[1], g[1] = size, 1e17
    assert torch.equal(positions(image, g).squared_norms()[[0, 2]], alone[[0, 2]])
