"""Sums across records and squares of rows against float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import kernels

pytestmark = pytest.mark.skipif(kernels.library() is None, reason="no compiler")


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def outer_sum_in_float64(x, g, factors):
    used = factors != 0
    return torch.einsum("rti,rto,r->oi", x[used].double(), g[used].double(), factors[used])


@settings(max_examples=150, deadline=None)
@given(
    records=st.integers(0, 20),
    positions=st.sampled_from([1, 2, 7, 8, 9, 20, 255, 256, 257, 300]),
    width=st.integers(1, 40),
    out=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_outer_sums_of_any_shape(records, positions, width, out, seed):
    generator = torch.Generator().manual_seed(seed)
    x, g = (torch.randn(records, positions, size, generator=generator) for size in (width, out))
    factors = torch.rand(records, generator=generator).double() * torch.randint(0, 2, (records,), generator=generator)
    found, wanted = kernels.outer_sum(x, g, factors), outer_sum_in_float64(x, g, factors)
    assert found.dtype == torch.float64
    torch.testing.assert_close(
        found, wanted, rtol=1e-12 if positions == 1 else 1e-5, atol=1e-12 + 1e-4 * (positions > 1)
    )
    single = kernels.outer_sum(x, g, factors, 24, single=True)
    assert single.dtype == (torch.float32 if positions <= 256 else torch.float64)
    assert ((single - found).abs() <= 24 * 2.0**-24 * outer_sum_in_float64(x.abs(), g.abs(), factors)).all()


@pytest.mark.parametrize(("positions", "width", "out"), [(1, 784, 300), (4, 3000, 70), (64, 256, 512), (30, 70, 2100)])
def test_threads_change_no_bit_of_an_outer_sum(threads, positions, width, out):
    x, g, factors = torch.randn(30, positions, width), torch.randn(30, positions, out), torch.rand(30).double()
    found = []
    for count in (1, 2, 3):
        threads(count)
        found.append(kernels.outer_sum(x, g, factors))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    torch.testing.assert_close(found[0], outer_sum_in_float64(x, g, factors), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("positions", [1, 5, 40])
def test_one_record_does_not_change_the_rounding_of_the_others(positions):
    """In float32 a record of 2^24 would wipe out what is below 1; its removal would then change more than itself."""
    x, g, factors = torch.rand(50, positions, 9), torch.rand(50, positions, 6), torch.ones(50).double()
    x[20] *= 2.0**24
    without = factors.clone()
    without[20] = 0
    change = kernels.outer_sum(x, g, factors) - kernels.outer_sum(x, g, without)
    alone = kernels.outer_sum(x[20:21], g[20:21], factors[:1])
    torch.testing.assert_close(change, alone, rtol=1e-14, atol=0)
    rows = x.flatten(1)
    change = kernels.weighted_rows(rows, factors) - kernels.weighted_rows(rows, without)
    torch.testing.assert_close(change, rows[20].double(), rtol=1e-14, atol=0)


@pytest.mark.parametrize("positions", [40, 200, 300, 700])
def test_a_record_is_rounded_alike_wherever_it_lies(positions):
    """Cut where another record left room, each of the others would be rounded anew when that one is taken away."""
    x, g, factors = torch.rand(9, positions, 9), torch.rand(9, positions, 6), torch.ones(9).double()
    change = kernels.outer_sum(x, g, factors) - kernels.outer_sum(x[1:], g[1:], factors[1:])
    torch.testing.assert_close(change, kernels.outer_sum(x[:1], g[:1], factors[:1]), rtol=1e-12, atol=0)


@settings(max_examples=50, deadline=None)
@given(
    lengths=st.lists(st.sampled_from([0, 1, 3, 8, 30, 255, 257, 600]), min_size=1, max_size=9),
    usual=st.sampled_from([1, 8, 9, 64]),
    seed=st.integers(0, 99),
)
def test_outer_sums_of_records_that_differ_in_positions(lengths, usual, seed):
    generator = torch.Generator().manual_seed(seed)
    x, g = (torch.randn(sum(lengths) + 5, size, generator=generator) for size in (21, 13))
    factors = torch.rand(len(lengths), generator=generator).double() * torch.tensor([1.0, 0.0, 2.0] * 3)[: len(lengths)]
    found = kernels.uneven_outer_sum(x, g, torch.tensor(lengths).cumsum(0), usual, factors)
    parts = zip(x.split([*lengths, 5]), g.split([*lengths, 5]), factors, strict=False)
    wanted = sum(outer_sum_in_float64(one[None], other[None], factor[None]) for one, other, factor in parts)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("positions", [1, 5, 40])
def test_records_of_factor_0_are_not_looked_at(positions):
    x, g, factors = torch.randn(6, positions, 5), torch.randn(6, positions, 4), torch.rand(6).double()
    x[1], g[4], factors[1], factors[4] = torch.inf, torch.nan, 0.0, 0.0
    keep = torch.tensor([0, 2, 3, 5])
    assert torch.equal(kernels.outer_sum(x, g, factors), kernels.outer_sum(x[keep], g[keep], factors[keep]))
    assert torch.equal(kernels.weighted_rows(x[:, 0], factors)[:0], torch.empty(0).double())
    assert kernels.weighted_rows(x[:, 0], factors).isfinite().all()
    assert not kernels.outer_sum(x, g, torch.zeros(6).double()).any()


def test_products_that_overflow_float32_do_not():
    x, g = torch.full((2, 1, 3), 1e30), torch.full((2, 1, 2), 1e30)
    found = kernels.outer_sum(x, g, torch.full((2,), 1e-60, dtype=torch.float64))
    torch.testing.assert_close(found, torch.full((2, 3), 2.0).double(), rtol=1e-6, atol=0)


def test_what_does_not_suit_is_left_to_pytorch():
    x, factors = torch.randn(4, 3, 2), torch.rand(4).double()
    assert kernels.outer_sum(x.double(), x.double(), factors) is None
    assert kernels.outer_sum(x, x, factors.float()) is None
    assert kernels.outer_sum(x, x[:, :2], factors) is None
    assert kernels.outer_sum(x[0], x[0], factors[:3]) is None
    assert kernels.outer_sum(x.to("meta"), x, factors) is None
    assert kernels.weighted_rows(x, factors) is None
    assert kernels.weighted_rows(x[:, 0], factors[:3]) is None
    assert kernels.row_squares(x.double()) is None


def test_any_layout_is_read_rightly():
    x, g, factors = torch.randn(7, 5, 3).mT, torch.randn(3, 7, 4).movedim(0, 1), torch.rand(14).double()[::2]
    torch.testing.assert_close(
        kernels.outer_sum(x, g, factors), outer_sum_in_float64(x, g, factors), rtol=1e-5, atol=1e-5
    )
    rows = torch.randn(40, 7).T
    torch.testing.assert_close(kernels.weighted_rows(rows, factors), factors @ rows.double())
    torch.testing.assert_close(kernels.row_squares(rows), rows.double().square().sum(1), rtol=1e-14, atol=0)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 12), st.sampled_from([0, 1, 15, 16, 17, 2047, 2048, 2049, 9000]), st.integers(0, 99))
def test_weighted_rows_and_squares_of_any_shape(records, size, seed):
    generator = torch.Generator().manual_seed(seed)
    rows, factors = torch.randn(records, size, generator=generator), torch.rand(records, generator=generator).double()
    torch.testing.assert_close(kernels.weighted_rows(rows, factors), factors @ rows.double(), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(kernels.row_squares(rows), rows.double().square().sum(1), rtol=1e-13, atol=0)


def test_threads_change_no_bit_of_rows(threads):
    rows, factors = torch.randn(3, 300_000), torch.rand(3).double()
    found = []
    for count in (1, 3):
        threads(count)
        found.append((kernels.weighted_rows(rows, factors), kernels.row_squares(rows)))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_squares_neither_overflow_nor_vanish():
    rows = torch.tensor([1e-30, 1e30, torch.inf, torch.nan, -1e-45])[:, None].repeat(1, 19)
    found, wanted = kernels.row_squares(rows), rows.double().square().sum(1)
    torch.testing.assert_close(found, wanted, rtol=1e-14, atol=0, equal_nan=True)
    assert (found[[0, 4]] > 0).all()
    assert found[1].isfinite()


@pytest.mark.parametrize("positions", [2, 7, 64, 256, 300, 600])
def test_a_record_that_cancels_does_not_round_the_others(positions):
    """In a sum of floats: 1e6 up and down again within one record must leave nothing in the sums of the others."""
    records = 40
    x, g = torch.rand(records, positions, 20), torch.rand(records, positions, 24) / positions
    factors = torch.ones(records, dtype=torch.float64)
    alone = kernels.outer_sum(x, g, factors, 1, single=True)
    for place in (0, 17, records - 1):
        large = torch.full((1, positions, 24), 1e6)
        large[:, positions // 2 :] *= -positions // 2 / (positions - positions // 2)
        more = torch.cat([x[:place], torch.ones(1, positions, 20), x[place:]])
        gs = torch.cat([g[:place], large, g[place:]])
        joined = kernels.outer_sum(more, gs, torch.ones(records + 1, dtype=torch.float64), 1, single=True)
        own = kernels.outer_sum(torch.ones(1, positions, 20), large, torch.ones(1, dtype=torch.float64))
        moved = (joined.double() - alone.double() - own).norm() / (own.norm() + 1)
        assert float(moved) < 2.0**-11
