"""Small dense networks, as tables need them: all records by the compiled kernel, or without it by PyTorch.

Norms |g| |a| and shares factor * g a^T are formed in float64 of the same float32 numbers, as the kernel does. Rows are
filled up to a number with which no operation treats the last of them in another way (isolation/rows.py).
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.gradients.known_networks import Arguments, KnownNetwork, derivatives, values
from tacit.kernels import dense_rows
from tacit.kernels.dense import CLASSES, COUNT, NUMBER, YES_OR_NO, DenseRows, DenseShape
from tacit.layers.record_gradients import with_a_share
from tacit.likelihoods import Bernoulli, Categorical, Counts, Gaussian
from tacit.mechanisms import GaussianSumMechanism

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
    return PlainRows(model, given, columns)


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
    """

    sums = None

    def __init__(self, model: KnownNetwork, given: Arguments, columns: Sequence[int]) -> None:
        self.columns, self.faults, records = columns, model.faults(given), len(given.inputs)
        whole = np.arange(records + -records % model.multiple(given))
        filled = given.take(np.minimum(whole, records - 1))  # the last row once more
        with torch.no_grad():
            *inputs, outputs = values(given.layers, model.activations, filled.inputs)
            gradients = derivatives(given.layers, model.activations, inputs, model.by_outputs(outputs, filled))
            small = sum([one.numel() for one in inputs]) <= _KEPT
            of_layers = [*zip(inputs, gradients, strict=True)]
            if filled is not given:
                of_layers = [(a[:records], g[:records]) for a, g in of_layers]
            self.layers = [(a.double(), g.double()) for a, g in of_layers] if small else of_layers
            self.squares = self._squares()

    def _squares(self) -> Tensor:
        found: dict[int, Tensor] = {}
        for (a, g), weight, bias in zip(self.layers, self.columns[::2], self.columns[1::2], strict=True):
            of_g = _square_sums(g)
            found |= {bias: of_g} | ({weight: of_g * _square_sums(a)} if weight >= 0 else {})
        found.pop(-1, None)
        return torch.stack([found[column] for column in range(len(found))]).mT

    def weighted_sum(self, factors: Tensor) -> list[Tensor]:
        """Sums of factor * gradient over records in float64, in the order of the columns; factor 0 is left out."""
        found: dict[int, Tensor] = {}
        alike = factors.shape[1] == 1 or factors.stride(1) == 0  # one factor for all parameters of a record
        for (a, g), weight, bias in zip(self.layers, self.columns[::2], self.columns[1::2], strict=True):
            if weight >= 0:
                found[weight], with_it = _totals(factors[:, weight], g, a)
            if bias >= 0:
                found[bias] = with_it if alike and weight >= 0 else _totals(factors[:, bias], g, g[:, :0])[1]
        return [found[column] for column in range(len(found))]


def _blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """A few rows at a time in float64."""
    records = tensors[0].shape[0]
    if records <= _ROWS:
        yield tuple([tensor.double() for tensor in tensors])
        return
    for start in range(0, records, _ROWS):
        yield tuple([tensor[start : start + _ROWS].double() for tensor in tensors])


def _square_sums(rows: Tensor) -> Tensor:
    parts = [torch.linalg.vector_norm(block, dim=1).square_() for (block,) in _blocks(rows)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _totals(factors: Tensor, g: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """sum_r factor_r g_r a_r^T, and the same without a."""
    found: tuple[Tensor, Tensor] | None = None
    for factor, of_g, of_a in _blocks(*with_a_share(factors, g, a)):
        scaled = of_g * factor[:, None]
        here = scaled.mT @ of_a, scaled.sum(0)
        found = here if found is None else (found[0].add_(here[0]), found[1].add_(here[1]))
    assert found is not None  # there is a block, be it of no rows
    return found
