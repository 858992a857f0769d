"""The gradients of all records for one parameter, in the form that is cheapest to measure and to add up.

Squared norms are never too small by more than the slack that is accounted (failure-modes F6): squares of entries may be
summed in float32, products of norms are formed in float64, and sums that can cancel are checked and recomputed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tacit.errors import InputError

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


def square_sums(rows: Tensor) -> Tensor:
    """The sum of squares of each row [records, ...], in float64."""
    rows = rows.flatten(1)
    if rows.shape[1] < 4096:
        return rows.double().square().sum(1)
    # Long rows: the float32 kernel adds blocks, with a relative error below 1e-6.
    norms: Tensor = torch.linalg.vector_norm(rows if rows.dtype == torch.float64 else rows.float(), dim=1)
    return norms.double().square()


@dataclass(slots=True)
class Dense:
    """Gradients at hand, [records, *shape]: right for small parameters."""

    rows: Tensor

    def squared_norms(self) -> Tensor:
        return square_sums(self.rows)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        flat = self.rows.flatten(1)
        return (factors.to(flat.dtype) @ flat).view(self.rows.shape[1:])

    def materialise(self, start: int, stop: int) -> Tensor:
        return self.rows[start:stop]

    def select(self, records: Tensor) -> "Dense":
        return Dense(self.rows[records])


@dataclass(slots=True)
class Together:
    """A parameter used in several places (tied weights, a layer called twice): its gradient is the sum of theirs."""

    parts: Sequence[RecordGradients]
    records: int
    size: int

    def squared_norms(self) -> Tensor:
        block = max(1, _BLOCK // max(1, self.size))
        spans = [(start, min(start + block, self.records)) for start in range(0, self.records, block)]
        return torch.cat([square_sums(self.materialise(*span)) for span in spans])

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
        return Together([part.select(records) for part in self.parts], int(records.sum()), self.size)


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
        return Together([self], self.records, max(self.parameter.numel(), self.derived.numel())).squared_norms()

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


def join(parts: Sequence[RecordGradients], records: int, size: int) -> RecordGradients:
    """One parameter's gradients from its uses."""
    if not parts:
        raise InputError("a parameter without uses has no gradients to join")
    return parts[0] if len(parts) == 1 else Together(parts, records, size)
