"""Linear maps: the gradient of a record is a sum of outer products g_t x_t^T over its positions t."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.gradients.layers.rule import LayerCall, LayerRule
from tacit.gradients.record_gradients import Dense, RecordGradients, Together, square_sums
from tacit.gradients.record_layout import RecordLayout

# A Gram entry in float32 errs by about this much of |x| |g|; a record whose norm cancels to less is recomputed.
_GRAM_ERROR = 2.0**-22
_GRAM_TOLERANCE = 2.0e-5
# Below this the squares of float32 lose digits and products of Gram entries may vanish.
_SMALL_SQUARE = 1e-25


@dataclass(slots=True)
class OuterProducts:
    """Gradients G_i^T X_i for X [records, positions, in] and G [records, positions, out]; never all formed at once.

    ``transposed``: the parameter is stored as [in, out].
    """

    x: Tensor
    g: Tensor
    transposed: bool = False

    def squared_norms(self) -> Tensor:
        records, positions, width = self.x.shape
        if positions == 1:
            return square_sums(self.x) * square_sums(self.g)
        if positions * (width + self.g.shape[2]) < width * self.g.shape[2]:
            return self._by_gram()
        return Together([self], records, width * self.g.shape[2]).squared_norms()

    def weighted_sum(self, factors: Tensor) -> Tensor:
        scaled = (self.g * factors.to(self.g.dtype)[:, None, None]).flatten(0, 1)
        x = self.x.flatten(0, 1)
        return x.mT @ scaled if self.transposed else scaled.mT @ x

    def materialise(self, start: int, stop: int) -> Tensor:
        x, g = self.x[start:stop], self.g[start:stop]
        return x.mT @ g if self.transposed else g.mT @ x

    def select(self, records: Tensor) -> "OuterProducts":
        return OuterProducts(self.x[records], self.g[records], self.transposed)

    def _by_gram(self) -> Tensor:
        """|G^T X|^2 = <X X^T, G G^T>."""
        gram_x, gram_g = self.x @ self.x.mT, self.g @ self.g.mT
        size_x = gram_x.diagonal(dim1=1, dim2=2).sum(1, dtype=torch.float64)
        size_g = gram_g.diagonal(dim1=1, dim2=2).sum(1, dtype=torch.float64)
        squares = gram_x.mul_(gram_g).flatten(1).sum(1, dtype=torch.float64)
        error = size_x * size_g * _GRAM_ERROR
        doubtful = (squares * _GRAM_TOLERANCE < error) | (torch.minimum(size_x, size_g) < _SMALL_SQUARE)
        doubtful &= error > 0
        if self.x.dtype != torch.float64 and bool(doubtful.any()):
            exact = OuterProducts(self.x[doubtful].double(), self.g[doubtful].double())
            squares[doubtful] = Together([exact], len(exact.x), exact.x.shape[2] * exact.g.shape[2]).squared_norms()
        return squares


def positions(tensor: Tensor, layout: RecordLayout, records: int) -> Tensor:
    """[records, positions, features], in a precision fit for norms."""
    first = layout.records_first(tensor, records)
    rows = first.reshape(records, -1, tensor.shape[-1])
    return rows if rows.dtype in (torch.float32, torch.float64) else rows.float()


def _form(inputs: Sequence[Tensor], g: Tensor, layout: RecordLayout, records: int) -> list[RecordGradients | None]:
    rows = positions(g, layout, records)
    x = positions(inputs[0], layout, records).to(rows.dtype)
    return [OuterProducts(x, rows), _bias(rows)]


def _form_transposed(
    inputs: Sequence[Tensor], g: Tensor, layout: RecordLayout, records: int
) -> list[RecordGradients | None]:
    rows = positions(g, layout, records)
    x = positions(inputs[0], layout, records).to(rows.dtype)
    return [OuterProducts(x, rows, transposed=True), _bias(rows)]


def _bias(rows: Tensor) -> Dense:
    return Dense(rows[:, 0] if rows.shape[1] == 1 else rows.sum(1))


def bind_linear(output: Tensor, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> LayerCall | None:
    if weight.dim() != 2 or input.dim() < 2:
        return None
    return LayerCall((weight, bias), (input,), _form, output.dim() - 1)


def bind_matmul(output: Tensor, input: Tensor, other: Tensor) -> LayerCall | None:
    """x @ W with a plain matrix on the right; W @ x and batched products are left to the fallback."""
    if other.dim() != 2 or input.dim() < 2:
        return None
    return LayerCall((other,), (input,), _form_transposed, output.dim() - 1)


def bind_addmm(
    output: Tensor, input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1
) -> LayerCall | None:
    """bias + x @ W, as the Conv1D of Hugging Face's GPT-2 computes it."""
    if input.dim() != 1 or beta != 1 or alpha != 1:
        return None
    return LayerCall((mat2, input), (mat1,), _form_transposed, 1)


LINEAR = LayerRule("linear", (torch.nn.functional.linear,), bind_linear)
MATMUL = LayerRule(
    "matmul", (torch.matmul, torch.mm, torch.Tensor.matmul, torch.Tensor.mm, torch.Tensor.__matmul__), bind_matmul
)
ADDMM = LayerRule("addmm", (torch.addmm, torch.Tensor.addmm), bind_addmm)
