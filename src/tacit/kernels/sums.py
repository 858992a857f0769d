"""What the clipped sum needs of per-record gradients: weighted sums and squared norms, added up in float64.

Of a linear map's gradients, which are sums of outer products and need not be formed, and of rows that were formed.
"""

import torch
from torch import Tensor

from tacit.buffers import empty
from tacit.kernels.checks import INT, LONG, POINTER, Call, Kernel, close, function, integers, numbers

MOST_POSITIONS = 256  # of a record that is added to the others as a whole
GRAM_ROUNDINGS = 36  # in a product of two positions, at most
_ENTRIES = 1 << 16  # of rows, for which a second thread pays

# ---- sums of products ----


def outer_sum(x: Tensor, g: Tensor, factors: Tensor, several: int = 1, *, single: bool = False) -> Tensor | None:
    """sum_r factor_r * (sum_t g[r, t]^T x[r, t]) as [out, in]; None if the kernel cannot.

    x is [records, positions, in], g [records, positions, out], both float32, factors [records] in float64. A record's
    own positions may be added in float32, in runs of at most 256, and so may ``several`` records of one position, if
    factor * g stays in float32's range; all else is float64. A record of factor 0 is not looked at; one whose gradient
    is not finite, or overflows float32, must have the factor 0.

    With ``single`` the sum is left in float32: of one position it is rounded at its end; of several, or where all
    records are one stretch, they are added up in it, and factors other than 0 must be in its range. But not where a
    record has more positions than a run: its parts may be far longer than all of it, and would round the others.
    """
    if not (x.dim() == g.dim() == 3 and x.shape[:2] == g.shape[:2] and factors.shape == x.shape[:1]):
        return None
    ready = PRODUCTS.ready(x.numel() * g.shape[2], (x, g), doubles=(factors,))
    if ready is None:
        return None
    call, threads = ready
    single = single and x.shape[1] <= MOST_POSITIONS
    return _outer(call, x.contiguous(), g.contiguous(), factors.contiguous(), threads, several, single)


def uneven_outer_sum(x: Tensor, g: Tensor, ends: Tensor, usual: int, factors: Tensor) -> Tensor | None:
    """The same of records that differ in positions: x is [positions, in], and ``ends`` says where each record ends.

    Up to ``usual`` = 8 all is added in float64: whoever gives it must not look at the records for it.
    """
    ready = PRODUCTS.ready(x.numel() * g.shape[1], (x, g), doubles=(factors,), integers=(ends,))
    if ready is None or not len(ends):
        return None
    call, threads = ready
    lined_up = x.contiguous(), g.contiguous(), factors.contiguous()
    return _outer(call, *lined_up, threads, ends=ends.contiguous(), usual=usual)


def _outer(
    call: Call, x: Tensor, g: Tensor, factors: Tensor, threads: int, several: int = 1, single: bool = False,
    ends: Tensor | None = None, usual: int = 0,
) -> Tensor | None:  # fmt: skip
    width, out = x.shape[-1], g.shape[-1]
    total = empty((out, width), torch.float32 if single else torch.float64, x.device)
    where, positions = (None, x.shape[1]) if ends is None else (ends.data_ptr(), usual)
    pointers = x.data_ptr(), g.data_ptr(), factors.data_ptr(), where
    short = call(*pointers, len(factors), positions, width, out, several, single, total.data_ptr(), threads)
    return None if short else total


_SHAPES = [  # records, positions, in, out, threads: all ways of adding, tails of lanes, tiles, runs, pieces and rooms
    (3, 1, 1, 1, 1),
    (260, 1, 9, 13, 1),
    (4200, 1, 2, 3, 1),
    (5, 4, 9, 3, 1),
    (33, 8, 9, 11, 1),
    (5, 9, 19, 31, 1),
    (3, 90, 17, 6, 1),
    (9, 523, 4, 2, 1),
    (40, 13, 5, 7, 1),
    (2, 1, 2050, 5, 1),
    (1, 9, 1, 2050, 1),
    (1, 9, 3, 40, 1),
    (3, 1, 260, 38, 2),
    (1, 9, 1030, 6, 2),
    (3, 40, 150, 3, 1),
]


def _products_agree(call: Call) -> bool:
    """Against float64. Whole numbers are exact within a record: what is left is the rounding across records."""
    for index, (records, positions, width, out, threads) in enumerate(_SHAPES):
        draw = numbers if positions == 1 else integers
        x, g = draw(records, positions, width, seed=index), draw(records, positions, out, seed=index + 50)
        factors = numbers(records, seed=index + 90).double().abs_() + 0.1 / 3
        if positions == 1:
            x[-1] *= 1e30  # overflows a float32 product
            g[-1] *= 1e30
        factors[1:2] = 0.0
        wanted, size = _reference(x, g, factors)
        x[1:2, -1, -1] = torch.inf  # must not be looked at
        found = _outer(call, x, g, factors, threads)
        if found is None or not close(found, wanted, size, 1e-13):
            return False
        if positions == 1 or positions > MOST_POSITIONS:  # single precision does not hold what is added here
            continue
        single = _outer(call, x, g, factors, threads, single=True)
        if single is None or not close(single, wanted, size, (records + 2) * 2.0**-24):
            return False
    checks = _leaves_out, _rounds_within_records, _rounds_within_stretches, _agrees_on_uneven_records
    return all(check(call) for check in checks)


def _leaves_out(call: Call) -> bool:
    """Records of factor 0: nothing is left."""
    nothing = _outer(call, numbers(2, 3, 4), numbers(2, 3, 5), torch.zeros(2, dtype=torch.float64, device="cpu"), 1)
    return nothing is not None and not nothing.any()


