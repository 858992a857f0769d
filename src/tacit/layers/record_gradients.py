"""The gradients of all records for one parameter, in the form that is cheapest to measure and to add up.

Two things hold in the worst case, whatever a record is made of (docs/maths.md, section 11):

- What a record adds to the sum is no longer than its measured norm, up to ``ROUNDING``: where the numbers that are
  added up are not the very numbers that were measured, the norm is raised by what float32 may have done in between.
- Sums over records are formed in float64, where one record cannot change the rounding of the others by more than 1e-9,
  or, in samples of few records, in stretches in float32, where it cannot by more than ``STRETCHES``.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from tacit.kernels import GRAM_ROUNDINGS, gram_squares, outer_sum
from tacit.kernels import row_squares as row_squares_by_kernel
from tacit.kernels import weighted_rows as weighted_rows_by_kernel

ROUNDING = 4e-4  # of its norm: what rounding may add to a record; part of the slack that is charged
STRETCHES = 2.0**-11  # of the clip norm: what one record may change in the rounding of the others; part of it as well
_LEAST = 8  # records: shorter stretches take as long as float64
_RUN = 1024
_norms: Any = torch.linalg.vector_norm
_BLOCK = 1 << 22  # entries of per-record gradients that are held at once where they need not be kept
_LARGE = 1 << 14  # entries of a gradient beside which a call in Python is nothing
FEATURES = 128  # whose products are added in float32 where there is no kernel


class RecordGradients(Protocol):
    """What the two phases ask: first the norms, then the sum weighted by the clip factors."""

    def squared_norms(self) -> Tensor:
        """[records], float64."""

    def weighted_sum(self, factors: Tensor, several: int = 1) -> Tensor:
        """Sum of factor * gradient over records, in float64; a record whose factor is 0 does not enter at all.

        ``several``: so many records may be added up in float32 before they are added to the others in float64, by a
        form whose shares cannot be longer than was measured. Where that is all of them, the sum may be in float32.
        """

    def materialise(self, start: int, stop: int) -> Tensor:
        """The gradients [stop - start, *shape] of some records."""


def records_a_stretch(sample: int, bounds: Iterable[float]) -> int:
    """How many records of a sample may be added up in float32, one after the other, given the clip norms.

    m shares of norm C at most are off by u C m (m + 3) / 2 then, u = 2^-24, the n / m stretches of a sample by u C n
    (m + 3) / 2, and their sum, rounded at its end, by u C n more; with one record more every stretch may hold others,
    and be off in the other direction.
    """
    if any(not 1e-20 < bound < 1e20 for bound in bounds):
        return 1  # sums that float32 could not hold with all its digits
    found = int(STRETCHES * 2.0**24 / max(1, sample)) - 5
    return max(1, found // _LEAST * _LEAST)  # seldom another one for one record more


def is_one_stretch(records: int, several: int) -> bool:
    """Whether so many records may be added up in float32: their sum can then stay in it."""
    return 1 < several >= records


def full(tensor: Tensor) -> Tensor:
    """In a precision fit for norms and sums."""
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Norms and sums are not for autocast."""
    enabled = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if enabled else nullcontext()


def row_squares(rows: Tensor) -> Tensor:
    """The sum of squares of each row of [records, ...], in float64.

    Without a kernel, runs of 1024 entries are added in their own precision and the runs in float64: an error of at most
    1024 2^-24 of the sum, where a long float32 sum errs by 1e-3 on equal entries.
    """
    rows = rows.reshape(len(rows), -1)
    found = row_squares_by_kernel(rows)
    if found is not None:
        return found
    whole = rows.shape[1] // _RUN * _RUN
    squares: Tensor = _norms(rows[:, :whole].reshape(len(rows), -1, _RUN), dim=2).double().square_().sum(1)
    if whole < rows.shape[1]:
        squares += _norms(rows[:, whole:], dim=1).double().square_()
    if not bool(squares.isfinite().all()):  # squares above 1e38 have left float32: what is finite counts
        large = ~squares.isfinite()
        squares[large] = rows[large].double().square().sum(1)
    return squares


