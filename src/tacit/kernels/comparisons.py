"""What kernels are compared with before they are used: PyTorch, on values and norms, on shapes that cover branches."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
from math import inf, nan
from typing import Any

import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from torch import Tensor
from torch.nn import functional

Call = Callable[..., Any]

# ---- numbers to compare with ----


def numbers(*shape: int, seed: int = 0) -> Tensor:
    """Irregular floats in (-1, 1), the same in every process: no generator is touched."""
    count, start = torch.Size(shape).numel(), 577 * seed % 8192
    return _irregular()[start : start + count].view(shape).clone()


@cache
def _irregular() -> Tensor:
    """Hashes of 1, 2, ...: so few, and by such operations, that PyTorch starts no threads, which can take a while."""
    bits = torch.arange(1, 1 << 15, dtype=torch.int64, device="cpu")
    for factor in (0x9E3779B1, 0x85EBCA6B):
        bits = (bits * factor) & 0xFFFFFFFF
        bits ^= bits >> 15
    return ((bits.double() + 0.5) / 2.0**31 - 1.0).float()


def integers(*shape: int, seed: int = 0) -> Tensor:
    """Small whole numbers: sums of their products are exact in single precision, in any order."""
    return (numbers(*shape, seed=seed) * 9).to(torch.int8).float()


def close(found: Tensor, wanted: Tensor, size: Tensor, tolerance: float) -> bool:
    """Whether each number differs by at most the tolerance times its size; NaN and infinity must be the same."""
    if found.shape != wanted.shape:
        return False
    near = (found.double() - wanted).abs_() <= tolerance * size
    return bool(near.all()) or bool((near | (found == wanted) | (found.isnan() & wanted.isnan())).all())


# ---- sums of products ----

_MOST_POSITIONS = 256  # as in calls.py
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


def products_agree(outer: Call, uneven: Call) -> bool:
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
        found = outer(x, g, factors, threads=threads)
        if found is None or not close(found, wanted, size, 1e-13):
            return False
        if positions == 1 or positions > _MOST_POSITIONS:  # single precision does not hold what is added here
            continue
        single = outer(x, g, factors, single=True, threads=threads)
        if single is None or not close(single, wanted, size, (records + 2) * 2.0**-24):
            return False
    checks = _leaves_out, _rounds_within_records, _rounds_within_stretches
    return all(check(outer) for check in checks) and _agrees_on_uneven_records(uneven)


def _leaves_out(outer: Call) -> bool:
    """Records of factor 0: nothing is left."""
    nothing = outer(numbers(2, 3, 4), numbers(2, 3, 5), torch.zeros(2, dtype=torch.float64, device="cpu"))
    return nothing is not None and not nothing.any()


def _rounds_within_records(outer: Call) -> bool:
    """Numbers of all digits: single precision is right to 1e-6 of what is added."""
    x, g, factors = numbers(3, 40, 20, seed=1), numbers(3, 40, 7, seed=2), torch.tensor([0.5, 2.0, 1 / 3]).double()
    found = outer(x, g, factors)
    return found is not None and close(found, *_reference(x, g, factors), 1e-6)


def _rounds_within_stretches(outer: Call) -> bool:
    """Several records of one position: exact where whole numbers fit, right to a few roundings where they do not.

    And no more than were allowed: after 2^24 a one would be lost, but it is not in the same stretch.
    """
    large = torch.ones(12, 1, 1, device="cpu")
    large[0], large[1:4] = 2.0**24, 0.0
    ones = torch.ones(12, dtype=torch.float64, device="cpu")
    apart = outer(large, torch.ones_like(large), ones, 4)
    if apart is None or apart.item() != 2.0**24 + 8:
        return False
    for draw, tolerance in ((integers, 0.0), (numbers, 7 * 2.0**-24)):
        x, g = draw(300, 1, 50, seed=3), draw(300, 1, 15, seed=4)  # a full tile, and one of few outputs
        factors = torch.ones(300, dtype=torch.float64, device="cpu")
        factors[7] = 0.0
        x[7, 0, 3] = torch.inf
        wanted, size = _reference(x[factors > 0], g[factors > 0], factors[factors > 0])
        for several, single, roundings in ((7, False, 1), (7, True, 2), (300, True, 40)):
            found = outer(x, g, factors, several, single=single, threads=2)
            if found is None or not close(found, wanted, size, roundings * tolerance):
                return False
    return True


def _agrees_on_uneven_records(uneven: Call) -> bool:
    """Records of other numbers of positions, one of none and one longer than a run, by both ways of adding."""
    lengths = torch.tensor([3, 0, 270, 1, 9], device="cpu")
    x, g, factors = integers(283, 5, seed=6), integers(283, 7, seed=7), numbers(5, seed=8).double().abs_() + 0.1 / 3
    factors[3] = 0.0
    wanted, size = _reference(x[:, None], g[:, None], factors.repeat_interleave(lengths))
    found = [uneven(x, g, lengths.cumsum(0), usual, factors) for usual in (1, 40)]
    return all(one is not None and close(one, wanted, size, 1e-13) for one in found)


def _reference(x: Tensor, g: Tensor, factors: Tensor) -> tuple[Tensor, Tensor]:
    """The sum and the sum of sizes in float64, entry by entry: the threads of a product would take longer to start."""
    left, right = (g.double() * factors[:, None, None]).flatten(0, 1), x.double().flatten(0, 1)
    terms = left[:, :, None] * right[:, None, :]
    return terms.sum(0), terms.abs_().sum(0)


def gram_agrees(gram: Call) -> bool:
    """On tiles and blocks that are full and not, on runs and the tails of all."""
    for index, (records, positions, width, out) in enumerate(
        [(3, 1, 1, 1), (2, 4, 16, 9), (3, 7, 521, 31), (5, 6, 8, 40), (2, 13, 32, 50), (2, 70, 6, 130)]
    ):
        x, g = numbers(records, positions, width, seed=index), numbers(records, positions, out, seed=index + 9)
        of_x, of_g = (part.double().flatten(1).square().sum(1) for part in (x, g))
        wanted = (g.double().mT @ x.double()).flatten(1).square().sum(1), of_x, of_g
        found = gram(x, g, threads=1 + index // 3)
        if not all(close(*each, 2e-6) for each in zip(found, wanted, (of_x * of_g, of_x, of_g), strict=True)):
            return False
    return True


# ---- rows ----


def weighted_agree(weighted: Call) -> bool:
    for index, shape in enumerate([(1, 1), (7, 5), (6, 2048 + 37)]):  # rows in fours, columns by 2048
        rows, factors = numbers(*shape, seed=index), numbers(shape[0], seed=index + 9).double() + 1 / 3
        factors[2:3] = 0.0
        terms = factors[:, None] * rows.double()
        rows[2:3, -1] = torch.inf  # must not be looked at
        for single, tolerance in ((False, 1e-14), (True, 2.0**-24)):
            found = weighted(rows, factors, single=single, threads=1 + index // 2)
            if found is None or not close(found, terms.sum(0), terms.abs().sum(0), tolerance):
                return False
    return True


def squares_agree(squares: Call) -> bool:
    for index, shape in enumerate([(3, 0), (3, 1), (2, 33), (5, 16, 3), (2, (1 << 13) + 21)]):  # lanes, pieces, tails
        rows = numbers(*shape, seed=index)
        rows[0] *= 1e-30
        rows[1] *= 1e30
        if shape[0] > 3:
            rows[3, -1], rows[4, 0, 0] = torch.inf, torch.nan
        wanted = rows.double().flatten(1).square().sum(1)
        found = squares(rows, threads=1 + index // 4)
        if found is None or not close(found, wanted, wanted, 1e-13):
            return False
    return True


# ---- convolutions ----

# In, out, height, width, kernel, stride, padding: runs of every number of vectors, whole and with tails.
_CONVOLUTIONS = [
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


def _convolutions() -> Iterator[tuple[Any, ...]]:
    """Image, g, shape, stride and padding; how far off the gradients may be, and a number of threads."""
    for index, (width, out, height, across, kernel, stride, padding) in enumerate(_CONVOLUTIONS):
        sizes = zip((height, across), padding, kernel, stride, strict=True)
        places = [(size + sum(pads) - k) // s + 1 for size, pads, k, s in sizes]
        for draw, tolerance, threads in ((integers, 0.0, 1), (numbers, 1e-6, 1 + index // 5 % 2)):
            image, g = draw(3, width, height, across, seed=index), draw(3, out, *places, seed=index + 50)
            yield image, g, (out, width, *kernel), stride, padding, tolerance, threads


def sums_of_convolutions_agree(squares_of: Call, sum_of: Call) -> bool:
    """Norms and sums, with one record that does not count."""
    factors = torch.tensor([0.5, 0.0, 1.75], dtype=torch.float64, device="cpu")
    for image, g, shape, stride, padding, tolerance, threads in _convolutions():
        wanted, size = _by_patches(image, g, shape, stride, padding)
        squares, bound = wanted.square().sum(1), size.square().sum(1)
        found = squares_of(image, g, shape, stride, padding, threads=threads)
        if found is None or not close(found, squares, bound, tolerance):
            return False
        image[1, 0, 0, 0] = g[1, 0, 0, 0] = torch.nan
        total = (wanted * factors[:, None]).sum(0).view(shape[0], *shape[2:], shape[1])
        largest = (size * factors[:, None]).sum(0).view(total.shape)
        for single, roundings in ((False, 1e-15), (True, 2.0**-22)):
            one = sum_of(image, g, factors, shape, stride, padding, single=single, threads=threads)
            if one is None or not close(one, total, largest, tolerance + roundings):
                return False
    return _chunks_agree(sum_of)


def _chunks_agree(sum_of: Call) -> bool:
    """So much padding that records come in several chunks: whole numbers are what each record adds by itself."""
    image, g = integers(3, 1, 3, 3), integers(3, 3, 5, 5, seed=1)
    factors, how = torch.ones(3, dtype=torch.float64, device="cpu"), ((3, 1, 2, 2), (75, 75), ((150, 150), (150, 150)))
    total = sum_of(image, g, factors, *how, single=False)
    for r in range(3):
        one = sum_of(image[[r]], g[[r]], factors[[r]], *how, single=False)
        total = None if one is None or total is None else total - one
    return total is not None and not total.any()


def convolutions_agree(rows_of: Call) -> bool:
    """Against float64: whole numbers to the last bit, others to 1e-6 of what is added, norms to double precision."""
    for image, g, shape, stride, padding, tolerance, threads in _convolutions():
        if tolerance:
            image[1, 0, 0, 0] = torch.nan  # must stay with its record
        wanted, size = _by_patches(image, g, shape, stride, padding)
        found = rows_of(image, g, shape, stride, padding, threads=threads)
        if found is None or not close(found[0], wanted, size, tolerance):
            return False
        squares = found[0].double().square_().sum(1)
        if not close(found[1], squares, squares, 1e-13):
            return False
    return True


def _by_patches(
    image: Tensor, g: Tensor, shape: Sequence[int], stride: Sequence[int], padding: Sequence[tuple[int, int]]
) -> tuple[Tensor, Tensor]:
    """The gradients in the kernel's order and the sizes of what is added for them, in float64, by patches."""
    padded = functional.pad(image.double(), [*padding[1], *padding[0]])
    patches = padded.unfold(2, shape[2], stride[0]).unfold(3, shape[3], stride[1])  # [records, in, *places, *kernel]
    patches = patches.permute(0, 4, 5, 1, 2, 3).flatten(1, 3).flatten(2)
    terms = g.double().flatten(2)[:, :, None] * patches[:, None]
    return terms.sum(3).flatten(1), terms.abs_().sum(3).flatten(1)


