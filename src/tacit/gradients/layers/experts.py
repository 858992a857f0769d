"""Experts: every position goes through the matrix of its own expert (``grouped_mm``, as Hugging Face calls it).

A row's positions come sorted by expert. Those of one row and one expert are laid out in tiles of sixteen positions,
the last one filled up with zeros, and the tiles of one expert lie side by side: products over whole tiles do not depend
on how many positions the other rows send to the same expert.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tacit.gradients.layers.linear import OuterProducts, full, gram
from tacit.gradients.record_gradients import RecordGradients, raised, row_squares

if TYPE_CHECKING:
    from tacit.gradients.isolation import Isolated

_TILE = 16


@dataclass(slots=True)
class ExpertProducts:
    """Gradients [experts, in, out]: for each expert, the sum of x_t g_t^T over those positions of a record that it got.

    ``x`` and ``g`` are tiles [tiles, positions, features], ``counts`` the tiles of each expert and ``owners`` their
    records; ``slots`` and ``experts`` [records, positions] say where each position lies and who got it.
    """

    x: Tensor
    g: Tensor
    counts: list[int]
    owners: Tensor
    slots: Tensor
    experts: Tensor

    def squared_norms(self) -> Tensor:
        """sum of (x_s . x_t) (g_s . g_t) over pairs of positions with the same expert."""
        x, g = (tiles.flatten(0, 1)[self.slots] for tiles in (self.x, self.g))
        bound = row_squares(x).mul_(row_squares(g)).sqrt_()
        alike = self.experts[:, :, None] == self.experts[:, None]
        squares = (gram(x).mul_(gram(g)) * alike).flatten(1).sum(1)
        squares = squares.masked_fill_(bound > torch.finfo(x.dtype).max, math.inf)  # products that may overflow
        return raised(squares, bound, x.shape[1], x.dtype, gram=True)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        weights = torch.split(factors[self.owners], self.counts)
        parts = zip(torch.split(self.x, self.counts), torch.split(self.g, self.counts), weights, strict=True)
        return torch.stack([_sum_of(x, g, some) for x, g, some in parts])

    def materialise(self, start: int, stop: int) -> Tensor:
        numbers = torch.arange(len(self.counts), device=self.x.device)
        of_tile = numbers.repeat_interleave(torch.tensor(self.counts, device=self.x.device))
        some = (self.owners >= start) & (self.owners < stop)
        rows = self.x.new_zeros(stop - start, len(self.counts), self.x.shape[2], self.g.shape[2])
        where = (self.owners[some] - start, of_tile[some])
        return rows.index_put_(where, self.x[some].mT @ self.g[some], accumulate=True)


def _sum_of(x: Tensor, g: Tensor, factors: Tensor) -> Tensor:
    if not len(x):
        return torch.zeros(x.shape[2], g.shape[2], dtype=torch.float64, device=x.device)
    return OuterProducts(x, g, transposed=True).weighted_sum(factors.contiguous())


def _form(
    records: int, tiles: Tensor, counts: list[int], rows_of_tiles: Tensor, slots: Tensor, experts: Tensor, g: Tensor
) -> Sequence[RecordGradients | None]:
    g = full(g)
    x = tiles.to(g.dtype)
    each = len(slots) // records
    places = [part.reshape(records, -1) for part in (slots, experts)]
    x, g = (part.view(-1, _TILE, part.shape[1]) for part in (x, g))
    return [ExpertProducts(x, g, counts, rows_of_tiles.div(each, rounding_mode="floor"), *places)]


def grouped_mm(run: "Isolated", input: Tensor, weight: Tensor, offs: Tensor | None = None, **options: Any) -> Any:
    """Positions [positions, in] sorted by expert times [experts, in, out]; ``offs`` says where each expert ends."""
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
    counts = held.sum(1).tolist()
    tiles = x.new_zeros(sum(counts) * _TILE, x.shape[2]).index_copy(0, slots.flatten(), x.flatten(0, 1))
    parts = torch.split(tiles, [_TILE * count for count in counts])
    twin = run.twin(weight)
    out = torch.cat([part @ matrix for part, matrix in zip(parts, twin.unbind(0), strict=True)])  # type: ignore[union-attr]
    numbers = torch.arange(rows, device=x.device).repeat(len(held)).repeat_interleave(held.flatten())
    if run.is_trained(weight):
        run.keep(out, (tiles,), (weight,), partial(_form, run.records, tiles, counts, numbers, slots, experts))
    return run.wrap(out[slots])
