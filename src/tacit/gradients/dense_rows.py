"""Dense networks by PyTorch, in a few calls for all records: large ones, and small ones where there is no kernel.

Norms |g| |a| and shares factor * g a^T are formed in float64 of the same float32 numbers, as the kernel does. Rows are
filled up to a number with which no operation treats the last of them in another way (isolation/rows.py).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.gradients.record_gradients import with_a_share
from tacit.gradients.stages import ACTIVATED, through

_ROWS = 4096  # whose copies in float64 are held at once


class PlainRows:
    """The records of a batch in such a network: ``squares`` [records, parameters] in float64, then their sum.

    Args:
        layers: weight and bias of each, and ``activations``: what follows it.
        columns: for the weight and the bias of each layer, its place among the trained parameters, or -1.
        by_outputs: the derivative of each loss by the outputs, given outputs, inputs and targets.
        multiple: of rows.
        faults: how many records have a class that is none.
    """

    sums = None

    def __init__(
        self,
        layers: Sequence[tuple[Tensor, Tensor | None]],
        activations: Sequence[int],
        columns: Sequence[int],
        by_outputs: Callable[[Tensor, Tensor, Tensor], Tensor],
        x: Tensor,
        targets: Tensor,
        *,
        multiple: int,
        faults: int,
    ) -> None:
        self.columns, records = columns, len(x)
        self.faults = faults
        with torch.no_grad():
            self.inputs = values(layers, activations, _filled(x, multiple))
            outputs, filled = self.inputs.pop(), _filled(targets, multiple)
            g = by_outputs(outputs, self.inputs[0], filled)
            self.gradients = derivatives(layers, activations, self.inputs, g)
            self.inputs, self.gradients = ([part[:records] for part in of] for of in (self.inputs, self.gradients))
            self.squares = self._squares(records)

    def _squares(self, records: int) -> Tensor:
        found: dict[int, Tensor] = {}
        for layer, (a, g) in enumerate(zip(self.inputs, self.gradients, strict=True)):
            weight, bias = self.columns[2 * layer : 2 * layer + 2]
            of_g = _square_sums(g)
            found |= {bias: of_g} | ({weight: of_g * _square_sums(a)} if weight >= 0 else {})
        found.pop(-1, None)
        return torch.stack([found[column] for column in range(len(found))], dim=1)

    def weighted_sum(self, factors: Tensor) -> list[Tensor]:
        """Sums of factor * gradient over records in float64, in the order of the columns; factor 0 is left out."""
        found: dict[int, Tensor] = {}
        for layer, (a, g) in enumerate(zip(self.inputs, self.gradients, strict=True)):
            weight, bias = self.columns[2 * layer : 2 * layer + 2]
            if weight >= 0:
                of_weight, *kept = with_a_share(factors[:, weight], g, a)
                found[weight] = _total(of_weight, *kept)
            if bias >= 0:
                of_bias, kept_g = with_a_share(factors[:, bias], g)
                found[bias] = _total(of_bias, kept_g)
        return [found[column] for column in range(len(found))]


def _filled(rows: Tensor, multiple: int) -> Tensor:
    """With the last row repeated."""
    missing = -len(rows) % multiple
    return torch.cat([rows, rows[-1:].expand(missing, *rows.shape[1:])]) if missing else rows


def values(layers: Sequence[Any], activations: Sequence[int], x: Tensor) -> list[Tensor]:
    """The inputs of every layer, and the outputs of the last."""
    found = [x]
    for (weight, bias), how in zip(layers, activations, strict=True):
        value = functional.linear(found[-1], weight, bias)
        found.append(ACTIVATED[how](value) if how in ACTIVATED else value)
    return found


def derivatives(layers: Sequence[Any], activations: Sequence[int], inputs: list[Tensor], g: Tensor) -> list[Tensor]:
    """Of each loss by the outputs of every layer, before its activation."""
    found = [g]
    for layer in range(len(layers) - 1, 0, -1):
        found.append(through(found[-1] @ layers[layer][0], inputs[layer], activations[layer - 1]))
    return found[::-1]


def _blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """A few rows at a time in float64."""
    for start in range(0, max(1, len(tensors[0])), _ROWS):
        yield tuple([tensor[start : start + _ROWS].double() for tensor in tensors])


def _square_sums(rows: Tensor) -> Tensor:
    parts = [torch.linalg.vecdot(block, block) for (block,) in _blocks(rows)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _total(factors: Tensor, g: Tensor, a: Tensor | None = None) -> Tensor:
    """sum_r factor_r g_r a_r^T, or without a."""
    if a is None:
        parts = [factor @ of_g for factor, of_g in _blocks(factors, g)]
    else:
        parts = [(of_g * factor[:, None]).mT @ of_a for factor, of_g, of_a in _blocks(factors, g, a)]
    total = parts[0]
    for part in parts[1:]:
        total += part
    return total
