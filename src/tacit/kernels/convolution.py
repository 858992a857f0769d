"""2-d convolutions: the gradients of all records and their squared norms in one call."""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

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


def convolution_rows(
    image: Tensor, g: Tensor, shape: Sequence[int], stride: Sequence[int], padding: Pads, out: Tensor | None = None
) -> tuple[Tensor, Tensor] | None:
    """The gradients of all records for a weight of this shape and their squared norms; None if the kernel cannot.

    image is [records, in, height, width], g [records, out, *places], both float32; shape [out, in, *kernel], padding
    (before, after) of either side; without groups and dilation. The gradients are [records, out * kernel height *
    kernel width * in] in this order, in ``out`` if that is given, the squares [records] in float64.
    """
    if not _suits(image, g, shape, stride, padding):
        return None
    size = torch.Size(shape).numel()
    if out is None:
        out = torch.empty(len(g) * size, dtype=torch.float32, device="cpu")
    ready = KERNEL.ready(out.numel(), (image, g, out))
    if ready is None or out.numel() != len(g) * size or not out.is_contiguous():
        return None
    rows = out.view(len(g), size)
    return _run(ready[0], image.contiguous(), g.contiguous(), shape, stride, padding, rows, ready[1])


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
    before = [pair[0] for pair in padding]
    sizes = (*image.shape[1:], *g.shape[1:], *shape[2:], *stride, *before, *_padded(image, padding))
    pointers = rows.data_ptr(), squares.data_ptr()
    short = call(image.data_ptr(), g.data_ptr(), len(g), (ctypes.c_long * len(sizes))(*sizes), *pointers, threads)
    return None if short else (rows, squares)


def _suits(image: Tensor, g: Tensor, shape: Sequence[int], stride: Sequence[int], padding: Pads) -> bool:
    if len(shape) != 4 or image.dim() != 4 or g.dim() != 4 or len(image) != len(g):
        return False
    if image.shape[1] != shape[1] or g.shape[1] != shape[0] or min(*shape, *image.shape[1:], *g.shape[1:]) < 1:
        return False
    reach = [(places - 1) * s + k for places, s, k in zip(g.shape[2:], stride, shape[2:], strict=True)]
    inside = all(least <= size for least, size in zip(reach, _padded(image, padding), strict=True))
    return inside and min(min(pair) for pair in padding) >= 0 and min(stride) > 0


def _padded(image: Tensor, padding: Pads) -> list[int]:
    return [size + before + after for size, (before, after) in zip(image.shape[2:], padding, strict=True)]


_CASES = [  # in, out, height, width, kernel, stride, padding: runs of every number of vectors, whole and with tails
    (1, 5, 6, 6, (2, 2), (1, 1), ((1, 0), (0, 2))),
    (1, 4, 9, 7, (8, 8), (2, 3), ((3, 3), (3, 3))),
    (3, 9, 5, 6, (3, 3), (1, 2), ((1, 1), (1, 1))),
    (8, 8, 3, 5, (1, 2), (2, 1), ((0, 0), (0, 0))),
    (17, 3, 3, 4, (1, 3), (3, 1), ((0, 0), (1, 1))),
    (13, 12, 3, 3, (2, 3), (1, 1), ((0, 0), (0, 0))),
]


def _agrees(call: Call) -> bool:
    """Against float64: whole numbers to the last bit, others to 1e-6 of what is added, norms to double precision."""
    for index, (width, out, height, across, kernel, stride, padding) in enumerate(_CASES):
        shape = (out, width, *kernel)
        sizes = zip((height, across), padding, kernel, stride, strict=True)
        places = [(size + sum(pads) - k) // s + 1 for size, pads, k, s in sizes]
        for draw, tolerance, threads in ((integers, 0.0, 1), (numbers, 1e-6, 1 + index // 5)):
            image, g = draw(3, width, height, across, seed=index), draw(3, out, *places, seed=index + 50)
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
