"""2-d convolutions: the gradients of all records and their squared norms in one call.

Or the norms alone and then the clipped sum, for which no record's gradient is kept.
"""

import ctypes
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.buffers import empty
from tacit.kernels.checks import (
    INT,
    LONG,
    POINTER,
    Call,
    Kernel,
    close,
    function,
    integers,
    numbers,
)

Pads = Sequence[tuple[int, int]]
_RUN = 64  # as in convolution_squares.c


def convolution_rows(
    image: Tensor, g: Tensor, shape: Sequence[int], stride: Sequence[int], padding: Pads, out: Tensor | None = None
) -> tuple[Tensor, Tensor] | None:
    """The gradients of all records for a weight of this shape and their squared norms; None if the kernel cannot.

    image is [records, in, height, width], g [records, out, *places], both float32; shape [out, in, *kernel], padding
    (before, after) of either side; without groups and dilation. The gradients are [records, out * kernel height *
    kernel width * in] in this order, in ``out`` if that is given, the squares [records] in float64.
    """
    if _sizes(image, g, shape, stride, padding) is None:
        return None
    size = torch.Size(shape).numel()
    if out is None:
        out = torch.empty(len(g) * size, dtype=torch.float32, device="cpu")
    ready = KERNEL.ready(out.numel(), (image, g, out))
    if ready is None or out.numel() != len(g) * size or not out.is_contiguous():
        return None
    rows = out.view(len(g), size)
    return _run(ready[0], image.contiguous(), g.contiguous(), shape, stride, padding, rows, ready[1])


def convolution_squares(
    image: Tensor, g: Tensor, shape: Sequence[int], stride: Sequence[int], padding: Pads
) -> Tensor | None:
    """The squared norms of the same gradients in float64, which are not formed; None if the kernel cannot.

    They come from the products of all pairs of places, each of them :func:`product_roundings` off at most.
    """
    if _sizes(image, g, shape, stride, padding) is None:
        return None
    ready = SUMS.ready(image.numel() * g.shape[-1], (image, g))
    if ready is None:
        return None
    return _squares(ready[0][0], image.contiguous(), g.contiguous(), shape, stride, padding, ready[1])


def convolution_sum(
    image: Tensor,
    g: Tensor,
    factors: Tensor,
    shape: Sequence[int],
    stride: Sequence[int],
    padding: Pads,
    *,
    single: bool,
) -> Tensor | None:
    """sum_r factor_r * gradient of record r, [out, kernel height, kernel width, in]; None if the kernel cannot.

    A record's gradient is formed in float32 and added in float64 or, ``single``, in float32. A record of factor 0 is
    not looked at.
    """
    if _sizes(image, g, shape, stride, padding) is None or factors.shape != g.shape[:1]:
        return None
    ready = SUMS.ready(image.numel() * g.shape[-1], (image, g), doubles=(factors,))
    if ready is None:
        return None
    given = image.contiguous(), g.contiguous(), factors.contiguous()
    return _sum(ready[0][1], *given, shape, stride, padding, single, ready[1])


def product_roundings(shape: Sequence[int]) -> int:
    """Of a product of two patches, or of two places of g: channels in runs, the runs, and the pixels of a patch."""
    return _RUN + max(shape[0], shape[1]) // _RUN + 1 + shape[2] * shape[3]


def _squares(
    call: Call, image: Tensor, g: Tensor, shape: Sequence[int], stride: Sequence[int], padding: Pads, threads: int
) -> Tensor | None:
    squares, sizes = torch.empty(len(g), dtype=torch.float64, device="cpu"), _sizes(image, g, shape, stride, padding)
    short = call(image.data_ptr(), g.data_ptr(), len(g), sizes, squares.data_ptr(), threads)
    return None if short else squares


def _sum(
    call: Call, image: Tensor, g: Tensor, factors: Tensor, shape: Sequence[int], stride: Sequence[int], padding: Pads,
    single: bool, threads: int,
) -> Tensor | None:  # fmt: skip
    wanted = (shape[0], *shape[2:], shape[1])
    total = empty(wanted, torch.float32 if single else torch.float64, image.device)
    pointers, sizes = (image.data_ptr(), g.data_ptr(), factors.data_ptr()), _sizes(image, g, shape, stride, padding)
    short = call(*pointers, len(g), sizes, single, total.data_ptr(), threads)
    return None if short else total


