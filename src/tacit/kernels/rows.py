"""Rows of per-record gradients: their weighted sum and their sums of squares, added up in float64."""

import torch
from torch import Tensor

from tacit.buffers import empty
from tacit.kernels.checks import INT, LONG, POINTER, Call, Kernel, close, function, numbers

_ENOUGH = 1 << 16  # entries for which a second thread pays


def weighted_rows(
    rows: Tensor, factors: Tensor, *, single: bool = False, ready: tuple[Call, int] | None = None
) -> Tensor | None:
    """sum_r factor_r * rows[r] as [size] in float64, or ``single`` rounded to float32; None if the kernel cannot.

    Rows are [records, size] in float32, factors [records] in float64. A row of factor 0 is not looked at. ``ready`` is
    the function and its threads while it is compared.
    """
    if rows.dim() != 2 or factors.shape != rows.shape[:1]:
        return None
    ready = ready or WEIGHTED.ready(rows.numel(), (rows,), doubles=(factors,))
    if ready is None:
        return None
    call, threads = ready
    rows, factors = rows.contiguous(), factors.contiguous()
    total = empty(rows.shape[1:], torch.float32 if single else torch.float64, rows.device)
    call(rows.data_ptr(), factors.data_ptr(), *rows.shape, single, total.data_ptr(), threads)
    return total


def row_squares(rows: Tensor, ready: tuple[Call, int] | None = None) -> Tensor | None:
    """The sum of squares of each row of float32 [records, ...], in float64; None if the kernel cannot.

    1e-30 squared does not vanish and 1e30 squared is not infinite; infinity and NaN stay what they are.
    """
    ready = ready or (SQUARES.ready(rows.numel(), (rows,)) if rows.dim() else None)
    if ready is None:
        return None
    call, threads = ready
    rows, size = rows.contiguous(), rows.shape[1:].numel()
    squares = torch.empty(len(rows), dtype=torch.float64, device="cpu")
    return None if call(rows.data_ptr(), len(rows), size, squares.data_ptr(), threads) else squares


def _weighted_agrees(call: Call) -> bool:
    for index, shape in enumerate([(1, 1), (7, 5), (6, 2048 + 37)]):  # rows in fours, columns by 2048
        rows, factors = numbers(*shape, seed=index), numbers(shape[0], seed=index + 9).double() + 1 / 3
        factors[2:3] = 0.0
        terms = factors[:, None] * rows.double()
        rows[2:3, -1] = torch.inf  # must not be looked at
        for single, tolerance in ((False, 1e-14), (True, 2.0**-24)):
            found = weighted_rows(rows, factors, single=single, ready=(call, 1 + index // 2))
            if found is None or not close(found, terms.sum(0), terms.abs().sum(0), tolerance):
                return False
    return True


def _squares_agree(call: Call) -> bool:
    for index, shape in enumerate([(3, 0), (3, 1), (2, 33), (5, 16, 3), (2, (1 << 13) + 21)]):  # lanes, pieces, tails
        rows = numbers(*shape, seed=index)
        rows[0] *= 1e-30
        rows[1] *= 1e30
        if shape[0] > 3:
            rows[3, -1], rows[4, 0, 0] = torch.inf, torch.nan
        wanted = rows.double().flatten(1).square().sum(1)
        found = row_squares(rows, (call, 1 + index // 4))
        if found is None or not close(found, wanted, wanted, 1e-13):
            return False
    return True


WEIGHTED = Kernel(
    "weighted sums of rows",
    lambda loaded: function(loaded, "tacit_weighted_rows", POINTER, POINTER, LONG, LONG, INT, POINTER, INT),
    _weighted_agrees,
    _ENOUGH,
)
SQUARES = Kernel(
    "squares of rows",
    lambda loaded: function(loaded, "tacit_row_squares", POINTER, LONG, LONG, POINTER, INT, result=INT),
    _squares_agree,
    _ENOUGH,
)
