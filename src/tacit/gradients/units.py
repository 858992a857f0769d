"""The rows of a sample as units of privacy that can be computed together."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tacit.isolation import Places, RecordGroup, count_records, map_tensors, take_records
from tacit.isolation.batches import copy_records
from tacit.types import Batch


def as_groups(batch: Batch | Sequence[RecordGroup] | None) -> list[RecordGroup]:
    """A batch is one group; nobody is none."""
    if batch is None:
        return []
    if isinstance(batch, list | tuple) and all(isinstance(group, RecordGroup) for group in batch):
        return list(batch)
    return [RecordGroup(batch, np.arange(count_records(batch)))]


@dataclass(frozen=True, slots=True)
class Part:
    """Units that can be computed together: ``each`` rows of one shape for every unit.

    ``batches`` holds the rows in one piece, or, for a single unit of rows with different shapes, in several.
    """

    batches: tuple[Batch, ...]
    units: Places
    rows: Places  # the place of each row in the sample, unit by unit
    each: int
    views: int = 1


def parts_of(groups: Sequence[RecordGroup], sizes: Sequence[int] | None, views: int | None) -> Iterator[Part]:
    """Units of as many rows of one shape; one whose rows have several shapes is a part of its own."""
    if sizes is None:
        for group in groups:
            batch = group.batch
            if views is not None:
                batch = map_tensors(lambda tensor: tensor.flatten(0, 1), batch)
            yield Part((batch,), group.places, group.places.repeat(views or 1), views or 1, views or 1)
        return
    owner = np.repeat(np.arange(len(sizes)), sizes)
    count = np.bincount(owner[np.concatenate([np.arange(0), *(g.places for g in groups)])], minlength=len(sizes))
    homes: dict[int, set[int]] = {}
    for number, group in enumerate(groups):
        for unit in owner[group.places]:
            homes.setdefault(int(unit), set()).add(number)
    for number, group in enumerate(groups):
        here = {unit for unit, found in homes.items() if found == {number} and count[unit] == sizes[unit]}
        for size in sorted({sizes[unit] for unit in here}):
            units = np.array([unit for unit in sorted(here) if sizes[unit] == size])
            index = np.concatenate([np.flatnonzero(owner[group.places] == unit) for unit in units])
            yield Part((take_records(group.batch, torch.from_numpy(index)),), units, group.places[index], size)
    for unit in sorted(unit for unit, found in homes.items() if len(found) > 1 and count[unit] == sizes[unit]):
        pieces = [(group, np.flatnonzero(owner[group.places] == unit)) for group in groups]
        pieces = [(group, index) for group, index in pieces if len(index)]
        batches = tuple(take_records(group.batch, torch.from_numpy(index)) for group, index in pieces)
        rows = np.concatenate([group.places[index] for group, index in pieces])
        yield Part(batches, np.array([unit]), rows, len(rows))


def even_share(units: int, most: int) -> int:
    """How many at a time, if no more than ``most`` may be."""
    return -(-units // -(-units // most)) if most and units else most


def one_by_one(batch: Batch) -> list[Batch]:
    """Each row as a batch of one, in memory of its own."""
    return [copy_records(batch, slice(row, row + 1)) for row in range(count_records(batch))]


def rows_of(places: Places, each: int) -> Places:
    """The rows of units that have ``each`` of them."""
    if each == 1:
        return places
    return (places[:, None] * each + np.arange(each)).reshape(-1)
