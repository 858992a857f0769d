"""A user's function of a batch, such as an augmentation, applied to each record alone."""

from collections.abc import Callable

import numpy as np
import torch

from tacit.errors import InputError
from tacit.isolation.apart import run_apart
from tacit.isolation.guard import StateGuard
from tacit.isolation.rows import Isolated
from tacit.isolation.surroundings import nothing_leaves
from tacit.losses import Places, copy_records, count_records, map_tensors, take_records, tensors_of
from tacit.randomness import RecordChance, global_chance, seed_everything
from tacit.types import Batch


def map_records(function: Callable[[Batch], Batch], batch: Batch, chance: RecordChance) -> Batch:
    """What the function gives for each record as a batch of one, put together again.

    Records cannot see each other, and what is drawn inside comes from each record's own chance.

    Example:
        >>> chance = RecordChance(bytes(16), np.arange(2, dtype=np.uint64))
        >>> map_records(lambda x: x - x.mean(), torch.tensor([[1.0, 3.0], [5.0, 5.0]]), chance)
        tensor([[-1.,  1.],
                [ 0.,  0.]])
    """
    found: list[Batch] = [None] * count_records(batch)

    def together(places: Places, filled: Places) -> None:
        seed_everything(int.from_bytes(chance.key[:8], "little"))
        rows = take_records(batch, torch.from_numpy(filled))
        run = Isolated((), len(filled), chance.take(filled))
        result = run.run(function, rows)
        for index, place in enumerate(places):
            found[place] = take_records(result, index)

    def alone(places: Places) -> None:
        for place in places:
            seed_everything(int(chance.seeds[place]))
            found[place] = function(copy_records(batch, slice(place, place + 1)))

    guard = StateGuard(on_demand="handles", augment=function)
    with torch.no_grad(), guard, nothing_leaves(), global_chance():
        run_apart(np.arange(len(found)), together, alone)
    return _joined(found)


def _joined(found: list[Batch]) -> Batch:
    shapes = {tuple(tensor.shape for tensor in tensors_of(one)) for one in found}
    if len(shapes) != 1 or any(not shape or shape[0] != 1 for shape in next(iter(shapes))):
        raise InputError(
            "augment gets a record as a batch of one and must return a batch of one, of the same shape for every "
            f"record; found shapes {sorted(map(str, shapes))[:2]}"
        )
    columns = iter([torch.cat(parts) for parts in zip(*(tensors_of(one) for one in found), strict=True)])
    return map_tensors(lambda _: next(columns), found[0])
