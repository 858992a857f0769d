"""Experts: every position goes through the matrix of its own expert (``grouped_mm``, as Hugging Face calls it).

A row's positions come sorted by expert. They are put into lines, by expert and within it by row, so that an expert
takes one product of matrices; it is filled up to whole sixteens of lines, as libraries take other kernels for fewer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import _SingleLevelFunction

from tacit.kernels import uneven_outer_sum
from tacit.layers.record_gradients import OuterProducts, RecordGradients
from tacit.layers.whole_rows import applied

if TYPE_CHECKING:
    from tacit.gradients.bookkeeping import ForwardPass

_FILL = 16


@dataclass(slots=True)
class ExpertProducts:
    """Gradients [experts, in, out]: for each expert, the sum of x_t g_t^T over those positions of a record that it got.

    ``x`` and ``g`` are lines [positions, features], by expert and within it by record; ``lines`` says how many each
    expert has, and ``held`` [experts, records] how many of them are whose; the others only fill up.
    """

    x: Tensor
    g: Tensor
    lines: list[int]
    held: Tensor
    usual: int

    def squared_norms(self) -> Tensor:
        """Those of a record's experts added up; parts of one length are measured together."""
        held = self.held.flatten()
        squares = torch.zeros(len(held), dtype=torch.float64, device=held.device)
        first = self._first().flatten()
        for length in torch.unique(held[held > 0]).tolist():
            some = (held == length).nonzero()[:, 0]
            lines = first[some][:, None] + torch.arange(length, device=held.device)
            squares[some] = OuterProducts(self.x[lines], self.g[lines]).squared_norms()
        return squares.view_as(self.held).sum(0)

    def _first(self) -> Tensor:
        """The first line of each expert and record."""
        lines = torch.tensor(self.lines, device=self.held.device)
        return (lines.cumsum(0) - lines)[:, None] + self.held.cumsum(1) - self.held

    def weighted_sum(self, factors: Tensor, several: int = 1) -> Tensor:
        return torch.stack([self._sum(*one, factors) for one in self._experts()]).mT

    def _experts(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        return zip(torch.split(self.x, self.lines), torch.split(self.g, self.lines), self.held, strict=True)

    def _sum(self, x: Tensor, g: Tensor, held: Tensor, factors: Tensor) -> Tensor:
        """[out, in] of one expert: within a record in float32, over records in float64."""
        total = uneven_outer_sum(x, g, held.cumsum(0), self.usual, factors)
        if total is None:
            total = torch.zeros(g.shape[1], x.shape[1], dtype=torch.float64, device=x.device)
            parts = (torch.split(part[: int(held.sum())], held.tolist()) for part in (x, g))
            for one, other, factor in zip(*parts, factors.tolist(), strict=True):
                if factor > 0:  # 0 * inf is NaN
                    total.add_(other.mT @ one, alpha=factor)
        return total

    def materialise(self, start: int, stop: int) -> Tensor:
        rows = self.x.new_zeros(stop - start, len(self.held), self.x.shape[1], self.g.shape[1])
        first, held = self._first().tolist(), self.held.tolist()
        for record in range(start, stop):
            for expert in range(len(held)):
                part = slice(first[expert][record], first[expert][record] + held[expert][record])
                rows[record - start, expert] = self.x[part].mT @ self.g[part]
        return rows


class _Moved(_SingleLevelFunction):
    """Positions in another order; each gradient goes back to where its position was."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, there: Tensor, back: Tensor) -> Tensor:
        ctx.back = back
        return x.index_select(0, there)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        return g.index_select(0, ctx.back), None, None


class _Multiplied(_SingleLevelFunction):
    """The lines of each expert times its matrix."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrices: Tensor, lines: list[int]) -> Tensor:
        ctx.matrices, ctx.lines = matrices.detach(), lines
        return _times(x, matrices, lines)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        return _times(g, ctx.matrices.mT, ctx.lines) if ctx.needs_input_grad[0] else None, None, None


def _times(x: Tensor, matrices: Tensor, lines: list[int]) -> Tensor:
    out = x.new_empty(len(x), matrices.shape[2])
    for some, matrix, to in zip(torch.split(x, lines), matrices, torch.split(out, lines), strict=True):
        torch.mm(some, matrix, out=to)
    return out


def _form(
    records: int, x: Tensor, lines: list[int], held: Tensor, usual: int, g: Tensor
) -> Sequence[RecordGradients | None]:
    return [ExpertProducts(x.to(g.dtype), g, lines, held.view(len(held), records, -1).sum(2), usual)]


def grouped_mm(run: "ForwardPass", input: Tensor, weight: Tensor, offs: Tensor | None = None, **options: Any) -> Any:
    """Positions [positions, in] sorted by expert times [experts, in, out]; ``offs`` says where each expert ends.

    It also takes types and strides that PyTorch's own kernel refuses.
    """
    known = offs is not None and not any(value is not None for value in options.values())
    if not known or input.dim() != 2 or weight.dim() != 3 or run.is_of_rows(weight) or len(offs) != len(weight):  # type: ignore[arg-type]
        return NotImplemented
    x, ends = run.rows_first(input), run.rows_first(offs).long().contiguous()  # type: ignore[arg-type]
    rows, positions = x.shape[:2]
    held = torch.diff(ends, prepend=torch.zeros_like(ends[:, :1])).mT
    with run:  # a question to every row: one whose experts end before they begin would take the places of others
        if run.wrap((ends[:, -1] != positions) | (held < 0).any(0)):
            return NotImplemented  # what lies behind the last expert is undefined
    there, back, lines = _lay_out(ends, held, rows, positions)
    moved = applied(_Moved, x.flatten(0, 1), there, back)
    out = applied(_Multiplied, moved, run.twin(weight), lines)
    if run.is_trained(weight):
        usual = positions * run.rows // (run.records * len(held))
        run.keep(out, (moved,), (weight,), partial(_form, run.records, moved.detach(), lines, held, usual))
    return run.wrap(applied(_Moved, out, back, there).view(rows, positions, -1))


def _lay_out(ends: Tensor, held: Tensor, rows: int, positions: int) -> tuple[Tensor, Tensor, list[int]]:
    """Which position each line takes, the line of each position, and lines by expert.

    ``held``: how many positions of each row [experts, rows] go to an expert.

    Lines that only fill up take a position that is there anyway; nobody looks at what becomes of it.
    """
    lines = (held.sum(1) + _FILL - 1).div(_FILL, rounding_mode="floor") * _FILL
    first = (lines.cumsum(0) - lines)[:, None] + held.cumsum(1) - held
    place = torch.arange(positions, device=ends.device).expand(rows, -1).contiguous()
    expert = torch.searchsorted(ends, place, right=True)
    back = ((first + held).mT - ends).gather(1, expert).add_(place).flatten()
    counts = lines.tolist()
    there = torch.zeros(sum(counts), dtype=torch.int64, device=ends.device)
    there[back] = torch.arange(len(back), device=ends.device)
    return there, back, counts


GROUPED = (getattr(torch, "_grouped_mm", "torch._grouped_mm"), "transformers.grouped_mm_fallback")  # from torch 2.8 on
