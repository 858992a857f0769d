"""Convolutions: gradients by the compiled kernel, or by one batched product with patches copied into a small buffer.

Forming them all and keeping them is the fastest way while they are few; a wide layer is measured in blocks and summed
block by block from scaled output gradients.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.gradients.layers.convolution_kernel import form_rows
from tacit.gradients.layers.rule import LayerCall, LayerRule
from tacit.gradients.record_gradients import (
    Dense,
    RecordGradients,
    row_norms,
    square_sums,
    squares_by_block,
    with_rounding,
)
from tacit.gradients.record_layout import RecordLayout
from tacit.gradients.scratch import borrow

_PATCHES = 1 << 20  # entries of the patch buffer: it should stay in the cache
_SHORT_RUN = 12
_KEEP = 1 << 26  # entries of per-record gradients that are kept between the norms and the sum
_BLOCK = 1 << 22


@dataclass(frozen=True, slots=True)
class Geometry:
    """Stride, padding, dilation and groups of a convolution over any number of dimensions."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int

    def depth(self, image: Tensor) -> int:
        return image.shape[1] * math.prod(self.kernel)

    def copier(self, image: Tensor, places: Sequence[int]) -> Callable[[slice, Tensor], Tensor]:
        """A function that copies the patches of some rows into a buffer [rows, channels * kernel * places].

        Short or strided runs are gathered by index, long ones copied from a strided view: each wins by up to three.
        """
        if any(side for pair in self.padding for side in pair):
            image = functional.pad(image, [side for pair in reversed(self.padding) for side in pair])
        image = image.contiguous()
        if places[-1] < _SHORT_RUN or self.stride[-1] > 1:
            flat = image.flatten(1)
            index = _gather_index(self, tuple(image.shape[1:]), tuple(places)).to(image.device)
            return lambda rows, buffer: torch.index_select(flat[rows], 1, index, out=buffer)
        view = self.patches(image, places)
        return lambda rows, buffer: _copy(view[rows], buffer)

    def patches(self, image: Tensor, places: Sequence[int]) -> Tensor:
        """A view [rows, channels, *kernel, *places] of a padded, contiguous image."""
        steps = image.stride()[2:]
        inner = [step * dilation for step, dilation in zip(steps, self.dilation, strict=True)]
        outer = [step * stride for step, stride in zip(steps, self.stride, strict=True)]
        return image.as_strided((*image.shape[:2], *self.kernel, *places), (*image.stride()[:2], *inner, *outer))


def _copy(view: Tensor, buffer: Tensor) -> Tensor:
    buffer.view(view.shape).copy_(view)
    return buffer


@lru_cache(maxsize=64)
def _gather_index(geometry: Geometry, shape: tuple[int, ...], places: tuple[int, ...]) -> Tensor:
    numbers = torch.arange(math.prod(shape)).view(1, *shape)
    return geometry.patches(numbers, places).flatten()