def raised(squares: Tensor, bound: Tensor, terms: int, dtype: torch.dtype, *, of_products: int = 0) -> Tensor:
    """Squared norms of records whose share of the sum is formed by other products than the norm.

    Args:
        bound: the norm that the gradient would have if nothing in it cancelled.
        terms: how many products are added up, one after the other, in an entry.
        of_products: roundings in the sums of products that the squares are made of, two of which are multiplied.

    The two differ by at most ``terms`` roundings of ``bound``. While that is below ROUNDING of the norm the slack
    covers it; a gradient that cancels further is taken to be so much longer. 1e-6 is for the square root of a float64
    sum that cancels.
    """
    eps = torch.finfo(dtype).eps
    norms = squares.clamp(min=0.0).sqrt_()
    above = (squares + bound.square() * (of_products * eps)).clamp_(min=0.0).sqrt_() if of_products else norms
    longer = (above + bound * (terms * eps + 1e-6)).div_(1 + ROUNDING)
    return torch.maximum(norms, longer).square_()


def by_pairs(squares: Tensor, of_x: Tensor, of_g: Tensor, entries: int, dtype: torch.dtype) -> Tensor:
    """Squared norms |sum_t g_t x_t^T|^2 from products x_t . x_s and g_t . g_s, where ``dtype`` can hold these.

    ``of_x`` and ``of_g`` are |x|^2 and |g|^2 of each record. Products that may have overflowed make the norm infinite.
    Where they may be lost, beside entries of the other side that make up for it, it is as if nothing cancelled.
    """
    bound = of_x * of_g
    found = torch.where(may_be_lost(of_x, of_g, entries), bound, squares)
    return found.masked_fill_(bound.sqrt() > torch.finfo(dtype).max, torch.inf)


def may_be_lost(of_x: Tensor, of_g: Tensor, entries: int) -> Tensor:
    """Whether ``entries`` of one side are below 1e-15: float32 may not hold a product of two of them."""
    return torch.minimum(of_x, of_g) < entries * 2.0**-100


def in_float32(factors: Tensor) -> bool:
    """Whether factors can be rounded to float32 without leaving its range."""
    return bool(((factors == 0.0) | ((factors > 1e-30) & (factors < 1e30))).all())


