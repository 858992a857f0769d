"""Squared norms of sums of outer products, from the products of all pairs of positions."""

import torch
from torch import Tensor

from tacit.kernels.checks import INT, LONG, POINTER, Call, Kernel, close, function, numbers

GRAM_ROUNDINGS = 36  # in a product of two positions, at most


def gram_squares(x: Tensor, g: Tensor) -> Tensor | None:
    """|sum_t g_t x_t^T|^2 of each record in float64; None if the kernel cannot.

    x is [records, positions, in] and g [records, positions, out] in float32. A product of two positions errs by at most
    GRAM_ROUNDINGS roundings of the product of their lengths.
    """
    if not (x.dim() == g.dim() == 3 and x.shape[:2] == g.shape[:2] and len(x)):
        return None
    ready = KERNEL.ready(x.shape[1] * (x.numel() + g.numel()), (x, g))
    return None if ready is None else _run(ready[0], x.contiguous(), g.contiguous(), ready[1])


def _run(call: Call, x: Tensor, g: Tensor, threads: int) -> Tensor:
    squares = torch.empty(len(x), dtype=torch.float64, device="cpu")
    call(x.data_ptr(), g.data_ptr(), *x.shape, g.shape[2], squares.data_ptr(), threads)
    return squares


def _agrees(call: Call) -> bool:
    """On tiles that are full and not, on lanes, runs and their tails."""
    for index, (records, positions, width, out) in enumerate(
        [(3, 1, 1, 1), (2, 4, 16, 9), (3, 7, 521, 31), (5, 6, 8, 40), (2, 13, 32, 50)]
    ):
        x, g = numbers(records, positions, width, seed=index), numbers(records, positions, out, seed=index + 9)
        wanted = (g.double().mT @ x.double()).flatten(1).square().sum(1)
        size = x.double().flatten(1).square().sum(1) * g.double().flatten(1).square().sum(1)
        if not close(_run(call, x, g, 1 + index // 3), wanted, size, 2e-6):
            return False
    return True


KERNEL = Kernel(
    "products of positions",
    lambda loaded: function(loaded, "tacit_gram_squares", POINTER, POINTER, LONG, LONG, LONG, LONG, POINTER, INT),
    _agrees,
    enough=1 << 16,
)
