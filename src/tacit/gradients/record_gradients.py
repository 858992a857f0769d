"""The gradients of all records for one parameter, in the form that is cheapest to measure and to add up.

Squared norms are never too small by more than the slack that is accounted (failure-modes F6): squares of entries may be
summed in float32, products of norms are formed in float64, and sums that can cancel are checked and recomputed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

_RUN = 1024
_BLOCK = 1 << 23  # entries of per-record gradients held at once where they need not be kept


class RecordGradients(Protocol):
    """What the two phases ask: first the norms, then the sum weighted by the clip factors."""

    def squared_norms(self) -> Tensor:
        """[records], float64."""

    def weighted_sum(self, factors: Tensor) -> Tensor:
        """Sum of factor * gradient over records; factors are [records] in float64 and may hold zeros."""

    def materialise(self, start: int, stop: int) -> Tensor:
        """The gradients [stop - start, *shape] of some records."""

    def select(self, records: Tensor) -> "RecordGradients":
        """The gradients of some records only: those without a share must not enter a product, where 0 * inf is NaN."""


def row_norms(rows: Tensor) -> Tensor:
    """The norm of each row of [records, ...], in float64.

    Runs of 1024 entries are added in their own precision, the runs in float64: the relative error stays below 1e-6,
    where a long float32 sum errs by 1e-3 on equal entries.
    """
    rows = rows.reshape(len(rows), -1)
    if rows.shape[1] <= _RUN:
        return _norms(rows, 1).double()
    whole = rows.shape[1] // _RUN * _RUN
    runs = _norms(rows[:, :whole].reshape(len(rows), -1, _RUN), 2)
    if whole < rows.shape[1]:
        runs = torch.cat([runs, _norms(rows[:, whole:], 1)[:, None]], dim=1)
    return _norms(runs.double(), 1)


def _norms(values: Tensor, dim: int) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(values, dim=dim)
    return norms


def square_sums(rows: Tensor) -> Tensor:
    """The sum of squares of each row of [records, ...], in float64."""
    return row_norms(rows).square_()


def with_rounding(squares: Tensor, bound: Tensor, dtype: torch.dtype) -> Tensor:
    """Squared norms raised by what rounding may add to the record's share of the sum.

    The sum is formed by other products than the norm. The two differ by about the rounding of ``bound``, the norm that
    the gradient would have if nothing in it cancelled; a gradient that cancels is clipped that much more.
    """
    return (squares.sqrt() + bound * torch.finfo(dtype).eps).square_()


@dataclass(slots=True)
class Dense:
    """Gradients at hand, [records, *shape]: right for small parameters."""

    rows: Tensor
    norms: Tensor | None = None  # where another needed them before

    def squared_norms(self) -> Tensor:
        return (row_norms(self.rows) if self.norms is None else self.norms).square()

    def weighted_sum(self, factors: Tensor) -> Tensor:
        flat = self.rows.reshape(len(self.rows), -1)
        return (factors.to(flat.dtype) @ flat).view(self.rows.shape[1:])

    def materialise(self, start: int, stop: int) -> Tensor:
        return self.rows[start:stop]

    def select(self, records: Tensor) -> "Dense":
        return Dense(self.rows[records])


def squares_by_block(gradients: RecordGradients, records: int, size: int) -> Tensor:
    """Squared norms of gradients that are formed a block of records at a time and not kept."""
    block = max(1, _BLOCK // max(1, size))
    spans = [(start, min(start + block, records)) for start in range(0, records, block)]
    return torch.cat([square_sums(gradients.materialise(*span)) for span in spans])


@dataclass(slots=True)
class Together:
    """A parameter used in several places (tied weights, a layer called twice): its gradient is the sum of theirs."""

    parts: Sequence[RecordGradients]
    records: int
    size: int
    dtype: torch.dtype

    def squared_norms(self) -> Tensor:
        bound = torch.stack([part.squared_norms().sqrt() for part in self.parts]).sum(0)
        return with_rounding(squares_by_block(self, self.records, self.size), bound, self.dtype)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        total = self.parts[0].weighted_sum(factors)
        for part in self.parts[1:]:
            total = total + part.weighted_sum(factors)
        return total

    def materialise(self, start: int, stop: int) -> Tensor:
        total = self.parts[0].materialise(start, stop)
        for part in self.parts[1:]:
            total = total + part.materialise(start, stop)
        return total

    def select(self, records: Tensor) -> "Together":
        return Together([part.select(records) for part in self.parts], int(records.sum()), self.size, self.dtype)


@dataclass(slots=True)
class PulledBack:
    """Gradients for a parameter through a tensor computed from parameters alone (a slice, a transpose, a product).

    Linear in the gradients of that tensor, so records can go through autograd's graph side by side.
    """

    through: RecordGradients
    derived: Tensor
    parameter: Tensor
    records: int

    def squared_norms(self) -> Tensor:
        size = max(self.parameter.numel(), self.derived.numel())
        squares = squares_by_block(self, self.records, size)
        return with_rounding(squares, squares.sqrt() * math.sqrt(self.derived.numel()), self.derived.dtype)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        total = self.through.weighted_sum(factors).to(self.derived.dtype).reshape(self.derived.shape)
        return self._pull(total[None])[0]

    def materialise(self, start: int, stop: int) -> Tensor:
        rows = self.through.materialise(start, stop).to(self.derived.dtype)
        return self._pull(rows.reshape(-1, *self.derived.shape))

    def select(self, records: Tensor) -> "PulledBack":
        return PulledBack(self.through.select(records), self.derived, self.parameter, int(records.sum()))

    def _pull(self, rows: Tensor) -> Tensor:
        (pulled,) = torch.autograd.grad(
            self.derived, self.parameter, rows, retain_graph=True, is_grads_batched=True, materialize_grads=True
        )
        return pulled