# ---- max pooling ----

_pool: Any = torch.ops.aten.max_pool2d_with_indices.default
_WINDOWS = [  # what is unrolled and what is not, rows of less and of more than a vector of windows, edges
    ((2, 2), (1, 1), (0, 0)),
    ((2, 2), (2, 2), (1, 1)),
    ((3, 3), (2, 2), (1, 1)),
    ((3, 2), (2, 1), (1, 0)),
    ((2, 5), (1, 2), (0, 2)),
    ((1, 3), (1, 3), (0, 1)),
]


def pooling_agrees(pool: Call) -> bool:
    """Whether this PyTorch treats equal maxima, NaN and nothing but -inf as the kernel does: another one may not."""
    rows = [[0.0, -0.0, 1.0, 1.0, -inf], [-0.0, 0.0, nan, 1.0, -inf], [2.0, 2.0, nan, inf, -inf], [-inf] * 5]
    plane = torch.tensor([rows], dtype=torch.float32, device="cpu")
    wide = (integers(3, 6, 41) / 2).masked_fill_(numbers(3, 6, 41, seed=1) > 0.95, nan)
    for index, case in enumerate(_WINDOWS):
        for input in (plane, wide):
            if not _same(pool(input, *case, threads=1 + index // 5), _pool(input, *case)):
                return False
    return True


def pooling_backward_agrees(back: Call) -> bool:
    """Bit for bit, also where windows share a maximum, whose parts are added in their order."""
    for index, case in enumerate(_WINDOWS):
        input = integers(2, 3, 6, 41, seed=index)
        values, places = _pool(input, *case)
        g = numbers(*values.shape, seed=index + 9)
        g[0, 0, 0, 0] = nan  # must stay in its plane
        wanted = torch.ops.aten.max_pool2d_with_indices_backward(g, input, *case, [1, 1], False, places)
        found = back(g, places, input.shape, threads=1 + index // 3)
        if found is None or not torch.equal(found.view(torch.int32), wanted.view(torch.int32)):
            return False
    return True


def _same(found: tuple[Tensor, Tensor] | None, wanted: tuple[Tensor, Tensor]) -> bool:
    """To the last bit, NaN's too."""
    if found is None or found[0].shape != wanted[0].shape:
        return False
    bits = torch.equal(found[0].view(torch.int32), wanted[0].view(torch.int32))
    return bits and torch.equal(found[1], wanted[1])


# ---- noise ----

_COUNTS = [1, 0, 1040, 16_996]  # more than a block, more than are left to one thread; the last draw lies in the tail
_BORDERS = [0, 1, 125_090, 125_091, 675539944105573, 675539944105574, (1 << 52) - 1]  # of the kernel's three formulas


def noise_agrees(add: Call, normals: Call) -> bool:
    """Whether the draws are PyTorch's: those from a fixed key, few and many, and those that no key finds."""
    words = torch.tensor([k - (k % 2 << 63) for k in _BORDERS], dtype=torch.int64, device="cpu")
    found, wanted = normals(words), _inverse_normal(words)
    return close(found, wanted, wanted.abs(), 1e-13) and _noisy_sums_agree(add)


def _noisy_sums_agree(add: Call) -> bool:
    """For sums and results of either type."""
    key, counter = bytes(range(32)), bytes([7, *range(7), *bytes(8)])
    draws, values = _draws(key, counter, sum(_COUNTS)), numbers(sum(_COUNTS))
    stddevs = [1.7, 2.0, 0.3, 1.1]
    scaled = draws * torch.cat(
        [torch.full((n,), s, dtype=torch.float64, device="cpu") for n, s in zip(_COUNTS, stddevs, strict=True)]
    )
    for source, target in product((torch.float32, torch.float64), repeat=2):
        for counts, threads in ((_COUNTS[:3], 1), (_COUNTS, 2)):
            sums = values[: sum(counts)].to(source)
            wanted = (sums + scaled[: len(sums)]) / 3.0
            out = torch.empty(len(sums), dtype=target, device="cpu")
            parts = torch.split(sums, counts), stddevs[: len(counts)], 3.0, torch.split(out, counts)
            tolerance = 1e-13 if target == torch.float64 else 6e-8
            done = add(key, counter, *parts, threads=threads)
            if not done or not close(out, wanted, wanted.abs() + 1e-3, tolerance):
                return False
    return True


def _draws(key: bytes, counter: bytes, count: int) -> Tensor:
    """From the key stream's words."""
    stream = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor().update(bytes(8 * count))
    return _inverse_normal(torch.frombuffer(bytearray(stream), dtype=torch.int64))


def _inverse_normal(words: Tensor) -> Tensor:
    """As ``randomness`` makes it: the last 52 bits give the size, the first one the sign."""
    halves: Tensor = torch.special.ndtri(((words & ((1 << 52) - 1)).double() + 0.5) * 2.0**-53)
    return -halves.copysign_(words.view(torch.float64))
