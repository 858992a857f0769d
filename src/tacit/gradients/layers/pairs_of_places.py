"""Convolutions of many channels at few places: measured by pairs of places, and summed without keeping gradients.

Gradients of such layers are far larger than what they are made of: kept from the norms to the sum, they were most of
what a step took in memory. The product of two patches is a sum of products of pixels, which patches share, so that all
pairs take a small part of the work that the gradients take, and those are formed once, for the sum.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.gradients.record_gradients import RecordGradients, by_pairs, in_float32, is_one_stretch, raised, row_squares
from tacit.kernels import convolution_squares, convolution_sum, product_roundings

MOST_PLACES = 256  # of a record that is added to the others as a whole (docs/maths.md, section 11)
_FEWEST = 32  # places beside which it costs little to add a finished tile to the others
_SMALL_PART = 6  # the work of the sum is so many times that of the norms, at least

Pads = Sequence[tuple[int, int]]


@dataclass(slots=True)
class PairsOfPlaces:
    """Gradients of a 2-d convolution, ``formed`` only where somebody asks for them."""

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
    formed: RecordGradients, image: Tensor, g: Tensor, shape: torch.Size, stride: Sequence[int], padding: Pads
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
