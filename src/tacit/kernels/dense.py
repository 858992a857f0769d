"""Small dense networks, record by record: squared norms of their gradients, and the sum weighted by clip factors."""

import ctypes
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from tacit.kernels.calls import DOUBLE, INT, LONG, POINTER, Call, Kernel, function
from tacit.kernels.comparisons import close, integers, numbers

NONE, RELU, TANH, SIGMOID = range(4)  # activations
CLASSES, YES_OR_NO, NUMBER, COUNT = range(4)  # what is predicted
Layers = Sequence[tuple[Tensor, Tensor | None]]  # weight and bias of each


class _Network(ctypes.Structure):
    """As in dense.c."""

    _fields_ = (
        *((name, LONG) for name in ("layers", "in", "parameters")),
        *((name, POINTER) for name in ("outs", "weights", "biases", "activations", "columns")),
        *(("kind", LONG), ("scale", DOUBLE), ("weighed", LONG), ("rows", LONG)),
        *((name, POINTER) for name in ("x", "classes", "numbers", "room")),
    )


class DenseShape:
    """What does not change from step to step.

    Args:
        widths: of the inputs and of each layer's outputs.
        activations: what follows each layer.
        columns: for the weight and the bias of each layer, its place among the trained parameters, or -1.
        kind, scale: the loss of the outputs: 1 / variance for numbers, half of the largest for counts.
        weighed: whether records count min(1, 1 / |x|).
    """

    def __init__(
        self,
        widths: tuple[int, ...],
        activations: tuple[int, ...],
        columns: tuple[int, ...],
        kind: int,
        scale: float = 1.0,
        weighed: bool = False,
    ) -> None:
        self.widths, self.activations, self.columns = widths, activations, columns
        self.kind, self.scale, self.weighed = kind, scale, weighed
        self.parameters = sum(column >= 0 for column in columns)
        self.weights = sum(one * other for one, other in pairwise(widths))
        count = len(activations)
        self._pointers = POINTER * count
        self._arrays = (LONG * count)(*widths[1:]), (LONG * count)(*activations), (LONG * len(columns))(*columns)
        self._outs, self._activations, self._columns = map(ctypes.addressof, self._arrays)

    def network(self, layers: Layers, x: Tensor, targets: Tensor) -> tuple[_Network, Any]:
        """The arguments of the kernel, and what they point to."""
        rows = x.shape[0]
        room = torch.empty(2 * rows * sum(self.widths[1:]), dtype=torch.float32, device="cpu")
        weights = self._pointers(*(weight.data_ptr() for weight, _ in layers))
        biases = self._pointers(*(None if bias is None else bias.data_ptr() for _, bias in layers))
        classes, numbers = (targets.data_ptr(), None) if self.kind == CLASSES else (None, targets.data_ptr())
        network = _Network(
            len(layers), self.widths[0], self.parameters, self._outs, ctypes.addressof(weights),
            ctypes.addressof(biases), self._activations, self._columns, self.kind, self.scale, self.weighed, rows,
            x.data_ptr(), classes, numbers, room.data_ptr(),
        )  # fmt: skip
        return network, (self, weights, biases, layers, x, targets, room)

    def sums(self, layers: Layers) -> tuple[list[Tensor], Any]:
        """Room for the sum of each parameter in the order of the columns, and pointers in the order of the layers."""
        rooms = {
            column: torch.empty(one.shape, dtype=torch.float64, device="cpu")
            for column, one in zip(self.columns, (one for layer in layers for one in layer), strict=True)
            if column >= 0 and one is not None
        }
        to = (POINTER * len(self.columns))(*(rooms[c].data_ptr() if c >= 0 else None for c in self.columns))
        return [rooms[column] for column in range(len(rooms))], to


