"""Small dense networks, as tables need them: all records by the compiled kernel, or without it by PyTorch and numpy.

Norms |g| |a| and shares factor * g a^T are formed in float64 of the same float32 numbers, as the kernel does: by numpy,
whose calls cost a third of PyTorch's where there is so little to compute. Rows are filled up to a number with which no
operation of PyTorch treats the last of them in another way (isolation/rows.py).
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit.gradients.known_networks import Arguments, KnownNetwork, derivatives, values
from tacit.kernels import dense_rows
from tacit.kernels.dense import CLASSES, COUNT, NUMBER, YES_OR_NO, DenseRows, DenseShape
from tacit.likelihoods import Bernoulli, Categorical, Counts, Gaussian
from tacit.mechanisms import GaussianSumMechanism

Doubles = npt.NDArray[np.float64]
_MOST_WEIGHTS = 1 << 14  # more of them are multiplied faster as matrices of many records
_ROWS = 4096  # whose copies in float64 are held at once
_KEPT = 1 << 18  # entries of inputs whose copies in float64 are kept for the sum


def small_rows(
    model: KnownNetwork, given: Arguments, mechanism: GaussianSumMechanism
) -> "DenseRows | PlainRows | None":
    """All records of a batch, by the kernel with their sum where the clip is plain; None if there are many weights."""
    names = tuple(mechanism.shapes)
    columns = tuple(names.index(one) if isinstance(one, str) else -1 for layer in model.layers for one in layer)
    widths = (given.inputs.shape[1], *(weight.shape[0] for weight, _ in given.layers))
    shape = _shape(widths, model.activations, columns, *_kind(model.likelihood), model.weighed)
    if shape.weights > _MOST_WEIGHTS:
        return None
    targets = given.targets.long() if shape.kind == CLASSES else given.targets.float()
    found = dense_rows(shape, given.layers, given.inputs, targets, mechanism.plain_clip)
    if found is not None or not len(targets) or not targets.is_cpu:
        return found
    return PlainRows(model, given, columns, mechanism.plain_clip)


@lru_cache(maxsize=64)
def _shape(*given: Any) -> DenseShape:
    return DenseShape(*given)


def _kind(likelihood: Bernoulli | Categorical | Gaussian | Counts) -> tuple[int, float]:
    match likelihood:
        case Categorical():
            return CLASSES, 1.0
        case Bernoulli():
            return YES_OR_NO, 1.0
        case Gaussian():
            return NUMBER, likelihood.stddev**-2
        case Counts():
            return COUNT, likelihood.half


class PlainRows:
    """The records of a batch in such a network: ``squares`` [records, parameters] in float64, then their sum.

    Args:
        columns: for the weight and the bias of each layer, its place among the trained parameters, or -1.
        clip: for :attr:`sums` at once, all parameters of a record together: the clip norm, what is divided by larger
            norms, and what is added to every norm.
    """

    def __init__(
        self, model: KnownNetwork, given: Arguments, columns: Sequence[int], clip: tuple[float, float, float] | None
    ) -> None:
        self._columns, self.faults, records = columns, model.faults(given), len(given.inputs)
        more = -records % model.multiple(given)
        filled = given.take(np.minimum(np.arange(records + more), records - 1)) if more else given  # the last row again
        with torch.no_grad():
            *inputs, outputs = values(given.layers, model.activations, filled.inputs)
            gradients = derivatives(given.layers, model.activations, inputs, model.by_outputs(outputs, filled))
        self._layers = [(a[:records].numpy(), g[:records].numpy()) for a, g in zip(inputs, gradients, strict=True)]
        if sum([a.size for a, _ in self._layers]) <= _KEPT:
            self._layers = [(a.astype(np.float64), g.astype(np.float64)) for a, g in self._layers]
        with np.errstate(all="ignore"):  # what is not finite gets no share
            squares = self._squares()
            factors = None if clip is None else _factors(squares, *clip)
            self.sums = None if factors is None else self._sums(factors)
        self.squares = torch.from_numpy(squares)

    def weighted_sum(self, factors: Tensor) -> list[Tensor]:
        """Sums of factor * gradient over records in float64, in the order of the columns; factor 0 is left out."""
        with np.errstate(all="ignore"):
            return self._sums(factors.numpy())

    def _squares(self) -> Doubles:
        found = np.empty((len(self._layers[0][0]), 1 + max(self._columns)))
        for (a, g), weight, bias in zip(self._layers, self._columns[::2], self._columns[1::2], strict=True):
            of_g = _square_sums(g)
            if bias >= 0:
                found[:, bias] = of_g
            if weight >= 0:
                np.multiply(of_g, _square_sums(a), out=found[:, weight])
        return found

    def _sums(self, factors: Doubles) -> list[Tensor]:
        """``factors`` [records, parameters], or one for all parameters of a record."""
        found: dict[int, Doubles] = {}
        for (a, g), weight, bias in zip(self._layers, self._columns[::2], self._columns[1::2], strict=True):
            for column, side in ((weight, a), (bias, None)):
                if column >= 0:
                    found[column] = _total(factors[:, column] if factors.ndim > 1 else factors, g, side)
        return [torch.from_numpy(found[column]) for column in range(len(found))]


def _factors(squares: Doubles, bound: float, beyond: float, added: float) -> Doubles:
    """1 up to the bound, ``beyond`` / norm above it, and 0 for what is not finite."""
    norms = np.sqrt(squares.sum(1)) + added
    factors = np.where(norms <= bound, 1.0, beyond / norms)
    factors[~(norms < math.inf)] = 0.0  # NaN is not below infinity
    return factors


def _square_sums(rows: Any) -> Doubles:
    if len(rows) <= _ROWS:
        rows = rows.astype(np.float64, copy=False)
        found: Doubles = np.einsum("ij,ij->i", rows, rows)
        return found
    return np.concatenate([_square_sums(rows[start : start + _ROWS]) for start in range(0, len(rows), _ROWS)])


def _total(factors: Doubles, g: Any, a: Any = None) -> Doubles:
    """sum_r factor_r g_r a_r^T, or without a."""
    if len(g) <= _ROWS:
        return _total_at_once(factors, g, a)
    total: Doubles = np.zeros(g.shape[1] if a is None else (g.shape[1], a.shape[1]))
    for start in range(0, len(g), _ROWS):
        rows = slice(start, start + _ROWS)
        total += _total_at_once(factors[rows], g[rows], None if a is None else a[rows])
    return total


def _total_at_once(factors: Doubles, g: Any, a: Any) -> Doubles:
    if not factors.min() > 0:  # 0 * inf is NaN: those without a share must not enter a product
        kept = factors > 0
        factors, g, a = factors[kept], g[kept], None if a is None else a[kept]
    g = g.astype(np.float64, copy=False)
    found: Doubles = factors @ g if a is None else (g * factors[:, None]).T @ a.astype(np.float64, copy=False)
    return found
