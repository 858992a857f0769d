"""Linear maps: the gradient of a record is a sum of outer products g_t x_t^T over its positions t."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tacit.gradients.layers.rule import LayerCall, LayerRule
from tacit.gradients.record_gradients import Dense, RecordGradients, row_norms, squares_by_block, with_rounding
from tacit.gradients.record_layout import RecordLayout

# A sum over Gram entries in float32 errs by about this much of |x|^2 |g|^2; one that cancels to less is done again.
_GRAM_ERROR = 2.0**-24
_GRAM_TOLERANCE = 1.5e-5
# A gradient this short passes any clip, whatever float32 has made of its Gram entries.
_NEGLIGIBLE = 1e-15


@dataclass(slots=True)
class OuterProducts:
    """Gradients G_i^T X_i for X [records, positions, in] and G [records, positions, out]; never all formed at once.

    ``transposed``: the parameter is stored as [in, out]; ``shift``: the gradients of the bias, whose norms are |g|.
    """

    x: Tensor
    g: Tensor
    transposed: bool = False
    shift: Dense | None = None

    def squared_norms(self) -> Tensor:
        records, positions, width = self.x.shape
        # A norm below the clamp has lost digits to underflow; the clamp can only clip more.
        tiny = 100 * torch.finfo(self.x.dtype).tiny ** 0.5
        norm_x, norm_g = row_norms(self.x).clamp_(min=tiny), row_norms(self.g)
        if positions == 1:
            if self.shift is not None:
                self.shift.norms = norm_g
            return norm_x.mul_(norm_g).square_()
        bound = norm_x * norm_g
        size = width * self.g.shape[2]
        if positions * (width + self.g.shape[2]) < size:
            return with_rounding(self._by_gram(bound), bound, self.x.dtype)
        return with_rounding(squares_by_block(self, records, size), bound, self.x.dtype)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        scaled = (self.g * factors.to(self.g.dtype).view(-1, 1, 1)).flatten(0, 1)
        x = self.x.flatten(0, 1)
        return x.mT @ scaled if self.transposed else scaled.mT @ x

    def materialise(self, start: int, stop: int) -> Tensor:
        x, g = self.x[start:stop], self.g[start:stop]
        return x.mT @ g if self.transposed else g.mT @ x

    def select(self, records: Tensor) -> "OuterProducts":
        return OuterProducts(self.x[records], self.g[records], self.transposed)

    def _by_gram(self, bound: Tensor) -> Tensor:
        """|G^T X|^2 = <X X^T, G G^T>, computed anew in float64 where it cancels too far."""
        products = (self.x @ self.x.mT).mul_(self.g @ self.g.mT)
        squares = products.flatten(1).sum(1, dtype=torch.float64)
        if self.x.dtype == torch.float64:
            return squares.clamp_(min=0.0)
        error = bound.square() * _GRAM_ERROR
        doubtful = (squares * _GRAM_TOLERANCE < error) & (bound > _NEGLIGIBLE)
        if bool(doubtful.any()):
            exact = OuterProducts(self.x[doubtful].double(), self.g[doubtful].double())
            squares[doubtful] = squares_by_block(exact, len(exact.x), exact.x.shape[2] * exact.g.shape[2])
        return squares.clamp_(min=0.0).add_(error)


def merge(parts: Sequence[OuterProducts]) -> OuterProducts:
    """A layer called several times: the calls are more positions of the same product."""
    x, g = (torch.cat([getattr(part, side) for part in parts], dim=1) for side in ("x", "g"))
    return OuterProducts(x, g, parts[0].transposed)


def positions(tensor: Tensor, layout: RecordLayout, records: int) -> Tensor:
    """[records, positions, features], in a precision fit for norms."""
    rows = layout.records_first(tensor, records)
    rows = rows.unsqueeze(1) if rows.dim() == 2 else rows.reshape(records, -1, tensor.shape[-1])
    return rows if rows.dtype in (torch.float32, torch.float64) else rows.float()


def _form(
    transposed: bool, bias: bool, inputs: Sequence[Tensor], g: Tensor, layout: RecordLayout, records: int
) -> list[RecordGradients | None]:
    rows = positions(g, layout, records)
    x = positions(inputs[0], layout, records).to(rows.dtype)
    shift = None
    if bias:
        shift = Dense(rows[:, 0] if rows.shape[1] == 1 else rows.sum(1))
    return [OuterProducts(x, rows, transposed, shift), shift]


def bind_linear(output: Tensor, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> LayerCall | None:
    if weight.dim() != 2 or input.dim() < 2:
        return None
    return LayerCall((weight, bias), (input,), partial(_form, False, bias is not None), output.dim() - 1)


def bind_matmul(output: Tensor, input: Tensor, other: Tensor) -> LayerCall | None:
    """x @ W with a plain matrix on the right; W @ x and batched products are left to the fallback."""
    if other.dim() != 2 or input.dim() < 2:
        return None
    return LayerCall((other, None), (input,), partial(_form, True, False), output.dim() - 1)


def bind_addmm(
    output: Tensor, input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1
) -> LayerCall | None:
    """bias + x @ W, as the Conv1D of Hugging Face's GPT-2 computes it."""
    if input.dim() != 1 or beta != 1 or alpha != 1:
        return None
    return LayerCall((mat2, input), (mat1,), partial(_form, True, True), 1)


LINEAR = LayerRule("linear", (torch.nn.functional.linear,), bind_linear)
MATMUL = LayerRule(
    "matmul", (torch.matmul, torch.mm, torch.Tensor.matmul, torch.Tensor.mm, torch.Tensor.__matmul__), bind_matmul
)
ADDMM = LayerRule("addmm", (torch.addmm, torch.Tensor.addmm), bind_addmm)
