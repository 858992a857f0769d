"""Embeddings: output gradients are added per (record, token) before the norm; never a dense vocabulary per record."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.errors import LossesError
from tacit.layers.record_gradients import RecordGradients, is_one_stretch, row_squares, with_a_share

if TYPE_CHECKING:
    from tacit.gradients.bookkeeping import ForwardPass


@dataclass(slots=True)
class TokenRows:
    """Gradients that add row t of g to row tokens[t] of the parameter: tokens [records, positions], g likewise."""

    tokens: Tensor
    g: Tensor
    vocabulary: int

    def squared_norms(self) -> Tensor:
        """Of the rows of each token together, in float64, in which they are added up too."""
        records = len(self.tokens)
        owner = torch.arange(records, device=self.tokens.device)
        keys, slots = torch.unique(self.tokens + owner[:, None] * self.vocabulary, return_inverse=True)
        sums = torch.zeros(len(keys), self.g.shape[-1], dtype=torch.float64, device=self.g.device)
        sums.index_add_(0, slots.flatten(), self.g.flatten(0, 1).double())
        squares = torch.zeros(records, dtype=torch.float64, device=self.g.device)
        return squares.index_add_(0, keys.div(self.vocabulary, rounding_mode="floor"), row_squares(sums))

    def weighted_sum(self, factors: Tensor, several: int = 1) -> Tensor:
        """The rows of each token together, before they are written to where they belong."""
        kind = self.g.dtype if is_one_stretch(len(factors), several) else torch.float64
        factors, tokens, g = with_a_share(factors, self.tokens, self.g)
        keys, slots = torch.unique(tokens, return_inverse=True)
        sums = torch.zeros(len(keys), g.shape[-1], dtype=torch.float64, device=g.device)
        sums.index_add_(0, slots.flatten(), (g * factors[:, None, None]).flatten(0, 1))
        total = torch.zeros(self.vocabulary, g.shape[-1], dtype=kind, device=g.device)
        return total.index_copy_(0, keys, sums.to(kind))

    def materialise(self, start: int, stop: int) -> Tensor:
        tokens, g = self.tokens[start:stop], self.g[start:stop]
        rows = g.new_zeros(stop - start, self.vocabulary, g.shape[-1])
        return rows.scatter_add_(1, tokens[:, :, None].expand_as(g), g)


def _form(
    records: int, vocabulary: int, tokens: Tensor, padding: int | None, g: Tensor
) -> Sequence[RecordGradients | None]:
    rows = g.reshape(records, -1, g.shape[-1])
    tokens = tokens.reshape(records, -1)
    if padding is not None:
        rows = rows.masked_fill((tokens == padding)[:, :, None], 0.0)
    return [TokenRows(tokens, rows, vocabulary)]


def _check(max_norm: float | None) -> None:
    if max_norm is not None:
        raise LossesError(
            "an embedding with max_norm rewrites its rows for the tokens that it meets, which lets them out without "
            "noise; leave max_norm out"
        )


def _padded(run: "ForwardPass", input: Tensor, weight: Tensor, padding: int, scaled: bool) -> Tensor:
    """The general way, without a gradient where a token is padding: PyTorch under vmap asks the first row only."""
    with run:
        vectors = functional.embedding(input, weight, scale_grad_by_freq=scaled)
        return torch.where((input == padding).unsqueeze(-1), vectors.detach(), vectors)


def embedding(
    run: "ForwardPass",
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """Positions that are looked up once for all rows are looked up once for each: they are then like any others."""
    _check(max_norm)
    if padding_idx is not None and padding_idx < 0:
        padding_idx += weight.shape[0]
    if scale_grad_by_freq or not run.is_trained(weight) or run.is_of_rows(weight):
        has_gradient = run.is_of_rows(weight) or run.is_trained(weight)
        if padding_idx is None or not has_gradient:
            return NotImplemented
        return _padded(run, input, weight, padding_idx, scale_grad_by_freq)
    tokens = run.rows_first(input)
    out = functional.embedding(tokens, run.twin(weight), padding_idx)  # type: ignore[arg-type]
    run.keep(out, (tokens,), (weight,), partial(_form, run.records, weight.shape[0], tokens, padding_idx))
    return run.wrap(out)


def embedding_bag(
    run: "ForwardPass",
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
) -> Any:
    """Bags as rows of a matrix, summed or averaged."""
    _check(max_norm)
    if scale_grad_by_freq or offsets is not None or mode == "max" or input.dim() != 2 or run.is_of_rows(weight):
        return NotImplemented
    if padding_idx is not None and padding_idx < 0:
        padding_idx += weight.shape[0]
    tokens = run.rows_first(input).flatten(0, 1)
    weights = torch.ones(tokens.shape, dtype=weight.dtype, device=weight.device)
    if padding_idx is not None:
        weights = weights * (tokens != padding_idx)
    if mode == "mean":
        weights = weights / weights.sum(1, keepdim=True).clamp(min=1)
    if per_sample_weights is not None:
        weights = weights * run.rows_first(per_sample_weights).flatten(0, 1)
    vectors = functional.embedding(tokens, run.twin(weight), padding_idx)  # type: ignore[arg-type]
    run.keep(vectors, (tokens,), (weight,), partial(_form, run.records, weight.shape[0], tokens, padding_idx))
    return run.wrap((vectors * weights[:, :, None]).sum(1).view(run.rows, -1, weight.shape[1]))
