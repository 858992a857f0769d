"""The gradients of all records for one parameter, in the form that is cheapest to measure and to add up.

Two things hold in the worst case, whatever a record is made of (docs/maths.md, section 11):

- What a record adds to the sum is no longer than its measured norm, up to ``ROUNDING``: where the numbers that are
  added up are not the very numbers that were measured, the norm is raised by what float32 may have done in between.
- Sums over records are formed in float64, where one record cannot change the rounding of the others by more than 1e-9,
  or, in samples of few records, in stretches in float32, where it cannot by more than ``STRETCHES``.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from tacit.kernels import row_squares as row_squares_by_kernel
from tacit.kernels import weighted_rows as weighted_rows_by_kernel

ROUNDING = 4e-4  # of its norm: what rounding may add to a record; part of the slack that is charged
STRETCHES = 2.0**-11  # of the clip norm: what one record may change in the rounding of the others; part of it as well
_LEAST = 8  # records: shorter stretches take as long as float64
_RUN = 1024
_norms: Any = torch.linalg.vector_norm
_BLOCK = 1 << 22  # entries of per-record gradients that are held at once where they need not be kept


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

    m shares of norm C at most are off by u C m (m + 2) / 2 then, u = 2^-24, the n / m stretches of a sample by u C n
    (m + 2) / 2, and their sum, rounded at its end, by u C n more; with one record more every stretch may hold others,
    and be off in the other direction.
    """
    if any(not 1e-20 < bound < 1e20 for bound in bounds):
        return 1  # sums that float32 could not hold with all its digits
    found = int(STRETCHES * 2.0**24 / max(1, sample)) - 4
    return max(1, found // _LEAST * _LEAST)  # seldom another one for one record more


def is_one_stretch(records: int, several: int) -> bool:
    """Whether so many records may be added up in float32: their sum can then stay in it."""
    return 1 < several >= records


def full(tensor: Tensor) -> Tensor:
    """In a precision fit for norms and sums."""
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


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
    """Clipped sums by parameter, of those that were used: all others are zero.

    Args:
        several: records that may be added up in float32; a stretch of them is added to others in float64.
    """

    def __init__(self, several: int) -> None:
        super().__init__()
        self.several = several

    def take(self, gradients: dict[str, RecordGradients], names: Sequence[str], factors: Tensor) -> None:
        """Add the records' gradients times their factors, a column for each name.

        They are taken out one by one, so that what they held can be freed while the sums grow; vocabularies come last.
        """
        for column, name in reversed([*enumerate(names)]):
            if name in gradients:
                self.add(name, gradients.pop(name).weighted_sum(factors[:, column].contiguous(), self.several))

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
