"""The functions of the library as Python calls them: sums and norms of gradients, max pooling, noise.

A kernel is compared with PyTorch when it is first asked for, and left out if it differs (``comparisons``). A compiler,
a processor or a PyTorch that nobody has tried may round, order or branch in another way. What a kernel computes bounds
what one record may do, so that a wrong one would be a wrong guarantee: it is never used.
"""

import ctypes
import math
import struct
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from tacit.kernels import comparisons
from tacit.kernels.library import library

MOST_POSITIONS = 256  # of a record that is added to the others as a whole
GRAM_ROUNDINGS = 36  # in a product of two positions, at most
_ENTRIES = 1 << 16  # of rows, for which a second thread pays
_RUN = 64  # as in convolution_squares.c
_MOST_PLACES = 1 << 31
_SINGLE, _DOUBLE = torch.float32, torch.float64
_KINDS = {(_DOUBLE, _DOUBLE): 0, (_SINGLE, _DOUBLE): 1, (_DOUBLE, _SINGLE): 2, (_SINGLE, _SINGLE): 3}  # sum and result
_VECTOR = "qqqqqd"  # as in noise.c: sum, result, first draw, count, kind, stddev
Pads = Sequence[tuple[int, int]]

Calls = TypeVar("Calls")
Call = Callable[..., Any]
Ready = tuple[Calls, int] | None
POINTER, LONG, DOUBLE, INT = ctypes.c_void_p, ctypes.c_long, ctypes.c_double, ctypes.c_int


class KernelWarning(UserWarning):
    """A compiled kernel does not give PyTorch's numbers on this machine, and PyTorch does its work."""


@dataclass(slots=True)
class Kernel(Generic[Calls]):
    """Functions of the library that belong together: how to bind them, and whether they give PyTorch's numbers.

    ``enough`` is the work for which a second thread pays.
    """

    name: str
    bind: Callable[[ctypes.CDLL], Calls]
    agrees: Callable[[Calls], bool]
    enough: int
    _known: list[Calls | None] = field(default_factory=list)

    def ready(
        self, work: int, floats: Sequence[Tensor] = (), doubles: Sequence[Tensor] = (), integers: Sequence[Tensor] = ()
    ) -> tuple[Calls, int] | None:
        """The functions, and the number of threads that so much work is worth.

        None where there are none, or the numbers of a tensor do not lie in memory as they are, in the type they need.
        """
        calls = self._known[0] if self._known else self.calls()
        if calls is None:
            return None
        for tensors, dtype in ((floats, torch.float32), (doubles, torch.float64), (integers, torch.int64)):
            for tensor in tensors:
                if tensor.dtype is not dtype or not tensor.is_cpu or tensor.is_neg():
                    return None
        return calls, torch.get_num_threads() if work >= self.enough else 1

    def calls(self) -> Calls | None:
        """The functions, or None where there is no library or it differs, which is said once."""
        if not self._known:
            loaded = library()
            self._known.append(None if loaded is None else self.checked(loaded))
            if loaded is not None and self._known[0] is None and self.is_in(loaded):
                text = f"tacit: the compiled kernel for {self.name} differs from PyTorch here; PyTorch does its work"
                warnings.warn(text, KernelWarning, stacklevel=3)
        return self._known[0]

    def is_in(self, loaded: ctypes.CDLL) -> bool:
        """Whether the library has these functions: some are made for one kind of processor only."""
        try:
            return bool(self.bind(loaded))
        except AttributeError:
            return False

    def checked(self, loaded: ctypes.CDLL) -> Calls | None:
        """The functions of this library if they agree with PyTorch."""
        try:
            calls = self.bind(loaded)
            return calls if _undisturbed(lambda: self.agrees(calls)) else None
        except Exception:  # whatever it is, PyTorch can do the work
            return None


def _undisturbed(question: Callable[[], bool]) -> bool:
    """Asked in a thread of its own, where no mode, transform or default device of the caller's is in force."""
    found: list[bool | Exception] = []

    def ask() -> None:
        try:
            with torch.no_grad():
                found.append(question())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=ask, name="tacit kernel check")
    thread.start()
    thread.join()
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def function(loaded: ctypes.CDLL, name: str, *arguments: Any, result: Any = None) -> Call:
    """A function of the library with the types of its arguments."""
    call = loaded[name]
    call.argtypes, call.restype = arguments, result
    return call


