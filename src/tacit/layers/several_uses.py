"""A parameter used in several places: tied weights, a layer called twice, a tensor made of parameters."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.layers.embedding import TokenRows
from tacit.layers.record_gradients import (
    FEATURES,
    OuterProducts,
    RecordGradients,
    full,
    may_be_lost,
    products_of_positions,
    raised,
    row_squares,
    squares_by_block,
    sum_by_block,
)


@dataclass(slots=True)
class Together:
    """A parameter used in several places (tied weights, a layer called twice): its gradient is the sum of theirs."""

    parts: Sequence[RecordGradients]
    records: int
    size: int
    dtype: torch.dtype

    def squared_norms(self) -> Tensor:
        bound = torch.stack([part.squared_norms().sqrt() for part in self.parts]).sum(0)
        return raised(squares_by_block(self, self.records, self.size), bound, len(self.parts), self.dtype)

    def weighted_sum(self, factors: Tensor, several: int = 1) -> Tensor:
        total = self.parts[0].weighted_sum(factors)
        for part in self.parts[1:]:
            total = total + part.weighted_sum(factors)
        return total

    def materialise(self, start: int, stop: int) -> Tensor:
        total = self.parts[0].materialise(start, stop)
        for part in self.parts[1:]:
            total = total + part.materialise(start, stop)
        return total


def turned(tensor: Tensor) -> tuple[int, ...] | None:
    """Where the dimensions of a parameter are in a tensor that is the parameter transposed; None if it is not."""
    parameter = tensor._base
    if parameter is None or not parameter.is_leaf or not parameter.is_contiguous():
        return None
    layout = list(zip(tensor.shape, tensor.stride(), strict=True))
    wanted = list(zip(parameter.shape, parameter.stride(), strict=True))
    if sorted(layout) != sorted(wanted) or len(set(layout)) < len(layout):
        return None
    return tuple(layout.index(one) for one in wanted)


@dataclass(slots=True)
class Turned:
    """Gradients for a parameter through the same numbers in another order of dimensions."""

    through: RecordGradients
    order: tuple[int, ...]

    def squared_norms(self) -> Tensor:
        return self.through.squared_norms()

    def weighted_sum(self, factors: Tensor, several: int = 1) -> Tensor:
        return self.through.weighted_sum(factors, several).permute(self.order)

    def materialise(self, start: int, stop: int) -> Tensor:
        return self.through.materialise(start, stop).permute(0, *(dim + 1 for dim in self.order))


@dataclass(slots=True)
class PulledBack:
    """Gradients for a parameter through a tensor computed from parameters alone (a slice, a transpose, a product).

    Linear in the gradients of that tensor, so records can go through autograd's graph side by side. A sum over records
    would be rounded to the tensor's precision on the way, so each record is pulled back by itself.
    """

    through: RecordGradients
    derived: Tensor
    parameter: Tensor
    records: int

    @property
    def _size(self) -> int:
        return max(self.parameter.numel(), self.derived.numel())

    def squared_norms(self) -> Tensor:
        return squares_by_block(self, self.records, self._size)

    def weighted_sum(self, factors: Tensor, several: int = 1) -> Tensor:
        return sum_by_block(self, factors, self._size)

    def materialise(self, start: int, stop: int) -> Tensor:
        rows = self.through.materialise(start, stop).to(self.derived.dtype).reshape(-1, *self.derived.shape)
        (pulled,) = torch.autograd.grad(
            self.derived, self.parameter, rows, retain_graph=True, is_grads_batched=True, materialize_grads=True
        )
        return pulled if pulled.dtype in (torch.float32, torch.float64) else pulled.float()


@dataclass(slots=True)
class TiedRows:
    """Gradients of a vocabulary that is both looked up and multiplied with, as the head of many language models is.

    The square of a sum is |E|^2 + |H|^2 + 2 <E, H>, and with rows a_t of E at the tokens v_t and H = sum_s g_s x_s^T
    the last is sum_st g_s[v_t] <x_s, a_t>: no gradient is formed.
    """

    rows: TokenRows
    products: OuterProducts

    def squared_norms(self) -> Tensor:
        x, g, a = self.products.x, self.products.g, self.rows.g
        at_tokens = g.gather(2, self.rows.tokens[:, None].expand(-1, g.shape[1], -1)).double()
        inner = products_of_positions(x, a).mul_(at_tokens).flatten(1).sum(1)
        (squares, bound, _), of_rows = self.products.measured(), self.rows.squared_norms()
        of_x, of_a = row_squares(x), row_squares(a)
        inner = torch.where(may_be_lost(of_x, of_a, x[0].numel()), (of_rows * squares).sqrt(), inner)
        squares = of_rows + squares + 2 * inner
        between = (row_squares(at_tokens) * of_x * of_a).sqrt_()
        return raised(squares, (bound.square() + 2 * between).sqrt_(), x.shape[1], x.dtype, of_products=FEATURES + 1)

    def weighted_sum(self, factors: Tensor, several: int = 1) -> Tensor:
        return self.rows.weighted_sum(factors).add_(self.products.weighted_sum(factors))

    def materialise(self, start: int, stop: int) -> Tensor:
        return self.rows.materialise(start, stop) + self.products.materialise(start, stop)


def _merged_tokens(parts: Sequence[TokenRows]) -> TokenRows:
    """A vocabulary looked up several times: more positions."""
    tokens, g = (torch.cat([getattr(part, side) for part in parts], dim=1) for side in ("tokens", "g"))
    return TokenRows(tokens, g, parts[0].vocabulary)


def _merged_products(parts: Sequence[OuterProducts]) -> OuterProducts:
    """A layer called several times: the calls are more positions of the same product."""
    x, g = (torch.cat([getattr(part, side) for part in parts], dim=1) for side in ("x", "g"))
    return OuterProducts(x, g, parts[0].transposed)


def joined(parts: Sequence[RecordGradients], records: int, leaf: Tensor) -> RecordGradients:
    """One parameter's gradients from those of its uses."""
    if len(parts) == 1:
        return parts[0]
    outer = [part for part in parts if isinstance(part, OuterProducts)]
    rows = [part for part in parts if isinstance(part, TokenRows)]
    alike = len({part.transposed for part in outer}) <= 1
    if len(outer) == len(parts) and alike:
        return _merged_products(outer)
    if len(rows) == len(parts):
        return _merged_tokens(rows)
    of_one_type = len({*(part.g.dtype for part in outer), *(part.g.dtype for part in rows)}) == 1
    if len(outer) + len(rows) == len(parts) and alike and of_one_type and not outer[0].transposed:
        return TiedRows(_merged_tokens(rows), _merged_products(outer))
    return Together(parts, records, leaf.numel(), full(leaf[:0] if leaf.dim() else leaf).dtype)