def _run(
    call: Call,
    image: Tensor,
    g: Tensor,
    shape: Sequence[int],
    stride: Sequence[int],
    padding: Pads,
    rows: Tensor,
    threads: int,
) -> tuple[Tensor, Tensor] | None:
    squares = torch.empty(len(g), dtype=torch.float64, device="cpu")
    pointers, sizes = (rows.data_ptr(), squares.data_ptr()), _sizes(image, g, shape, stride, padding)
    short = call(image.data_ptr(), g.data_ptr(), len(g), sizes, *pointers, threads)
    return None if short else (rows, squares)


def _sizes(image: Tensor, g: Tensor, shape: Sequence[int], stride: Sequence[int], padding: Pads) -> Any:
    """All sizes as the kernels are told them; None where they cannot."""
    if image.dim() != 4 or g.dim() != 4 or len(image) != len(g):
        return None
    return _sizes_of(image.shape[1:], g.shape[1:], tuple(shape), tuple(stride), tuple(padding))


@lru_cache(maxsize=256)
def _sizes_of(
    image: tuple[int, ...], g: tuple[int, ...], shape: tuple[int, ...], stride: tuple[int, ...], padding: Pads
) -> Any:
    """Of one record, and so the same for a layer at every step."""
    if len(shape) != 4 or image[0] != shape[1] or g[0] != shape[0] or min(*shape, *image, *g) < 1:
        return None
    padded = [size + before + after for size, (before, after) in zip(image[1:], padding, strict=True)]
    reach = [(places - 1) * s + k for places, s, k in zip(g[1:], stride, shape[2:], strict=True)]
    inside = all(least <= size for least, size in zip(reach, padded, strict=True))
    if not inside or min(min(pair) for pair in padding) < 0 or min(stride) < 1:
        return None
    sizes = (*image, *g, *shape[2:], *stride, *(before for before, _ in padding), *padded)
    return (ctypes.c_long * len(sizes))(*sizes)


_CASES = [  # in, out, height, width, kernel, stride, padding: runs of every number of vectors, whole and with tails
    (1, 5, 6, 6, (2, 2), (1, 1), ((1, 0), (0, 2))),
    (1, 4, 9, 7, (8, 8), (2, 3), ((3, 3), (3, 3))),
    (3, 9, 5, 6, (3, 3), (1, 2), ((1, 1), (1, 1))),
    (8, 8, 3, 5, (1, 2), (2, 1), ((0, 0), (0, 0))),
    (17, 3, 3, 4, (1, 3), (3, 1), ((0, 0), (1, 1))),
    (13, 12, 3, 3, (2, 3), (1, 1), ((0, 0), (0, 0))),
    (67, 2, 3, 4, (2, 2), (1, 1), ((1, 0), (0, 1))),
    (5, 3, 4, 6, (2, 2), (1, 1), ((0, 1), (1, 0))),  # runs of less than a vector, one to three rows of the kernel
    (1, 9, 5, 5, (3, 1), (1, 1), ((1, 1), (0, 0))),
    (2, 3, 3, 5, (1, 2), (2, 2), ((0, 0), (0, 1))),
    (2, 2, 4, 4, (1, 3), (1, 1), ((0, 0), (1, 1))),
    (1, 2, 6, 5, (5, 3), (1, 1), ((0, 0), (1, 0))),
    (1, 3, 2, 4, (1, 2), (1, 1), ((0, 0), (0, 0))),
]


