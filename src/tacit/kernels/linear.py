"""Linear maps on vectors, for networks so small that a step is made of the overhead of calls."""

import math

import torch
from torch import Tensor

from tacit.kernels.checks import DOUBLE, LONG, POINTER, Call, Kernel, close, function, is_plain, numbers


def linear_squares(x: Tensor, g: Tensor, out: Tensor | None = None) -> Tensor | None:
    """[records, 2] in float64: |g|^2 |x|^2, which is the weight's, and |g|^2, the bias's; None if the kernel cannot.

    x is [records, in], g [records, out] in float32. ``out`` may be two neighbouring columns of a wider table.
    """
    call = SQUARES.calls()
    if call is None or x.dim() != 2 or g.dim() != 2 or len(x) != len(g) or not is_plain(x, g):
        return None
    squares = torch.empty(len(x), 2, dtype=torch.float64, device="cpu") if out is None else out
    if squares.shape != (len(x), 2) or squares.stride(1) != 1 or not is_plain(squares, dtype=torch.float64):
        return None
    return _squares(call, x.contiguous(), g.contiguous(), squares)


def _squares(call: Call, x: Tensor, g: Tensor, squares: Tensor) -> Tensor:
    call(x.data_ptr(), g.data_ptr(), len(x), x.shape[1], g.shape[1], squares.data_ptr(), squares.stride(0))
    return squares


def clip_factors(squares: Tensor, clip_norm: float, shrink: float) -> Tensor | None:
    """1 for records of at most the clip norm, shrink * clip_norm / norm beyond, 0 where the norm is not finite.

    ``squares`` are [records, vectors] in float64: what a record's vectors add to its squared norm.
    """
    call = FACTORS.calls()
    if call is None or squares.dim() != 2 or not is_plain(squares, dtype=torch.float64):
        return None
    return _factors(call, squares.contiguous(), clip_norm, shrink)


def _factors(call: Call, squares: Tensor, clip_norm: float, shrink: float) -> Tensor:
    factors = torch.empty(len(squares), dtype=torch.float64, device="cpu")
    call(squares.data_ptr(), *squares.shape, clip_norm, shrink, factors.data_ptr())
    return factors


def _squares_agree(call: Call) -> bool:
    for index, (width, out) in enumerate([(1, 1), (16, 35), (37, 3)]):  # lanes and their tails
        x, g = numbers(6, width, seed=index), numbers(6, out, seed=index + 9)
        x[1] *= 1e30
        g[2] *= 1e-30
        x[3, -1], g[4, 0] = torch.inf, torch.nan
        of_x, of_g = (value.double().square().sum(1) for value in (x, g))
        wide = torch.full((6, 4), -1.0, dtype=torch.float64, device="cpu")
        _squares(call, x, g, wide[:, 1:3])
        wanted = torch.stack([torch.full_like(of_g, -1.0), of_g * of_x, of_g, torch.full_like(of_g, -1.0)], 1)
        if not close(wide, wanted, wanted.abs(), 1e-13):
            return False
    return True


def _factors_agree(call: Call) -> bool:
    squares = numbers(9, 3, seed=5).double().abs()
    squares[0], squares[1], squares[2, 2], squares[3, 0] = 0.0, 1e60, torch.inf, torch.nan
    norms = squares.sum(1).sqrt()
    factors = torch.where(norms <= 0.9, torch.ones_like(norms), torch.where(norms.isfinite(), 0.9 * 0.99 / norms, 0.0))
    return close(_factors(call, squares, 0.9, 0.99), factors, factors, 1e-13) and math.isfinite(factors.sum())


SQUARES = Kernel(
    "squares of linear maps",
    lambda loaded: function(loaded, "tacit_linear_row_squares", POINTER, POINTER, LONG, LONG, LONG, POINTER, LONG),
    _squares_agree,
)
FACTORS = Kernel(
    "clip factors",
    lambda loaded: function(loaded, "tacit_clip_factors", POINTER, LONG, LONG, DOUBLE, DOUBLE, POINTER),
    _factors_agree,
)