def compared(compare: Callable[..., bool], *functions: Callable[..., Any]) -> Callable[[Any], bool]:
    """Compares functions of ours, each told by ``ready`` to use the calls that are in question."""

    def asked(given: Callable[..., Any], calls: Any, *args: Any, threads: int = 1, **named: Any) -> Any:
        return given(*args, ready=(calls, threads), **named)

    return lambda calls: compare(*(partial(asked, one, calls) for one in functions))


# In all that follows ``ready`` holds the calls of the library and a number of threads while they are compared.

# ---- sums of products ----


def outer_sum(
    x: Tensor, g: Tensor, factors: Tensor, several: int = 1, *, single: bool = False, ready: Ready[Call] = None
) -> Tensor | None:
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
    ready = ready or PRODUCTS.ready(x.numel() * g.shape[2], (x, g), doubles=(factors,))
    single = single and x.shape[1] <= MOST_POSITIONS
    return None if ready is None else _outer(ready, x, g, factors, x.shape[1], several, single)


def uneven_outer_sum(
    x: Tensor, g: Tensor, ends: Tensor, usual: int, factors: Tensor, *, ready: Ready[Call] = None
) -> Tensor | None:
    """The same of records that differ in positions: x is [positions, in], and ``ends`` says where each record ends.

    Up to ``usual`` = 8 all is added in float64: whoever gives it must not look at the records for it.
    """
    ready = ready or PRODUCTS.ready(x.numel() * g.shape[1], (x, g), doubles=(factors,), integers=(ends,))
    return None if ready is None or not len(ends) else _outer(ready, x, g, factors, usual, ends=ends.contiguous())


def _outer(
    ready: tuple[Call, int], x: Tensor, g: Tensor, factors: Tensor, positions: int, several: int = 1,
    single: bool = False, ends: Tensor | None = None,
) -> Tensor | None:  # fmt: skip
    (call, threads), x, g, factors = ready, x.contiguous(), g.contiguous(), factors.contiguous()
    total = x.new_empty(g.shape[-1], x.shape[-1], dtype=torch.float32 if single else torch.float64)
    pointers = x.data_ptr(), g.data_ptr(), factors.data_ptr(), None if ends is None else ends.data_ptr()
    sizes = len(factors), positions, x.shape[-1], g.shape[-1]
    return None if call(*pointers, *sizes, several, single, total.data_ptr(), threads) else total


PRODUCTS = Kernel(
    "sums of products",
    lambda loaded: function(loaded, "tacit_outer_sum", *[POINTER] * 4, *[LONG] * 5, INT, POINTER, INT, result=INT),
    compared(comparisons.products_agree, outer_sum, uneven_outer_sum),
    enough=1 << 21,
)


def gram_squares(x: Tensor, g: Tensor, *, ready: Ready[Call] = None) -> tuple[Tensor, Tensor, Tensor] | None:
    """|sum_t g_t x_t^T|^2, |x|^2 and |g|^2 of each record in float64; None if the kernel cannot.

    x is [records, positions, in] and g [records, positions, out] in float32. A product of two positions errs by at most
    GRAM_ROUNDINGS roundings of the product of their lengths; all three are sums of such products.
    """
    if not (x.dim() == g.dim() == 3 and x.shape[:2] == g.shape[:2] and len(x)):
        return None
    ready = ready or GRAM.ready(x.shape[1] * (x.numel() + g.numel()), (x, g))
    if ready is None:
        return None
    (call, threads), x, g = ready, x.contiguous(), g.contiguous()
    squares = torch.empty(3, len(x), dtype=torch.float64, device="cpu")
    call(x.data_ptr(), g.data_ptr(), *x.shape, g.shape[2], squares.data_ptr(), threads)
    of_product, of_x, of_g = squares
    return of_product, of_x, of_g


GRAM = Kernel(
    "products of positions",
    lambda loaded: function(loaded, "tacit_gram_squares", POINTER, POINTER, LONG, LONG, LONG, LONG, POINTER, INT),
    compared(comparisons.gram_agrees, gram_squares),
    enough=1 << 16,
)