class DenseRows:
    """The records of a batch in such a network: ``squares`` [records, parameters] in float64, then their sum.

    ``faults`` counts the records whose class is none; they add nothing. Infinity and NaN stay what they are.

    Args:
        clip: for :attr:`sums` at once, all parameters of a record together: the clip norm, what is divided by larger
            norms, and what is added to every norm.
    """

    def __init__(
        self,
        calls: tuple[Call, Call, Call],
        shape: DenseShape,
        layers: Layers,
        x: Tensor,
        targets: Tensor,
        threads: int,
        clip: tuple[float, float, float] | None = None,
    ) -> None:
        self._sum, self._shape, self._threads, self._layers = calls[1], shape, threads, layers
        self._network, self._held = shape.network(layers, x, targets)
        self.squares = torch.empty(x.shape[0], shape.parameters, dtype=torch.float64, device="cpu")
        self.sums: list[Tensor] | None = None
        self.faults: int
        if clip is None:
            self.faults = calls[0](ctypes.addressof(self._network), self.squares.data_ptr(), threads)
            return
        factors = torch.empty_like(self.squares)
        self.sums, to = shape.sums(layers)
        pointers = self.squares.data_ptr(), factors.data_ptr(), ctypes.addressof(to)
        self.faults = calls[2](ctypes.addressof(self._network), (DOUBLE * 3)(*clip), *pointers, threads)

    def weighted_sum(self, factors: Tensor) -> list[Tensor]:
        """Sums of factor * gradient over records in float64, in the order of the columns; factor 0 is left out."""
        factors = factors.contiguous()
        sums, to = self._shape.sums(self._layers)
        self._sum(ctypes.addressof(self._network), factors.data_ptr(), ctypes.addressof(to), self._threads)
        return sums


def dense_rows(
    shape: DenseShape, layers: Layers, x: Tensor, targets: Tensor, clip: tuple[float, float, float] | None = None
) -> DenseRows | None:
    """The records x [records, width] with their targets [records] at some weights; None if the kernel cannot."""
    tensors = [x, *(one for layer in layers for one in layer if one is not None)]
    classes, numbers = ([targets], []) if shape.kind == CLASSES else ([], [targets])
    ready = KERNEL.ready(x.shape[0] * shape.weights, [*tensors, *numbers], integers=classes)
    if ready is None or not all(tensor.is_contiguous() for tensor in (*tensors, targets)):
        return None
    calls, threads = ready
    return DenseRows(calls, shape, layers, x, targets, threads, clip)


# ---- compared with PyTorch ----

_CASES = [  # widths, activations, kind, scale, weighed, rows, threads: lanes and tails, fours of rows and what is left
    ((100, 2), (NONE,), CLASSES, 1.0, False, 9, 1),
    ((1, 1), (NONE,), YES_OR_NO, 1.0, True, 1, 1),
    ((37, 1), (NONE,), NUMBER, 2.5, True, 6, 1),
    ((16, 1), (NONE,), COUNT, 3.0, False, 8, 2),
    ((33, 5, 3), (RELU, NONE), CLASSES, 1.0, False, 11, 2),
    ((20, 17, 4, 1), (TANH, SIGMOID, NONE), YES_OR_NO, 1.0, True, 5, 1),
]


def _agrees(calls: tuple[Call, Call, Call]) -> bool:
    """Squares and sums against autograd in float64, with a frozen weight, a missing bias and records left out."""
    for index, (widths, activations, kind, scale, weighed, rows, threads) in enumerate(_CASES):
        layers = [
            (numbers(out, width, seed=index + layer) / width**0.5, numbers(out, seed=layer) if layer or index else None)
            for layer, (width, out) in enumerate(pairwise(widths))
        ]
        columns: list[int] = []
        for number, one in enumerate(one for layer in layers for one in layer):
            trained = one is not None and (len(layers) < 3 or number != 2)
            columns.append(max(columns, default=-1) + 1 if trained else -1)
        shape = DenseShape(widths, activations, tuple(columns), kind, scale, weighed)
        x = numbers(rows, widths[0], seed=index + 20) * 2
        targets = integers(rows, seed=index + 30).abs() if kind == CLASSES else numbers(rows, seed=index + 30)
        targets = (targets.long() % widths[-1]) if kind == CLASSES else targets
        wanted = _by_autograd(shape, layers, x, targets)
        factors = numbers(rows, shape.parameters, seed=index + 40).double().abs_() + 0.1
        factors[2:3] = 0.0
        x[2:3, -1] = torch.inf
        found = DenseRows(calls, shape, layers, x, targets, threads)
        kept = [row for row in range(rows) if row != 2]
        squares = torch.stack([rows.double().flatten(1).square().sum(1) for rows in wanted], 1)
        if not close(found.squares[kept], squares[kept], squares[kept] + 1e-6, 1e-5) or found.faults:
            return False
        if rows > 2 and bool(found.squares[2].isfinite().all()):
            return False
        sums = found.weighted_sum(factors)
        for column, value in enumerate(sums):
            terms = wanted[column][kept] * factors[kept, column].view(-1, *[1] * (wanted[column].dim() - 1))
            if not close(value, terms.sum(0), terms.abs().sum(0) + 1e-6, 1e-5):
                return False
        if not _clips(calls, shape, layers, x, targets, threads):
            return False
    return _leaves_out_what_is_no_class(calls)