@dataclass(slots=True, weakref_slot=True)
class PatchProducts:
    """Gradients sum_l g[:, l] patch[:, l]^T over the places l of the ``image`` that the kernel visits.

    Rows are records, or ``len(image) / records`` rows in a row for each record.
    """

    image: Tensor
    g: Tensor
    records: int
    shape: torch.Size
    geometry: Geometry
    kept: Tensor | None = field(default=None)

    def squared_norms(self) -> Tensor:
        if self.records * self.shape.numel() <= _KEEP:
            return square_sums(self._all())
        squares = squares_by_block(self, self.records, self.shape.numel())
        visits = math.sqrt(math.prod(self.geometry.kernel))  # how often the kernel can meet an entry of the image
        rows = [part.reshape(self.records, -1) for part in (self.image, self.g)]
        return with_rounding(squares, row_norms(rows[0]) * row_norms(rows[1]) * visits, self.g.dtype)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        if self.kept is not None:
            return Dense(self.kept).weighted_sum(factors).view(self.shape)
        rows = factors.to(self.g.dtype).repeat_interleave(len(self.g) // self.records)
        scaled = replace(self, g=self.g * rows.view(-1, *[1] * (self.g.dim() - 1)))
        return scaled._total()

    def materialise(self, start: int, stop: int) -> Tensor:
        if self.kept is not None:
            return self.kept[start:stop].view(-1, *self.shape)
        out = self.g.new_empty(stop - start, self.shape.numel())
        return self._fill(out, start, stop).view(-1, *self.shape)

    def select(self, records: Tensor) -> "PatchProducts":
        rows = records.repeat_interleave(len(self.g) // self.records)
        kept = None if self.kept is None else self.kept[records]
        return replace(self, image=self.image[rows], g=self.g[rows], records=int(records.sum()), kept=kept)

    def _all(self) -> Tensor:
        if self.kept is None:
            size = self.shape.numel()
            out = borrow(self, self.records * size, self.g.dtype, self.g.device)
            self.kept = self._fill(out.view(self.records, size), 0, self.records)
        return self.kept

    def _total(self) -> Tensor:
        """The sum over all rows, block by block."""
        total = self.g.new_zeros(self.shape.numel())
        for start in range(0, self.records, block := max(1, _BLOCK // self.shape.numel())):
            total += self.materialise(start, min(start + block, self.records)).flatten(1).sum(0)
        return total.view(self.shape)

    def _fill(self, out: Tensor, start: int, stop: int) -> Tensor:
        """Gradients of records start..stop into the rows of ``out``."""
        per_record, groups = len(self.g) // self.records, self.geometry.groups
        count, depth = self.g.shape[2:].numel(), self.geometry.depth(self.image)
        g = self.g[start * per_record : stop * per_record]
        copy_patches = self.geometry.copier(self.image[start * per_record : stop * per_record], self.g.shape[2:])
        step = max(1, _PATCHES // (per_record * depth * count))
        buffer = self.g.new_empty(min(step, stop - start) * per_record, depth * count)
        for first in range(0, stop - start, step):
            last = min(first + step, stop - start)
            rows = slice(first * per_record, last * per_record)
            columns = copy_patches(rows, buffer[: rows.stop - rows.start])
            left = _line_up(g[rows], last - first, groups, count)
            right = _line_up(columns, last - first, groups, count)
            target = out[first:last].view(len(left), left.shape[1], right.shape[1])
            torch.bmm(left, right.mT, out=target)
        return out


def _line_up(rows: Tensor, records: int, groups: int, count: int) -> Tensor:
    """[records * groups, channels, places]; several rows of one record line up as one long row of places."""
    if len(rows) == records:
        return rows.reshape(records * groups, -1, count)
    split = rows.reshape(records, len(rows) // records, groups, -1, count)
    return split.permute(0, 2, 3, 1, 4).flatten(3).flatten(0, 1)


def _form(
    geometry: Geometry,
    shape: torch.Size,
    turned: bool,
    inputs: Sequence[Tensor],
    g: Tensor,
    layout: RecordLayout,
    records: int,
) -> list[RecordGradients | None]:
    if layout.order == "minor":
        g, x = (layout.records_first(t, records).flatten(0, 1) for t in (g, inputs[0]))
    else:
        x = inputs[0]
    g = g if g.dtype in (torch.float32, torch.float64) else g.float()
    x = x.to(g.dtype)
    image, output = (g, x) if turned else (x, g)
    bias = g.flatten(2).sum(2)
    bias = bias.view(records, -1, bias.shape[1]).sum(1) if len(bias) > records else bias
    weight = _form_at_once(image, output, records, shape, geometry)
    return [weight or PatchProducts(image, output, records, shape, geometry), Dense(bias)]


def _form_at_once(
    image: Tensor, g: Tensor, records: int, shape: torch.Size, geometry: Geometry
) -> RecordGradients | None:
    """By the compiled kernel, after which image and g need not be kept; None where it cannot or they are too many."""
    if len(g) != records or geometry.groups > 1 or max(geometry.dilation) > 1 or records * shape.numel() > _KEEP:
        return None
    return form_rows(image, g, shape, geometry.stride, geometry.padding)


def bind_convolution(
    output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> LayerCall | None:
    dims = weight.dim() - 2
    if input.dim() != dims + 2:  # an image without a dimension of rows
        return None
    kernel = tuple(weight.shape[2:])
    dilations = _tuple(dilation, dims)
    geometry = Geometry(kernel, _tuple(stride, dims), _padding(padding, kernel, dilations), dilations, groups)
    return LayerCall((weight, bias), (input,), partial(_form, geometry, weight.shape, False), 1)


def bind_transposed(
    output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> LayerCall | None:
    """The transpose of a convolution: input and output gradient change places."""
    dims = weight.dim() - 2
    if input.dim() != dims + 2:
        return None
    kernel = tuple(weight.shape[2:])
    pads = tuple((pad, pad) for pad in _tuple(padding, dims))
    geometry = Geometry(kernel, _tuple(stride, dims), pads, _tuple(dilation, dims), groups)
    return LayerCall((weight, bias), (input,), partial(_form, geometry, weight.shape, True), 1)


def _tuple(value: Any, dims: int) -> tuple[int, ...]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * dims if len(values) == 1 else values


def _padding(padding: Any, kernel: tuple[int, ...], dilation: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    if padding == "valid":
        return ((0, 0),) * len(kernel)
    if padding == "same":  # an odd total puts the extra one behind, as PyTorch does
        totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    return tuple((pad, pad) for pad in _tuple(padding, len(kernel)))


CONVOLUTION = LayerRule("convolution", (torch.conv1d, torch.conv2d, torch.conv3d), bind_convolution)
TRANSPOSED = LayerRule(
    "transposed_convolution",
    (torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d),
    bind_transposed,
)