# ---- rows ----


def weighted_rows(rows: Tensor, factors: Tensor, *, single: bool = False, ready: Ready[Call] = None) -> Tensor | None:
    """sum_r factor_r * rows[r] as [size] in float64, or ``single`` rounded to float32; None if the kernel cannot.

    Rows are [records, size] in float32, factors [records] in float64. A row of factor 0 is not looked at.
    """
    if rows.dim() != 2 or factors.shape != rows.shape[:1]:
        return None
    ready = ready or WEIGHTED.ready(rows.numel(), (rows,), doubles=(factors,))
    if ready is None:
        return None
    (call, threads), rows, factors = ready, rows.contiguous(), factors.contiguous()
    total = rows.new_empty(rows.shape[1:], dtype=torch.float32 if single else torch.float64)
    call(rows.data_ptr(), factors.data_ptr(), *rows.shape, single, total.data_ptr(), threads)
    return total


def row_squares(rows: Tensor, *, ready: Ready[Call] = None) -> Tensor | None:
    """The sum of squares of each row of float32 [records, ...], in float64; None if the kernel cannot.

    1e-30 squared does not vanish and 1e30 squared is not infinite; infinity and NaN stay what they are.
    """
    ready = ready or (SQUARES.ready(rows.numel(), (rows,)) if rows.dim() else None)
    if ready is None:
        return None
    (call, threads), rows, size = ready, rows.contiguous(), rows.shape[1:].numel()
    squares = torch.empty(len(rows), dtype=torch.float64, device="cpu")
    return None if call(rows.data_ptr(), len(rows), size, squares.data_ptr(), threads) else squares


WEIGHTED = Kernel(
    "weighted sums of rows",
    lambda loaded: function(loaded, "tacit_weighted_rows", POINTER, POINTER, LONG, LONG, INT, POINTER, INT),
    compared(comparisons.weighted_agree, weighted_rows),
    _ENTRIES,
)
SQUARES = Kernel(
    "squares of rows",
    lambda loaded: function(loaded, "tacit_row_squares", POINTER, LONG, LONG, POINTER, INT, result=INT),
    compared(comparisons.squares_agree, row_squares),
    _ENTRIES,
)

# ---- convolutions over two dimensions, without groups and dilation ----
# image is [records, in, height, width], g [records, out, *places], both float32; shape is [out, in, *kernel], and
# padding (before, after) of either side.


def convolution_rows(
    image: Tensor, g: Tensor, shape: Sequence[int], stride: Sequence[int], padding: Pads, *, ready: Ready[Call] = None
) -> tuple[Tensor, Tensor] | None:  # fmt: skip
    """The gradients of all records for a weight of this shape and their squared norms; None if the kernel cannot.

    The gradients are [records, out * kernel height * kernel width * in] in this order, the squares [records] in
    float64.
    """
    sizes, size = _sizes(image, g, shape, stride, padding), torch.Size(shape).numel()
    ready = None if sizes is None else ready or ROWS.ready(len(g) * size, (image, g))
    if ready is None:
        return None
    (call, threads), image, g, rows = ready, image.contiguous(), g.contiguous(), g.new_empty(len(g), size)
    squares = torch.empty(len(g), dtype=torch.float64, device="cpu")
    pointers = image.data_ptr(), g.data_ptr(), len(g), sizes, rows.data_ptr(), squares.data_ptr()
    return None if call(*pointers, threads) else (rows, squares)


def convolution_squares(
    image: Tensor, g: Tensor, shape: Sequence[int], stride: Sequence[int], padding: Pads,
    *, ready: Ready[tuple[Call, Call]] = None,
) -> Tensor | None:  # fmt: skip
    """The squared norms of the same gradients in float64, which are not formed; None if the kernel cannot.

    They come from the products of all pairs of places, each of them :func:`product_roundings` off at most.
    """
    sizes = _sizes(image, g, shape, stride, padding)
    ready = ready or (None if sizes is None else SUMS.ready(image.numel() * g.shape[-1], (image, g)))
    if ready is None:
        return None
    (calls, threads), image, g = ready, image.contiguous(), g.contiguous()
    squares = torch.empty(len(g), dtype=torch.float64, device="cpu")
    return None if calls[0](image.data_ptr(), g.data_ptr(), len(g), sizes, squares.data_ptr(), threads) else squares