def _clips(calls: tuple[Call, Call, Call], shape: DenseShape, layers: Any, x: Tensor, y: Tensor, threads: int) -> bool:
    """In one call what is done in two: norms below the bound pass, others are divided, no numbers are left out."""
    apart = DenseRows(calls, shape, layers, x, y, threads)
    norms = apart.squares.sum(1).sqrt() + 0.01
    bound = float(norms[0])
    factors = torch.where(norms <= bound, 1.0, 0.9 * bound / norms).nan_to_num(0.0)[:, None].expand_as(apart.squares)
    at_once = DenseRows(calls, shape, layers, x, y, threads, (bound, 0.9 * bound, 0.01))
    if at_once.sums is None or (not torch.equal(at_once.squares, apart.squares) and not x.isinf().any()):
        return False
    wanted = apart.weighted_sum(factors)
    return all(close(one, two, two.abs() + 1e-9, 1e-12) for one, two in zip(at_once.sums, wanted, strict=True))


def _leaves_out_what_is_no_class(calls: tuple[Call, Call, Call]) -> bool:
    shape = DenseShape((3, 2), (NONE,), (0, 1), CLASSES)
    layers = [(numbers(2, 3), numbers(2))]
    targets = torch.tensor([2, -1, -100, 1], device="cpu")
    found = DenseRows(calls, shape, layers, numbers(4, 3), targets, 1)
    return found.faults == 2 and not found.squares[:3].any() and bool(found.squares[3].all())


def _by_autograd(shape: DenseShape, layers: Layers, x: Tensor, targets: Tensor) -> list[Tensor]:
    """[rows, *shape] for each trained parameter."""
    found: list[list[Tensor]] = []
    with torch.enable_grad():
        flat = [None if one is None else one.double().requires_grad_() for layer in layers for one in layer]
        trained = [one for one, column in zip(flat, shape.columns, strict=True) if one is not None and column >= 0]
        for row, target in zip(x.double(), targets, strict=True):
            a = row
            for layer, activation in enumerate(shape.activations):
                weight, bias = flat[2 * layer], flat[2 * layer + 1]
                a = (weight * a).sum(1) + (0.0 if bias is None else bias)
                a = (lambda z: z, torch.relu, torch.tanh, torch.sigmoid)[activation](a)
            loss = _loss(shape, a, target)
            if shape.weighed:
                loss = loss * row.square().sum().sqrt().clamp(min=1).reciprocal()
            found.append(list(torch.autograd.grad(loss, trained)))
    return [torch.stack(rows) for rows in zip(*found, strict=True)]


def _loss(shape: DenseShape, outputs: Tensor, target: Tensor) -> Tensor:
    if shape.kind == CLASSES:
        return outputs.logsumexp(0) - outputs[target]
    z, y = outputs[0], target.double()
    if shape.kind == YES_OR_NO:
        return torch.nn.functional.softplus(z) - y * z
    if shape.kind == NUMBER:
        return 0.5 * shape.scale * (z - y).square()
    return z.exp() / shape.scale - (1 + y) * z


KERNEL = Kernel(
    "small dense networks",
    lambda loaded: (
        function(loaded, "tacit_dense_squares", POINTER, POINTER, INT, result=LONG),
        function(loaded, "tacit_dense_sums", POINTER, POINTER, POINTER, INT),
        function(loaded, "tacit_dense_clipped", *[POINTER] * 5, INT, result=LONG),
    ),
    _agrees,
    enough=1 << 19,
)
