"""A vocabulary that is looked up and multiplied with: norms without forming a gradient, however the two cancel."""

import pytest
import torch

from tacit.layers.embedding import TokenRows
from tacit.layers.record_gradients import ROUNDING, OuterProducts
from tacit.layers.several_uses import TiedRows

RECORDS, POSITIONS, WIDTH, VOCABULARY = 5, 7, 300, 23


def tied(kind=torch.float32, seed=0):
    torch.manual_seed(seed)
    tokens = torch.randint(0, VOCABULARY, (RECORDS, POSITIONS))
    x, a = torch.randn(2, RECORDS, POSITIONS, WIDTH, dtype=kind)
    g = torch.randn(RECORDS, POSITIONS, VOCABULARY, dtype=kind)
    return TiedRows(TokenRows(tokens, a, VOCABULARY), OuterProducts(x, g))


def norms(gradients):
    return gradients.materialise(0, RECORDS).double().flatten(1).norm(dim=1)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_norms_and_sums_are_those_of_the_gradients(kind):
    found = tied(kind)
    torch.testing.assert_close(found.squared_norms().sqrt(), norms(found), rtol=1e-6, atol=0)
    factors = torch.rand(RECORDS, dtype=torch.float64)
    wanted = (found.materialise(0, RECORDS).double() * factors[:, None, None]).sum(0)
    torch.testing.assert_close(found.weighted_sum(factors), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("left", [0.0, 1e-7, 1e-5, 1e-3])
def test_parts_that_cancel_are_never_measured_too_short(left):
    """The rows that are looked up take away what the head adds, but for a little."""
    for seed in range(20):
        found = tied(seed=seed)
        found.rows.tokens = torch.stack([torch.randperm(VOCABULARY)[:POSITIONS] for _ in range(RECORDS)])
        found.products.g.zero_().scatter_(2, found.rows.tokens[:, :, None], 1.0 / 3.0)
        found.rows.g = -found.products.x / 3.0 * (1 - left * torch.rand(RECORDS, 1, 1))
        for record in range(RECORDS):
            alone = torch.eye(RECORDS, dtype=torch.float64)[record]
            share = found.weighted_sum(alone).norm()
            assert share <= found.squared_norms()[record].sqrt() * (1 + ROUNDING)
