"""Experts: every position goes through the matrix of its own expert (``grouped_mm``, as Hugging Face calls it).

A row's positions come sorted by expert. Those of one row and one expert are laid out in tiles of eight positions,
the last one filled up with zeros, and the tiles of one expert lie side by side: products over whole tiles do not depend
on how many positions the other rows send to the same expert.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.gradients.layers.linear import OuterProducts, full
from tacit.gradients.record_gradients import RecordGradients

if TYPE_CHECKING:
    from tacit.gradients.forward import ForwardPass

_TILE = 8


@dataclass(slots=True)
class ExpertProducts:
    """Gradients [experts, in, out]: for each expert, the sum of x_t g_t^T over those positions of a record that it got.

    ``x`` and ``g`` are tiles [tiles, positions, features], by expert and within it by record; ``held`` says how many
    tiles each expert has of each record.
    """

    x: Tensor
    g: Tensor
    held: Tensor

    @property
    def _owners(self) -> Tensor:
        """The record of each stretch of tiles with one expert and one record."""
        return torch.arange(self.held.shape[1], device=self.x.device).repeat(len(self.held))

    def squared_norms(self) -> Tensor:
        """Those of a record's experts added up; stretches of one length are measured together."""
        held, owners = self.held.flatten(), self._owners
        first = held.cumsum(0) - held
        squares = torch.zeros(self.held.shape[1], dtype=torch.float64, device=self.x.device)
        for length in torch.unique(held).tolist():
            some = (held == length) & (held > 0)
            tiles = first[some][:, None] + torch.arange(length, device=held.device)
            if len(tiles):
                x, g = (part[tiles].flatten(1, 2) for part in (self.x, self.g))
                squares.index_add_(0, owners[some], OuterProducts(x, g).squared_norms())
        return squares

    def weighted_sum(self, factors: Tensor, several: int = 1) -> Tensor:
        counts = self.held.sum(1).tolist()
        parts = [self.x, self.g, factors[self._owners.repeat_interleave(self.held.flatten())]]
        return torch.stack([_sum(*some) for some in zip(*(torch.split(part, counts) for part in parts), strict=True)])

    def materialise(self, start: int, stop: int) -> Tensor:
        experts = torch.arange(len(self.held), device=self.x.device).repeat_interleave(self.held.sum(1))
        owners = self._owners.repeat_interleave(self.held.flatten())
        some = (owners >= start) & (owners < stop)
        rows = self.x.new_zeros(stop - start, len(self.held), self.x.shape[2], self.g.shape[2])
        where = (owners[some] - start, experts[some])
        return rows.index_put_(where, self.x[some].mT @ self.g[some], accumulate=True)


def _sum(x: Tensor, g: Tensor, factors: Tensor) -> Tensor:
    if not len(x):
        return torch.zeros(x.shape[2], g.shape[2], dtype=torch.float64, device=x.device)
    return OuterProducts(x, g, transposed=True).weighted_sum(factors.contiguous())


def _form(records: int, tiles: Tensor, held: Tensor, g: Tensor) -> Sequence[RecordGradients | None]:
    x, g = (part.view(-1, _TILE, part.shape[1]) for part in (full(tiles), full(g)))
    return [ExpertProducts(x.to(g.dtype), g, held.view(len(held), records, -1).sum(2))]


def _times(tiles: Tensor, matrix: Tensor) -> Tensor:
    """With sixteen positions at least: libraries take other kernels for fewer."""
    if len(tiles) >= 2 * _TILE or not len(tiles):
        return tiles @ matrix
    return (functional.pad(tiles, (0, 0, 0, _TILE)) @ matrix)[:_TILE]


def grouped_mm(run: "ForwardPass", input: Tensor, weight: Tensor, offs: Tensor | None = None, **options: Any) -> Any:
    """Positions [positions, in] sorted by expert times [experts, in, out]; ``offs`` says where each expert ends.

    It also takes types and strides that PyTorch's own kernel refuses.
    """
    known = offs is not None and not any(value is not None for value in options.values())
    if not known or input.dim() != 2 or weight.dim() != 3 or run.is_of_rows(weight):
        return NotImplemented
    x, ends = run.rows_first(input), run.rows_first(offs).long().contiguous()  # type: ignore[arg-type]
    rows, positions = x.shape[:2]
    if bool((ends[:, -1] != positions).any()):
        return NotImplemented  # what lies behind the last expert is undefined
    place = torch.arange(positions, device=x.device).expand(rows, -1).contiguous()
    experts = torch.searchsorted(ends, place, right=True)
    begins = torch.cat([torch.zeros_like(ends[:, :1]), ends[:, :-1]], 1)
    held = (ends - begins + _TILE - 1).div(_TILE, rounding_mode="floor").mT  # tiles of each expert and row
    first = (held.flatten().cumsum(0).view_as(held) - held).mT
    slots = first.gather(1, experts) * _TILE + place - begins.gather(1, experts)
    counts = (held.sum(1) * _TILE).tolist()
    tiles = x.new_zeros(sum(counts), x.shape[2]).index_copy(0, slots.flatten(), x.flatten(0, 1))
    matrices = run.twin(weight).unbind(0)  # type: ignore[union-attr]
    out = torch.cat([_times(*pair) for pair in zip(torch.split(tiles, counts), matrices, strict=True)])
    if run.is_trained(weight):
        run.keep(out, (tiles,), (weight,), partial(_form, run.records, tiles, held))
    return run.wrap(out[slots])


GROUPED = (getattr(torch, "_grouped_mm", "torch._grouped_mm"), "transformers.grouped_mm_fallback")  # from torch 2.8 on