def _rounds_within_records(call: Call) -> bool:
    """Numbers of all digits: single precision is right to 1e-6 of what is added."""
    x, g, factors = numbers(3, 40, 20, seed=1), numbers(3, 40, 7, seed=2), torch.tensor([0.5, 2.0, 1 / 3]).double()
    found = _outer(call, x, g, factors, 1)
    return found is not None and close(found, *_reference(x, g, factors), 1e-6)


def _rounds_within_stretches(call: Call) -> bool:
    """Several records of one position: exact where whole numbers fit, right to a few roundings where they do not.

    And no more than were allowed: after 2^24 a one would be lost, but it is not in the same stretch.
    """
    large = torch.ones(12, 1, 1, device="cpu")
    large[0], large[1:4] = 2.0**24, 0.0
    ones = torch.ones(12, dtype=torch.float64, device="cpu")
    apart = _outer(call, large, torch.ones_like(large), ones, 1, several=4)
    if apart is None or apart.item() != 2.0**24 + 8:
        return False
    for draw, tolerance in ((integers, 0.0), (numbers, 7 * 2.0**-24)):
        x, g = draw(300, 1, 50, seed=3), draw(300, 1, 15, seed=4)  # a full tile, and one of few outputs
        factors = torch.ones(300, dtype=torch.float64, device="cpu")
        factors[7] = 0.0
        x[7, 0, 3] = torch.inf
        wanted, size = _reference(x[factors > 0], g[factors > 0], factors[factors > 0])
        for several, single, roundings in ((7, False, 1), (7, True, 2), (300, True, 40)):
            found = _outer(call, x, g, factors, 2, several, single)
            if found is None or not close(found, wanted, size, roundings * tolerance):
                return False
    return True


def _agrees_on_uneven_records(call: Call) -> bool:
    """Records of other numbers of positions, one of none and one longer than a run, by both ways of adding."""
    lengths = torch.tensor([3, 0, 270, 1, 9], device="cpu")
    x, g, factors = integers(283, 5, seed=6), integers(283, 7, seed=7), numbers(5, seed=8).double().abs_() + 0.1 / 3
    factors[3] = 0.0
    wanted, size = _reference(x[:, None], g[:, None], factors.repeat_interleave(lengths))
    found = [_outer(call, x, g, factors, 1, ends=lengths.cumsum(0), usual=usual) for usual in (1, 40)]
    return all(one is not None and close(one, wanted, size, 1e-13) for one in found)


def _reference(x: Tensor, g: Tensor, factors: Tensor) -> tuple[Tensor, Tensor]:
    """The sum and the sum of sizes in float64, entry by entry: the threads of a product would take longer to start."""
    left, right = (g.double() * factors[:, None, None]).flatten(0, 1), x.double().flatten(0, 1)
    terms = left[:, :, None] * right[:, None, :]
    return terms.sum(0), terms.abs_().sum(0)


PRODUCTS = Kernel(
    "sums of products",
    lambda loaded: function(loaded, "tacit_outer_sum", *[POINTER] * 4, *[LONG] * 5, INT, POINTER, INT, result=INT),
    _products_agree,
    enough=1 << 21,
)


# ---- products of positions ----


def gram_squares(x: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """|sum_t g_t x_t^T|^2, |x|^2 and |g|^2 of each record in float64; None if the kernel cannot.

    x is [records, positions, in] and g [records, positions, out] in float32. A product of two positions errs by at most
    GRAM_ROUNDINGS roundings of the product of their lengths; all three are sums of such products.
    """
    if not (x.dim() == g.dim() == 3 and x.shape[:2] == g.shape[:2] and len(x)):
        return None
    ready = GRAM.ready(x.shape[1] * (x.numel() + g.numel()), (x, g))
    return None if ready is None else _gram(ready[0], x.contiguous(), g.contiguous(), ready[1])


def _gram(call: Call, x: Tensor, g: Tensor, threads: int) -> tuple[Tensor, Tensor, Tensor]:
    squares = torch.empty(3, len(x), dtype=torch.float64, device="cpu")
    call(x.data_ptr(), g.data_ptr(), *x.shape, g.shape[2], squares.data_ptr(), threads)
    of_product, of_x, of_g = squares
    return of_product, of_x, of_g


def _gram_agrees(call: Call) -> bool:
    """On tiles that are full and not, on lanes, runs and their tails."""
    for index, (records, positions, width, out) in enumerate(
        [(3, 1, 1, 1), (2, 4, 16, 9), (3, 7, 521, 31), (5, 6, 8, 40), (2, 13, 32, 50)]
    ):
        x, g = numbers(records, positions, width, seed=index), numbers(records, positions, out, seed=index + 9)
        of_x, of_g = (part.double().flatten(1).square().sum(1) for part in (x, g))
        wanted = (g.double().mT @ x.double()).flatten(1).square().sum(1), of_x, of_g
        found = _gram(call, x, g, 1 + index // 3)
        if not all(close(*each, 2e-6) for each in zip(found, wanted, (of_x * of_g, of_x, of_g), strict=True)):
            return False
    return True


GRAM = Kernel(
    "products of positions",
    lambda loaded: function(loaded, "tacit_gram_squares", POINTER, POINTER, LONG, LONG, LONG, LONG, POINTER, INT),
    _gram_agrees,
    enough=1 << 16,
)


# ---- rows ----


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
    _ENTRIES,
)
SQUARES = Kernel(
    "squares of rows",
    lambda loaded: function(loaded, "tacit_row_squares", POINTER, LONG, LONG, POINTER, INT, result=INT),
    _squares_agree,
    _ENTRIES,
)
