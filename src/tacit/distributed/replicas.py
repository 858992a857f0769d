"""Ranks that each hold the whole model: their sums are added, each adds the noise of its own part, and all get all.

The concatenation of all vectors is cut into one part a rank. A rank learns the sum of its own part without noise, as
every rank of a job may (docs/ranks.md), adds noise from its own key, and only what has become public is told to the
others. The noise of the parts is independent and covers every coordinate once, so that the whole has the noise that the
ledger was charged for.
"""

from collections.abc import Mapping
from itertools import accumulate, pairwise

import torch
import torch.distributed as dist
from torch import Tensor

from tacit.distributed.adding import sums_of_parts
from tacit.distributed.group import speaking
from tacit.distributed.ranks import Ranks
from tacit.distributed.whole_sums import as_floats
from tacit.mechanisms import GaussianSumMechanism
from tacit.randomness import Randomness
from tacit.types import Vectors


def release_together(
    ranks: Ranks,
    mechanism: GaussianSumMechanism,
    sums: Vectors,
    denominator: float,
    randomness: Randomness,
    like: Mapping[str, Tensor],
) -> Vectors:
    """The noisy mean of all ranks' sums, the same on every rank."""
    flat = torch.cat([_to_be_added(sums.pop(name)).reshape(-1) for name in mechanism.shapes])
    size, is_whole = flat.numel(), not flat.is_floating_point()
    flat = torch.nn.functional.pad(flat, (0, -size % ranks.size))
    start, end = (min(size, rank * (len(flat) // ranks.size)) for rank in (ranks.rank, ranks.rank + 1))
    mine = {**parts(mechanism, _added_part(ranks, flat), start, end), **_count(ranks, sums)}
    del flat
    mine = as_floats(mechanism, mine) if mechanism.numerics != "strict" and is_whole else mine
    kinds = {value.dtype for value in like.values()}
    kind = kinds.pop() if len(kinds) == 1 else torch.float64
    found = mechanism.release(mine, denominator, randomness, like=dict.fromkeys(mine, torch.empty(0, dtype=kind)))
    mechanism.norm = ranks.from_first(mechanism.norm)  # where adaptive clipping has come to
    return _whole(ranks, mechanism, list(found.values()), size, like, kind)


def _to_be_added(value: Tensor) -> Tensor:
    """A rank's sum of few records is a stretch in float32, which is added to those of the others in float64."""
    return value.double() if value.is_floating_point() else value


def parts(mechanism: GaussianSumMechanism, values: Tensor, start: int, end: int) -> Vectors:
    """Of each vector what lies between two places of the concatenation of all, where anything does."""
    ends = [0, *accumulate(shape.numel() for shape in mechanism.shapes.values())]
    found = {}
    for name, (low, high) in zip(mechanism.shapes, pairwise(ends), strict=True):
        low, high = max(low, start), min(high, end)
        if low < high:
            found[name] = values[low - start : high - start]
    return found


def _count(ranks: Ranks, sums: Vectors) -> Vectors:
    """What adaptive clipping counts, of all ranks, for the first of them."""
    for value in () if ranks.alone else sums.values():
        with speaking() as ours:
            dist.all_reduce(value, group=ours)
    return sums if ranks.first else {}


def _added_part(ranks: Ranks, flat: Tensor) -> Tensor:
    """This rank's part of the sum over ranks."""
    if ranks.alone:
        return flat
    with speaking() as ours:
        return sums_of_parts([flat], None if flat.is_cuda else ours)[0]


def _whole(
    ranks: Ranks,
    mechanism: GaussianSumMechanism,
    mine: list[Tensor],
    size: int,
    like: Mapping[str, Tensor],
    kind: torch.dtype,
) -> Vectors:
    """All parts of what was released, as vectors."""
    each = -(-size // ranks.size)
    device = next(iter(like.values())).device
    rest = torch.zeros(each - sum(map(len, mine)), dtype=kind, device=device)
    part = torch.cat([*mine, rest])
    found = torch.empty(each * ranks.size, dtype=kind, device=device)
    if ranks.alone:
        found = part
    elif found.is_cuda:
        dist.all_gather_into_tensor(found, part)
    else:
        with speaking() as ours:
            dist.all_gather_into_tensor(found, part, group=ours)
    vectors = parts(mechanism, found, 0, size)
    return {
        name: vectors[name].view(shape).to(like[name].dtype) if name in vectors else torch.empty_like(like[name])
        for name, shape in mechanism.shapes.items()
    }