def with_a_share(factors: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Factors and tensors of the records that count: 0 * inf is NaN, so that the others must not enter a product."""
    if not factors.shape[0] or float(factors.min()) > 0:  # NaN is not above zero
        return factors, *tensors
    kept = factors > 0
    return factors[kept], *(tensor[kept] for tensor in tensors)


def weighted_rows(rows: Tensor, factors: Tensor, several: int = 1) -> Tensor:
    """sum_r factor_r rows[r] in float64, at its end perhaps rounded to float32."""
    flat = rows.reshape(len(rows), -1)
    total = weighted_rows_by_kernel(flat, factors, single=is_one_stretch(len(rows), several))
    if total is None:
        factors, flat = with_a_share(factors, flat)
        total = torch.zeros(flat.shape[1], dtype=torch.float64, device=flat.device)
        step = max(1, _BLOCK // 8 // max(1, flat.shape[1]))  # the copy in float64 should stay in the cache
        for some, weights in zip(torch.split(flat, step), torch.split(factors, step), strict=True):
            total += weights @ some.double()
    return total.view(rows.shape[1:])


@dataclass(slots=True)
class Dense:
    """Gradients at hand, [records, *shape]: right for small parameters. What is measured is what is added up."""

    rows: Tensor

    def squared_norms(self) -> Tensor:
        return row_squares(self.rows)

    def weighted_sum(self, factors: Tensor, several: int = 1) -> Tensor:
        return weighted_rows(self.rows, factors, several)

    def materialise(self, start: int, stop: int) -> Tensor:
        return self.rows[start:stop]


class Sums(dict[str, Tensor]):
    """Clipped sums by parameter, of those that were used: all others are zero."""

    def take(self, gradients: dict[str, RecordGradients], names: Sequence[str], factors: Tensor, several: int) -> None:
        """Add the records' gradients times their factors, a column for each name.

        ``several``: records that may be added up in float32; a stretch of them is added to others in float64. They are
        taken out one by one, so that what they held can be freed while the sums grow; vocabularies come last.
        """
        for column, name in reversed([*enumerate(names)]):
            if name in gradients:
                self.add(name, gradients.pop(name).weighted_sum(factors[:, column].contiguous(), several))

    def add(self, name: str, value: Tensor) -> None:
        """Values are fresh: the first is kept as it is, because zeros and a sum cost as much as a small product."""
        held = self.get(name)
        if held is None:
            self[name] = value.contiguous()
        else:
            self[name] = (held.double() if held.dtype == torch.float32 else held).add_(value)


def blocks_of(records: int, size: int) -> Iterator[tuple[int, int]]:
    """Stretches of records whose gradients of ``size`` entries may be held at once."""
    block = max(1, _BLOCK // max(1, size))
    for start in range(0, records, block):
        yield start, min(start + block, records)


def squares_by_block(gradients: RecordGradients, records: int, size: int) -> Tensor:
    """Squared norms of gradients that are formed a block of records at a time and not kept."""
    return torch.cat([row_squares(gradients.materialise(*span)) for span in blocks_of(records, size)])


def sum_by_block(gradients: RecordGradients, factors: Tensor, size: int) -> Tensor:
    """The weighted sum of the very numbers that :func:`squares_by_block` measures."""
    spans = blocks_of(len(factors), size)
    parts = [weighted_rows(gradients.materialise(*span), factors[slice(*span)]) for span in spans]
    total = parts[0]
    for part in parts[1:]:
        total += part
    return total


@dataclass(slots=True)
class OuterProducts:
    """Gradients G_i^T X_i for X [records, positions, in] and G [records, positions, out]; never all formed at once.

    ``transposed``: the parameter is stored as [in, out].
    """

    x: Tensor
    g: Tensor
    transposed: bool = False
    _squares: tuple[Tensor, Tensor] | None = None  # of x and g, record by record

    @property
    def _size(self) -> int:
        return self.x.shape[2] * self.g.shape[2]

    def squared_norms(self) -> Tensor:
        squares, bound, roundings = self.measured()
        if self.x.shape[1] == 1:
            return squares
        return raised(squares, bound, self.x.shape[1], self.x.dtype, of_products=roundings)

    def measured(self) -> tuple[Tensor, Tensor, int]:
        """Squares, the norms if nothing cancelled, and how many roundings of the products of those are in the squares.

        One position: |g x^T| = |g| |x|, and the sum is formed of the same numbers.
        """
        records, positions, width = self.x.shape
        if positions > 1 and is_measured_by_positions(positions, width, self.g.shape[2]):
            return self._by_gram()
        squares_x, squares_g = row_squares(self.x), row_squares(self.g)
        bound = (squares_x * squares_g).sqrt_()
        if positions == 1:
            self._squares = squares_x, squares_g
            return squares_x * squares_g, bound, 0
        squares = squares_by_block(self, records, self._size)
        return squares.masked_fill_(bound > torch.finfo(self.x.dtype).max, math.inf), bound, 0  # may have overflowed

    def weighted_sum(self, factors: Tensor, several: int = 1) -> Tensor:
        several = several if self._in_range(factors) else 1
        single = is_one_stretch(len(factors), several) or (several > 1 and self.x.shape[1] == 1)
        total = outer_sum(self.x, self.g, factors, several, single=single)
        if total is None:
            kind = self.x.dtype if single else torch.float64
            total = self._sum(kind, *with_a_share(factors, self.x, self.g))
        return total.mT if self.transposed else total

    def _in_range(self, factors: Tensor) -> bool:
        """Whether factors, or factor * g of one position, can be rounded to float32 without leaving its range."""
        if self.x.shape[1] > 1:
            return in_float32(factors)
        if self._squares is None:
            return False
        squares_x, squares_g = self._squares
        return float(squares_x.max()) < 1e40 and float((factors.square() * squares_g).max()) < 1e60

    def materialise(self, start: int, stop: int) -> Tensor:
        x, g = self.x[start:stop], self.g[start:stop]
        left, right = (x, g) if self.transposed else (g, x)
        if right.shape[2] >= left.shape[2]:
            return _products(left.mT, right)
        return _products(right.mT, left).mT.contiguous()  # a narrow right side takes three times as long

    def _by_gram(self) -> tuple[Tensor, Tensor, int]:
        """|G^T X|^2 = <X X^T, G G^T>, the bound |X| |G|, and how many roundings are in a product of two positions."""
        x, g = self.x, self.g
        entries, found = x.shape[1] * max(x.shape[2], g.shape[2]), gram_squares(x, g)
        if found is None:
            roundings, of_x, of_g = FEATURES + 1, row_squares(x), row_squares(g)
            squares = _gram(x).mul_(_gram(g)).flatten(1).sum(1)
        else:
            roundings, (squares, of_x, of_g) = GRAM_ROUNDINGS, found
            lost = may_be_lost(of_x, of_g, entries)
            if bool(lost.any()):  # then |x|^2 may be lost as well
                of_x, of_g = torch.where(lost, row_squares(x), of_x), torch.where(lost, row_squares(g), of_g)
        bound = (of_x * of_g).sqrt_().mul_(1 + roundings * torch.finfo(x.dtype).eps)  # they are rounded themselves
        return by_pairs(squares, of_x, of_g, entries, x.dtype), bound, roundings

    def _sum(self, kind: torch.dtype, factors: Tensor, x: Tensor, g: Tensor) -> Tensor:
        """[out, in]: within a record in its own precision, over records in float64, or of large ones in ``kind``."""
        if x.shape[1] == 1:
            return (g[:, 0].double() * factors[:, None]).mT @ x[:, 0].double()
        large = self._size >= _LARGE  # one record's gradient stays in the cache
        total = torch.zeros(g.shape[2], x.shape[2], dtype=kind if large else torch.float64, device=x.device)
        if large:
            for one, other, factor in zip(g, x, factors.tolist(), strict=True):
                total.add_(one.mT @ other, alpha=factor)
            return total
        for start, stop in blocks_of(len(x), 8 * self._size):
            total += weighted_rows(g[start:stop].mT @ x[start:stop], factors[start:stop])
        return total


def _products(left: Tensor, right: Tensor) -> Tensor:
    """Record by record. One alone goes as a pair: threads share a single product, which rounds it in another way."""
    if len(left) == 1:
        left, right = (side.expand(2, -1, -1) for side in (left, right))
        return (left @ right)[:1]
    return left @ right


def is_measured_by_positions(positions: int, width: int, out: int) -> bool:
    """Whether the products of all pairs of positions take less work than the gradients themselves."""
    return positions * (width + out) < width * out


def _gram(rows: Tensor) -> Tensor:
    """The products of all pairs of positions, [records, positions, positions]."""
    return products_of_positions(rows, rows)


def products_of_positions(left: Tensor, right: Tensor) -> Tensor:
    """[records, positions of the one, of the other] in float64: a few features at a time in float32."""
    total = torch.zeros(*left.shape[:2], right.shape[1], dtype=torch.float64, device=left.device)
    for one, other in zip(torch.split(left, FEATURES, dim=2), torch.split(right, FEATURES, dim=2), strict=True):
        total += _products(one, other.mT)
    return total


def outer_products(records: int, x: Tensor, g: Tensor, transposed: bool = False) -> OuterProducts | Dense:
    """From inputs and output gradients whose rows lie record by record; formed where they are smaller than those."""
    g = g.reshape(records, -1, g.shape[-1])
    found = OuterProducts(x.to(g.dtype).reshape(records, -1, x.shape[-1]), g, transposed)
    _, positions, width = found.x.shape
    if positions == 1 or is_measured_by_positions(positions, width, g.shape[2]):
        return found
    return Dense(found.materialise(0, records))


def shifts(records: int, g: Tensor) -> Dense:
    """Gradients of a bias, which is added at every position."""
    rows = g.reshape(records, -1, g.shape[-1])
    return Dense(rows[:, 0] if rows.shape[1] == 1 else rows.sum(1))