def convolution_sum(
    image: Tensor, g: Tensor, factors: Tensor, shape: Sequence[int], stride: Sequence[int], padding: Pads,
    *, single: bool, ready: Ready[tuple[Call, Call]] = None,
) -> Tensor | None:  # fmt: skip
    """sum_r factor_r * gradient of record r, [out, kernel height, kernel width, in]; None if the kernel cannot.

    A record's gradient is formed in float32 and added in float64 or, ``single``, in float32. A record of factor 0 is
    not looked at.
    """
    sizes = _sizes(image, g, shape, stride, padding)
    if sizes is None or factors.shape != g.shape[:1]:
        return None
    ready = ready or SUMS.ready(image.numel() * g.shape[-1], (image, g), doubles=(factors,))
    if ready is None:
        return None
    (calls, threads), image, g, factors = ready, image.contiguous(), g.contiguous(), factors.contiguous()
    total = image.new_empty(shape[0], *shape[2:], shape[1], dtype=torch.float32 if single else torch.float64)
    pointers = image.data_ptr(), g.data_ptr(), factors.data_ptr(), len(g), sizes, single, total.data_ptr()
    return None if calls[1](*pointers, threads) else total


def product_roundings(shape: Sequence[int]) -> int:
    """Of a product of two patches, or of two places of g: channels in runs, the runs, and the pixels of a patch."""
    return _RUN + max(shape[0], shape[1]) // _RUN + 1 + shape[2] * shape[3]


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


ROWS = Kernel(
    "convolutions",
    lambda loaded: function(loaded, "tacit_convolution", POINTER, POINTER, LONG, *[POINTER] * 3, INT, result=INT),
    compared(comparisons.convolutions_agree, convolution_rows),
    enough=1 << 16,
)
SUMS = Kernel(
    "sums of convolutions",
    lambda loaded: (
        function(loaded, "tacit_convolution_squares", POINTER, POINTER, LONG, POINTER, POINTER, INT, result=INT),
        function(loaded, "tacit_convolution_sum", *[POINTER] * 3, LONG, POINTER, INT, POINTER, INT, result=INT),
    ),
    compared(comparisons.sums_of_convolutions_agree, convolution_squares, convolution_sum),
    enough=1 << 16,
)

# ---- max pooling both ways, bit for bit as PyTorch's, which looks at one window after another ----


def max_pool(
    input: Tensor, kernel: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,), ceil_mode: bool = False, *, ready: Ready[Call] = None,
) -> tuple[Tensor, Tensor] | None:  # fmt: skip
    """Maxima of [..., height, width] and their places in its planes; None if the kernel cannot or PyTorch refuses."""
    if ceil_mode or set(dilation) != {1} or not _has_planes(input):
        return None
    windows = _windows(tuple(input.shape[-2:]), tuple(kernel), tuple(stride or kernel), tuple(padding))
    if windows is None:
        return None
    places, sizes = windows
    planes = input.shape[:-2].numel()
    ready = ready or POOLING.ready(planes * math.prod(places), (input,))
    if ready is None:
        return None
    values = input.new_empty(*input.shape[:-2], *places)
    indices = torch.empty_like(values, dtype=torch.int64)
    short = ready[0](input.data_ptr(), planes, sizes, values.data_ptr(), indices.data_ptr(), ready[1])
    return None if short else (values, indices)


def max_pool_backward(g: Tensor, places: Tensor, shape: Sequence[int], *, ready: Ready[Call] = None) -> Tensor | None:
    """The gradient by an input of this shape, from that by the maxima and their places; None if the kernel cannot."""
    if g.shape != places.shape or g.shape[:-2] != torch.Size(shape[:-2]) or min(shape) < 1:
        return None
    ready = ready or POOLING_BACKWARD.ready(math.prod(shape), (g,), integers=(places,))
    if ready is None:
        return None
    (call, threads), g, places, found = ready, g.contiguous(), places.contiguous(), g.new_empty(shape)
    planes, outs, size = (math.prod(sizes) for sizes in (shape[:-2], g.shape[-2:], shape[-2:]))
    call(g.data_ptr(), places.data_ptr(), planes, outs, size, found.data_ptr(), threads)
    return found


