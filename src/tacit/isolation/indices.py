"""Functions that trust their indices: one out of range would reach into the memory of another record.

Under vmap PyTorch moves the indices of a row to where the row begins, and compares them with the end of all rows only:
``embedding`` in a table that is made of the record reads the table of another one, and ``index_fill`` writes into the
row before, by a negative index too, which is allowed. ``ctc_loss`` compares classes with nothing at all.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor

TRUSTING = ("embedding", "index_fill", "index_fill_", "ctc_loss", "_ctc_loss")  # names of functions


def out_of_range(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
    """Whether a call by this name would reach beyond its row; None if there is nothing to ask."""
    if name.endswith("ctc_loss"):
        return _ctc_loss(*args, **kwargs)
    return _embedding(*args, **kwargs) if name == "embedding" else _index_fill(*args, **kwargs)


def _embedding(*tensors: Any, **named: Any) -> Tensor | None:
    """The function takes the words first, and the operation the table."""
    first, second = [one for one in (*tensors, *named.values()) if isinstance(one, Tensor)][:2]
    words, table = (second, first) if first.is_floating_point() else (first, second)
    return _beyond(words, len(table)) if is_batchedtensor(words) and is_batchedtensor(table) else None


def _index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor | None:
    return _beyond(index, input.shape[dim] if input.dim() else 1) if is_batchedtensor(index) else None


def _ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, *_: Any, **__: Any
) -> Tensor:
    """Only the first classes of a target count: what stands behind them may be anything."""
    lengths, most = torch.as_tensor(target_lengths), targets.shape[-1]
    lengths = lengths.reshape(-1, 1) if targets.dim() == 2 else lengths.sum()  # several in a row are all there
    used = torch.arange(most, device=targets.device) < lengths.to(targets.device)
    outside = (targets < 0) | (targets >= log_probs.shape[-1])
    return (outside & used).any() | (lengths > most).any()


def _beyond(index: Tensor, end: int) -> Tensor:
    return ((index < 0) | (index >= end)).any()
