"""Linear maps: the gradient of a record is a sum of outer products g_t x_t^T over its positions t."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.gradients.record_gradients import (
    Dense,
    RecordGradients,
    blocks_of,
    by_pairs,
    in_float32,
    is_one_stretch,
    may_be_lost,
    raised,
    row_squares,
    squares_by_block,
    weighted_rows,
    with_a_share,
)
from tacit.kernels import GRAM_ROUNDINGS, gram_squares, outer_sum

if TYPE_CHECKING:
    from tacit.gradients.bookkeeping import ForwardPass

_LARGE = 1 << 14  # entries of a gradient beside which a call in Python is nothing
FEATURES = 128  # whose products are added in float32 where there is no kernel


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
        return x.mT @ g if self.transposed else g.mT @ x

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
        total += one @ other.mT
    return total


def merge(parts: Sequence[OuterProducts]) -> OuterProducts:
    """A layer called several times: the calls are more positions of the same product."""
    x, g = (torch.cat([getattr(part, side) for part in parts], dim=1) for side in ("x", "g"))
    return OuterProducts(x, g, parts[0].transposed)


def outer_products(records: int, x: Tensor, g: Tensor, transposed: bool = False) -> OuterProducts:
    """From inputs and output gradients whose rows lie record by record."""
    g = g.reshape(records, -1, g.shape[-1])
    return OuterProducts(x.to(g.dtype).reshape(records, -1, x.shape[-1]), g, transposed)


def shifts(records: int, g: Tensor) -> Dense:
    """Gradients of a bias, which is added at every position."""
    rows = g.reshape(records, -1, g.shape[-1])
    return Dense(rows[:, 0] if rows.shape[1] == 1 else rows.sum(1))


def _form(records: int, x: Tensor, transposed: bool, bias: bool, g: Tensor) -> list[RecordGradients | None]:
    return [outer_products(records, x, g, transposed), shifts(records, g) if bias else None]


def linear(run: "ForwardPass", input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if weight.dim() != 2 or not run.joins(input, weight, bias):
        return NotImplemented
    x = run.rows_first(input)
    flat = x.flatten(0, -2)
    run.multiplies(*weight.shape)
    out = functional.linear(flat, run.twin(weight), run.twin(bias))  # type: ignore[arg-type]
    run.keep(out, (flat,), (weight, bias), partial(_form, run.records, flat, False, bias is not None))
    return run.wrap(out.view(*x.shape[:-1], -1))


def matmul(run: "ForwardPass", input: Tensor, other: Tensor) -> Any:
    """x @ W with a plain matrix on the right; W @ x and batched products go the general way."""
    if not isinstance(other, Tensor) or other.dim() != 2 or input.dim() < 1 or not run.joins(input, other):
        return NotImplemented
    x = run.rows_first(input)
    flat = x.flatten(0, -2)
    run.multiplies(*other.shape)
    out = torch.matmul(flat, run.twin(other))  # type: ignore[arg-type]
    run.keep(out, (flat,), (other, None), partial(_form, run.records, flat, True, False))
    return run.wrap(out.view(*x.shape[:-1], -1))


def addmm(
    run: "ForwardPass",
    input: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: None = None,
) -> Any:
    """bias + x @ W, as the Conv1D of Hugging Face's GPT-2 computes it."""
    if input.dim() != 1 or beta != 1 or alpha != 1 or not run.joins(mat1, mat2, input):
        return NotImplemented
    x = run.rows_first(mat1)
    flat = x.flatten(0, -2)
    run.multiplies(*mat2.shape)
    result = torch.addmm(run.twin(input), flat, run.twin(mat2))  # type: ignore[arg-type]
    run.keep(result, (flat,), (mat2, input), partial(_form, run.records, flat, True, True))
    return run.wrap(result.view(*x.shape[:-1], -1))