@lru_cache(maxsize=64)
def _windows(
    shape: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...]
) -> tuple[tuple[int, int], Any] | None:
    """How many windows there are on planes of this shape, down and across, and all sizes as the kernel is told them.

    None unless there are some, each with a place that is no padding.
    """
    (kernel, stride, padding), sides = ((sizes[0], sizes[-1]) for sizes in (kernel, stride, padding)), (0, 1)
    padded = [shape[side] + 2 * padding[side] for side in sides]
    inside = all(0 <= 2 * padding[side] <= kernel[side] for side in sides) and min(*kernel, *stride) > 0
    if not inside or any(padded[side] < kernel[side] for side in sides):
        return None
    down, across = ((padded[side] - kernel[side]) // stride[side] + 1 for side in sides)
    sizes = (*shape, down, across, *kernel, *stride, *padding, *padded)
    return (down, across), (ctypes.c_long * len(sizes))(*sizes)


def _has_planes(input: Tensor) -> bool:
    """Which lie in memory one after the other, and no channels last."""
    if type(input) is not Tensor or input.dim() not in (3, 4):
        return False
    height, width = input.shape[-2:]
    strides = (input.shape[-3] * height * width, height * width, width, 1)[-input.dim() :]
    return input.numel() > 0 and input.stride() == strides and height * width < _MOST_PLACES


POOLING = Kernel(
    "max pooling",
    lambda loaded: function(loaded, "tacit_max_pool", POINTER, LONG, POINTER, POINTER, POINTER, INT, result=INT),
    compared(comparisons.pooling_agrees, max_pool),
    enough=1 << 13,
)
POOLING_BACKWARD = Kernel(
    "max pooling backwards",
    lambda loaded: function(loaded, "tacit_max_pool_backward", POINTER, POINTER, LONG, LONG, LONG, POINTER, INT),
    compared(comparisons.pooling_backward_agrees, max_pool_backward),
    enough=1 << 15,
)

# ---- noise: (sum + stddev * draw) / denominator in one pass, from the words of an AES-256-CTR key stream ----


def add_noise(
    key: bytes, counter: bytes, sums: Sequence[Tensor], stddevs: Sequence[float], denominator: float,
    outs: Sequence[Tensor], *, ready: Ready[tuple[Call, Call]] = None,
) -> bool:  # fmt: skip
    """Fill outs with (sum + stddev * draw) / denominator, rounded once; False, and nothing done, if the kernel cannot.

    The draws are those of the words of the key stream in a row, the vectors' one after another.
    """
    ready = ready or NOISE.ready(sum([value.numel() for value in sums]))
    if ready is None or not all(map(_lie_alike, sums, outs)):
        return False
    fields: list[float] = []
    first = 0
    for value, stddev, out in zip(sums, stddevs, outs, strict=True):
        count, kind = value.numel(), _KINDS[value.dtype, out.dtype]
        fields += (value.data_ptr(), out.data_ptr(), first, count, kind, stddev)
        first += count
    (calls, threads), vectors = ready, struct.pack(_VECTOR * len(sums), *fields)
    calls[0](key, counter, vectors, len(sums), denominator, threads)
    return True


def _lie_alike(value: Tensor, out: Tensor) -> bool:
    """Whether both lie in memory in the order of their entries, in types that the kernel knows."""
    if not (value.is_cpu and out.is_cpu and value.is_contiguous() and out.is_contiguous()):
        return False
    return (value.dtype, out.dtype) in _KINDS and value.numel() == out.numel() and not value.is_neg()


def _normals(words: Tensor, *, ready: tuple[tuple[Call, Call], int]) -> Tensor:
    """The draws of these words."""
    found = torch.empty(len(words), dtype=torch.float64, device="cpu")
    ready[0][1](words.data_ptr(), found.data_ptr(), len(words))
    return found


NOISE = Kernel(
    "noise",
    lambda loaded: (
        function(loaded, "tacit_add_noise", POINTER, POINTER, POINTER, LONG, DOUBLE, INT),
        function(loaded, "tacit_normals", POINTER, POINTER, LONG),
    ),
    compared(comparisons.noise_agrees, add_noise, _normals),
    enough=1 << 14,
)
