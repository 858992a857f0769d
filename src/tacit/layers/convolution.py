"""Convolutions: gradients by the compiled kernel, or by one batched product with patches copied into a small buffer.

Forming them all and keeping them is the fastest way while they are small. A layer whose weight is large beside the
places that it visits is a linear map of patches, measured and summed without forming gradients of records.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.kernels import convolution_rows, convolution_squares, convolution_sum, product_roundings
from tacit.layers.record_gradients import (
    Dense,
    OuterProducts,
    RecordGradients,
    by_pairs,
    in_float32,
    is_measured_by_positions,
    is_one_stretch,
    raised,
    row_squares,
    squares_by_block,
    sum_by_block,
    weighted_rows,
)

if TYPE_CHECKING:
    from tacit.gradients.bookkeeping import ForwardPass

_PATCHES = 1 << 20  # entries of the patch buffer: it should stay in the cache
_SHORT_RUN = 12
_COPIES = 5  # what the copies cost: measured on layers of 64 to 512 channels
MOST_PLACES = 256  # of a record that is added to the others as a whole (docs/maths.md, section 11)
_FEWEST = 32  # places beside which it costs little to add a finished tile to the others
_SMALL_PART = 6  # the work of the sum is so many times that of the norms, at least
_KEEP = 1 << 26  # entries of per-record gradients that are kept between the norms and the sum

Pads = Sequence[tuple[int, int]]


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


@dataclass(slots=True)
class FormedRows:
    """Gradients that the compiled kernel has formed, as [records, out, *kernel, in], and their squared norms."""

    shape: torch.Size
    rows: Tensor
    squares: Tensor

    def squared_norms(self) -> Tensor:
        return self.squares

    def weighted_sum(self, factors: Tensor, several: int = 1) -> Tensor:
        total = weighted_rows(self.rows, factors, several)
        return total.view(self.shape[0], *self.shape[2:], self.shape[1]).movedim(-1, 1).contiguous()

    def materialise(self, start: int, stop: int) -> Tensor:
        return self.rows[start:stop].view(-1, self.shape[0], *self.shape[2:], self.shape[1]).movedim(-1, 2)


@dataclass(slots=True)
class PatchProducts:
    """Gradients sum_l g[:, l] patch[:, l]^T over the places l of the ``image`` that the kernel visits.

    Rows are records, or ``len(image) / records`` rows in a row for each record. What is measured is what is added up,
    kept in between or formed again block by block.
    """

    image: Tensor
    g: Tensor
    records: int
    shape: torch.Size
    geometry: Geometry
    kept: Tensor | None = field(default=None)

    def squared_norms(self) -> Tensor:
        if self.records * self.shape.numel() <= _KEEP:
            return row_squares(self._all())
        return squares_by_block(self, self.records, self.shape.numel())

    def weighted_sum(self, factors: Tensor, several: int = 1) -> Tensor:
        if self.kept is not None:
            return weighted_rows(self.kept, factors, several).view(self.shape)
        return sum_by_block(self, factors, self.shape.numel())

    def materialise(self, start: int, stop: int) -> Tensor:
        if self.kept is not None:
            return self.kept[start:stop].view(-1, *self.shape)
        out = self.g.new_empty(stop - start, self.shape.numel())
        return self._fill(out, start, stop).view(-1, *self.shape)

    def _all(self) -> Tensor:
        if self.kept is None:
            self.kept = self._fill(self.g.new_empty(self.records, self.shape.numel()), 0, self.records)
        return self.kept

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


@dataclass(slots=True)
class PatchLines:
    """The same gradients as those of a linear map whose inputs are patches, one a place, copied anew for norms and sum.

    Patches are of an image whose channels come last, so that each of their rows is one run of memory.
    """

    image: Tensor
    g: Tensor
    records: int
    shape: torch.Size
    geometry: Geometry

    def squared_norms(self) -> Tensor:
        return self._products().squared_norms()

    def weighted_sum(self, factors: Tensor, several: int = 1) -> Tensor:
        total = self._products().weighted_sum(factors, several)
        return total.view(self.shape[0], *self.shape[2:], self.shape[1]).movedim(-1, 1)

    def materialise(self, start: int, stop: int) -> Tensor:
        formed = self._products().materialise(start, stop)
        return formed.view(-1, self.shape[0], *self.shape[2:], self.shape[1]).movedim(-1, 2)

    def _products(self) -> OuterProducts:
        g = self.g.flatten(2).mT.reshape(self.records, -1, self.shape[0])
        return OuterProducts(self._patches().reshape(self.records, g.shape[1], -1), g)

    def _patches(self) -> Tensor:
        """[rows, *places, *kernel, channels]."""
        dims = len(self.geometry.kernel)
        sides = [side for pair in reversed(self.geometry.padding) for side in pair]
        image = functional.pad(self.image.movedim(1, -1), (0, 0, *sides)).contiguous()
        view = self.geometry.patches(image.movedim(-1, 1), self.g.shape[2:])
        return view.permute(0, *range(dims + 2, 2 * dims + 2), *range(2, dims + 2), 1)


@dataclass(slots=True)
class PairsOfPlaces:
    """Gradients of many channels at few places: measured by pairs of places, and summed without keeping any.

    Such gradients are far larger than what they are made of: kept from the norms to the sum, they were most of what a
    step took in memory. The product of two patches is a sum of products of pixels, which patches share, so that all
    pairs take a small part of the work that the gradients take; those are ``formed`` only where somebody asks.
    """

    formed: RecordGradients
    image: Tensor
    g: Tensor
    shape: torch.Size
    stride: Sequence[int]
    padding: Pads
    squares: Tensor

    def squared_norms(self) -> Tensor:
        return self.squares

    def weighted_sum(self, factors: Tensor, several: int = 1) -> Tensor:
        single = is_one_stretch(len(factors), several) and in_float32(factors)
        given = self.image, self.g, factors, self.shape, self.stride, self.padding
        total = convolution_sum(*given, single=single)
        return self.formed.weighted_sum(factors, several) if total is None else total.movedim(-1, 1).contiguous()

    def materialise(self, start: int, stop: int) -> Tensor:
        return self.formed.materialise(start, stop)


def measured_by_pairs(
    formed: RecordGradients,
    image: Tensor,
    g: Tensor,
    shape: torch.Size,
    stride: Sequence[int],
    padding: Pads,
) -> PairsOfPlaces | None:
    """None where it does not pay, or the kernel cannot."""
    if len(shape) != 4 or not _pays(image[0, 0].numel(), g[0, 0].numel(), shape):
        return None
    squares = convolution_squares(image, g, shape, stride, padding)
    if squares is None:
        return None
    seen = math.prod(-(-kernel // step) for kernel, step in zip(shape[2:], stride, strict=True))  # patches of a pixel
    of_x, of_g, places = row_squares(image) * seen, row_squares(g), g[0, 0].numel()
    squares = by_pairs(squares, of_x, of_g, places * max(math.prod(shape[1:]), shape[0]), g.dtype)
    squares = raised(squares, (of_x * of_g).sqrt_(), places, g.dtype, of_products=product_roundings(shape))
    return PairsOfPlaces(formed, image, g, shape, stride, padding, squares)


def _pays(pixels: int, places: int, shape: torch.Size) -> bool:
    pairs = pixels**2 * shape[1] + places**2 * (shape[0] + math.prod(shape[2:]))
    return _FEWEST <= places <= MOST_PLACES and _SMALL_PART * pairs < 2 * places * shape.numel()


def gradients_of_convolution(
    records: int, x: Tensor, geometry: Callable[[], Geometry], shape: torch.Size, turned: bool, g: Tensor
) -> Sequence[RecordGradients | None]:
    x = x.to(g.dtype)
    image, output = (g, x) if turned else (x, g)
    bias = g.flatten(2).sum(2)
    bias = bias if len(bias) == records else bias.view(records, -1, bias.shape[1]).sum(1)
    how = image, output, records, shape, geometry()
    if _is_wide(*how):
        return [PatchLines(*how), Dense(bias)]
    return [_form_at_once(*how) or PatchProducts(*how), Dense(bias)]


def _is_wide(image: Tensor, g: Tensor, records: int, shape: torch.Size, geometry: Geometry) -> bool:
    """Whether a linear map of patches is measured so much faster that it pays to copy them twice."""
    places = g.shape[2:].numel() * len(g) // records
    return geometry.groups == 1 and is_measured_by_positions(_COPIES * places, shape[1:].numel(), shape[0])


def _form_at_once(
    image: Tensor, g: Tensor, records: int, shape: torch.Size, geometry: Geometry
) -> RecordGradients | None:
    """By the compiled kernel: formed, after which image and g need not be kept, or measured; None where it cannot."""
    if len(g) != records or geometry.groups > 1 or max(geometry.dilation) > 1:
        return None
    products = PatchProducts(image, g, records, shape, geometry)
    measured = measured_by_pairs(products, image, g, shape, geometry.stride, geometry.padding)
    if measured is not None or records * shape.numel() > _KEEP:
        return measured
    found = convolution_rows(image, g, shape, geometry.stride, geometry.padding)
    return None if found is None else FormedRows(shape, *found)


def _convolution(convolve: Callable[..., Tensor], turned: bool) -> Callable[..., Any]:
    """The rule of a convolution, or of a transposed one, in which input and output gradient change places."""

    def rule(
        run: "ForwardPass", input: Tensor, weight: Tensor, bias: Tensor | None = None, *rest: Any, **named: Any
    ) -> Any:
        dims = weight.dim() - 2
        if not run.joins(input, weight, bias) or input.dim() not in (dims + 1, dims + 2):
            return NotImplemented
        x = run.rows_first(input)
        x = x.flatten(0, 1) if input.dim() == dims + 2 else x
        out = convolve(x, run.twin(weight), run.twin(bias), *rest, **named)
        geometry = partial(_transposed_geometry if turned else geometry_of, weight.shape, *rest, **named)
        run.keep(
            out, (x,), (weight, bias), partial(gradients_of_convolution, run.records, x, geometry, weight.shape, turned)
        )
        return run.wrap(run.split(out) if input.dim() == dims + 2 else out)

    return rule


def geometry_of(shape: torch.Size, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Geometry:
    kernel, dims = tuple(shape[2:]), len(shape) - 2
    dilations = _tuple(dilation, dims)
    return Geometry(kernel, _tuple(stride, dims), _padding(padding, kernel, dilations), dilations, groups)


def _transposed_geometry(
    shape: torch.Size, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1
) -> Geometry:
    kernel, dims = tuple(shape[2:]), len(shape) - 2
    pads = tuple((pad, pad) for pad in _tuple(padding, dims))
    return Geometry(kernel, _tuple(stride, dims), pads, _tuple(dilation, dims), groups)


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


_PLAIN = (torch.conv1d, torch.conv2d, torch.conv3d)
_TURNED = (torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)
CONVOLUTIONS = {convolve: _convolution(convolve, turned=False) for convolve in _PLAIN}
TRANSPOSED = {convolve: _convolution(convolve, turned=True) for convolve in _TURNED}
