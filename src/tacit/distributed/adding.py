"""Sums over ranks, of which each gets its own part.

Everybody tells each other rank that rank's part, and adds what it is told, in the order of ranks: half the work of
gloo's ``all_reduce``, and the same bits whenever the same ranks add the same values.
"""

from typing import Any

import torch.distributed as dist
from torch import Tensor


def sum_of_part(values: Tensor, group: Any = None) -> Tensor:
    """This rank's rows of the sum over the ranks of a group; rows are dealt as ``torch.chunk`` deals them."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    rows = [len(part) for part in values.chunk(size)]
    rows += [0] * (size - len(rows))
    told = values.new_empty(size, rows[rank], *values.shape[1:])
    dist.all_to_all_single(told.flatten(0, 1), values.contiguous(), [rows[rank]] * size, rows, group=group)
    total = told[0].clone()
    for part in told[1:]:
        total.add_(part)
    return total