def _cases() -> Iterator[tuple[Any, ...]]:
    """Image, g, shape, stride and padding; how far off the gradients may be, and a number of threads."""
    for index, (width, out, height, across, kernel, stride, padding) in enumerate(_CASES):
        sizes = zip((height, across), padding, kernel, stride, strict=True)
        places = [(size + sum(pads) - k) // s + 1 for size, pads, k, s in sizes]
        for draw, tolerance, threads in ((integers, 0.0, 1), (numbers, 1e-6, 1 + index // 5 % 2)):
            image, g = draw(3, width, height, across, seed=index), draw(3, out, *places, seed=index + 50)
            yield image, g, (out, width, *kernel), stride, padding, tolerance, threads


def _sums_agree(calls: tuple[Call, Call]) -> bool:
    """Norms and sums, with one record that does not count."""
    factors = torch.tensor([0.5, 0.0, 1.75], dtype=torch.float64, device="cpu")
    for image, g, shape, stride, padding, tolerance, threads in _cases():
        wanted, size = _reference(image, g, shape, stride, padding)
        squares, bound = wanted.square().sum(1), size.square().sum(1)
        found = _squares(calls[0], image, g, shape, stride, padding, threads)
        if found is None or not close(found, squares, bound, tolerance):
            return False
        image[1, 0, 0, 0] = g[1, 0, 0, 0] = torch.nan
        total = (wanted * factors[:, None]).sum(0).view(shape[0], *shape[2:], shape[1])
        largest = (size * factors[:, None]).sum(0).view(total.shape)
        for single, roundings in ((False, 1e-15), (True, 2.0**-22)):
            one = _sum(calls[1], image, g, factors, shape, stride, padding, single, threads)
            if one is None or not close(one, total, largest, tolerance + roundings):
                return False
    return _chunks_agree(calls[1])


def _chunks_agree(call: Call) -> bool:
    """So much padding that records come in several chunks: whole numbers are what each record adds by itself."""
    image, g = integers(3, 1, 3, 3), integers(3, 3, 5, 5, seed=1)
    factors, how = torch.ones(3, dtype=torch.float64, device="cpu"), ((3, 1, 2, 2), (75, 75), ((150, 150), (150, 150)))
    total = _sum(call, image, g, factors, *how, False, 1)
    for r in range(3):
        one = _sum(call, image[[r]], g[[r]], factors[[r]], *how, False, 1)
        total = None if one is None or total is None else total - one
    return total is not None and not total.any()


def _agrees(call: Call) -> bool:
    """Against float64: whole numbers to the last bit, others to 1e-6 of what is added, norms to double precision."""
    for image, g, shape, stride, padding, tolerance, threads in _cases():
        if tolerance:
            image[1, 0, 0, 0] = torch.nan  # must stay with its record
        wanted, size = _reference(image, g, shape, stride, padding)
        rows = torch.empty(wanted.shape, dtype=torch.float32, device="cpu")
        found = _run(call, image, g, shape, stride, padding, rows, threads)
        if found is None or not close(rows, wanted, size, tolerance):
            return False
        squares = rows.double().square_().sum(1)
        if not close(found[1], squares, squares, 1e-13):
            return False
    return True


def _reference(
    image: Tensor, g: Tensor, shape: Sequence[int], stride: Sequence[int], padding: Pads
) -> tuple[Tensor, Tensor]:
    """The gradients in the kernel's order and the sizes of what is added for them, in float64, by patches."""
    padded = functional.pad(image.double(), [*padding[1], *padding[0]])
    patches = padded.unfold(2, shape[2], stride[0]).unfold(3, shape[3], stride[1])  # [records, in, *places, *kernel]
    patches = patches.permute(0, 4, 5, 1, 2, 3).flatten(1, 3).flatten(2)
    terms = g.double().flatten(2)[:, :, None] * patches[:, None]
    return terms.sum(3).flatten(1), terms.abs_().sum(3).flatten(1)


KERNEL = Kernel(
    "convolutions",
    lambda loaded: function(loaded, "tacit_convolution", POINTER, POINTER, LONG, *[POINTER] * 3, INT, result=INT),
    _agrees,
    enough=1 << 16,
)
SUMS = Kernel(
    "sums of convolutions",
    lambda loaded: (
        function(loaded, "tacit_convolution_squares", POINTER, POINTER, LONG, POINTER, POINTER, INT, result=INT),
        function(loaded, "tacit_convolution_sum", *[POINTER] * 3, LONG, POINTER, INT, POINTER, INT, result=INT),
    ),
    _sums_agree,
    enough=1 << 16,
)
