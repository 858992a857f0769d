"""Embeddings: output gradients are added per (record, token) before the norm; never a dense vocabulary per record."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tacit.gradients.layers.linear import positions
from tacit.gradients.layers.rule import LayerCall, LayerRule
from tacit.gradients.record_gradients import RecordGradients, row_norms, square_sums, with_rounding
from tacit.gradients.record_layout import RecordLayout


@dataclass(slots=True)
class TokenRows:
    """Gradients that add row t of g to row tokens[t] of the parameter: tokens [records, positions], g likewise."""

    tokens: Tensor
    g: Tensor
    vocabulary: int

    def squared_norms(self) -> Tensor:
        records, width = self.tokens.shape
        owner = torch.arange(records, device=self.tokens.device)
        keys, slots = torch.unique(self.tokens + owner[:, None] * self.vocabulary, return_inverse=True)
        sums = self.g.new_zeros(len(keys), self.g.shape[-1]).index_add_(0, slots.flatten(), self.g.flatten(0, 1))
        squares = torch.zeros(records, dtype=torch.float64, device=self.g.device)
        squares.index_add_(0, keys.div(self.vocabulary, rounding_mode="floor"), square_sums(sums))
        return with_rounding(squares, row_norms(self.g) * math.sqrt(width), self.g.dtype)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        scaled = self.g * factors.to(self.g.dtype)[:, None, None]
        total = self.g.new_zeros(self.vocabulary, self.g.shape[-1])
        return total.index_add_(0, self.tokens.flatten(), scaled.flatten(0, 1))

    def materialise(self, start: int, stop: int) -> Tensor:
        tokens, g = self.tokens[start:stop], self.g[start:stop]
        rows = g.new_zeros(stop - start, self.vocabulary, g.shape[-1])
        return rows.scatter_add_(1, tokens[:, :, None].expand_as(g), g)

    def select(self, records: Tensor) -> "TokenRows":
        return TokenRows(self.tokens[records], self.g[records], self.vocabulary)


def _form(
    vocabulary: int,
    padding: int | None,
    inputs: Sequence[Tensor],
    g: Tensor,
    layout: RecordLayout,
    records: int,
) -> list[RecordGradients | None]:
    rows = positions(g, layout, records)
    tokens = layout.records_first(inputs[0], records).reshape(records, -1)
    if padding is not None:
        rows = rows.masked_fill((tokens == padding)[:, :, None], 0.0)
    return [TokenRows(tokens, rows, vocabulary)]


def bind_embedding(
    output: Tensor,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> LayerCall | None:
    if max_norm is not None or scale_grad_by_freq:  # both look at the whole batch: left to the fallback
        return None
    if padding_idx is not None and padding_idx < 0:
        padding_idx += weight.shape[0]
    shared = input.dim() < 2 or input.shape[0] == 1  # positions, looked up once for all records
    form = partial(_form, weight.shape[0], padding_idx)
    return LayerCall((weight,), (input,), form, input.dim(), shared=shared)


def bind_bag(
    output: Tensor,
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> LayerCall | None:
    """Bags as rows of a matrix, summed or averaged."""
    if max_norm is not None or scale_grad_by_freq or offsets is not None or mode == "max" or input.dim() != 2:
        return None
    if padding_idx is not None and padding_idx < 0:
        padding_idx += weight.shape[0]
    weights = torch.ones(input.shape, dtype=output.dtype, device=output.device)
    if padding_idx is not None:
        weights = weights * (input != padding_idx)
    if mode == "mean":
        weights = weights / weights.sum(1, keepdim=True).clamp(min=1)
    if per_sample_weights is not None:
        weights = weights * per_sample_weights.detach()
    return LayerCall((weight,), (input, weights), partial(_bag_form, weight.shape[0]), 1)


def _bag_form(
    vocabulary: int, inputs: Sequence[Tensor], g: Tensor, layout: RecordLayout, records: int
) -> list[RecordGradients | None]:
    tokens, weights = (layout.records_first(tensor, records).reshape(records, -1) for tensor in inputs)
    rows = layout.records_first(g, records).reshape(records, -1, g.shape[-1])
    spread = rows.repeat_interleave(tokens.shape[1] // rows.shape[1], dim=1)
    return [TokenRows(tokens, spread * weights[:, :, None], vocabulary)]


EMBEDDING = LayerRule("embedding", (torch.nn.functional.embedding,), bind_embedding)
EMBEDDING_BAG = LayerRule("embedding_bag", (torch.nn.functional.embedding_bag,), bind_bag)
