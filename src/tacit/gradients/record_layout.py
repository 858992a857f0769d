"""Where the records are in a tensor: models transpose and flatten, and a wrong guess would clip the wrong vector."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """Which dimension runs over records.

    ``whole``: its size is the number of records; ``major``: its index is record * k + j, as flattening [records, k]
    gives; ``minor``: its index is j * records + record, as flattening [k, records] gives.

    Example:
        >>> RecordLayout(0, "minor").records_first(torch.arange(6), 2)
        tensor([[0, 2, 4],
                [1, 3, 5]])
    """

    dim: int
    order: Literal["whole", "major", "minor"]

    def fits(self, shape: Sequence[int], records: int) -> bool:
        if self.dim >= len(shape):
            return False
        size = shape[self.dim]
        return size == records if self.order == "whole" else size > 0 and size % records == 0

    def split(self, tensor: Tensor, records: int) -> tuple[Tensor, int]:
        """The tensor with a dimension of exactly the records, and that dimension."""
        match self.order:
            case "whole":
                return tensor, self.dim
            case "major":
                return _unflatten(tensor, self.dim, (records, -1)), self.dim
            case "minor":
                return _unflatten(tensor, self.dim, (-1, records)), self.dim + 1

    def records_first(self, tensor: Tensor, records: int) -> Tensor:
        split, dim = self.split(tensor, records)
        return split if dim == 0 else split.movedim(dim, 0)


def _unflatten(tensor: Tensor, dim: int, sizes: tuple[int, int]) -> Tensor:
    return tensor.reshape(*tensor.shape[:dim], *sizes, *tensor.shape[dim + 1 :])


def layout_candidates(shape: Sequence[int], dims: int, records: int) -> Iterator[RecordLayout]:
    """Layouts that the first ``dims`` dimensions of a shape allow, the likelier first."""
    for dim in range(min(dims, len(shape))):
        if shape[dim] == records:
            yield RecordLayout(dim, "whole")
    for dim in range(min(dims, len(shape))):
        if shape[dim] > records and shape[dim] % records == 0:
            yield RecordLayout(dim, "major")
            yield RecordLayout(dim, "minor")


def find_layout(
    gradient: Tensor, weighted: Tensor, weights: Tensor, dims: int, *, tolerance: float
) -> tuple[RecordLayout | None, bool]:
    """The layout in which row i of ``weighted`` is weights[i] times row i of ``gradient``, and whether that says much.

    ``weighted`` is the gradient of the losses weighted by record. If no layout fits, the operation has no dimension of
    records or lets them mix. Powers of two as weights make the comparison exact up to what kernels reorder.
    """
    records = len(weights)
    scale = torch.nan_to_num(gradient.abs(), posinf=0.0).max() if gradient.numel() else 0.0
    for layout in layout_candidates(gradient.shape, dims, records):
        rows = layout.records_first(gradient, records).flatten(1)
        weighted_rows = layout.records_first(weighted, records).flatten(1)
        expected = rows * weights.to(rows.dtype)[:, None]
        if torch.allclose(
            weighted_rows, expected, rtol=tolerance, atol=float(scale) * tolerance * 1e-2, equal_nan=True
        ):
            seen = weights[(rows.abs() > 0).any(1)]
            return layout, bool(len(seen) and seen.max() > seen.min())
    return None, True
