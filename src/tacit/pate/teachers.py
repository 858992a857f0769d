"""Which teacher learns from which record, and what the teachers' votes add up to."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import InputError, check_count
from tacit.randomness import Randomness

Counts = NDArray[np.int64]


def assign_teachers(records: int, teachers: int, randomness: Randomness | None = None) -> list[Counts]:
    """The rows of each teacher: every record is thrown to one of them, independently of all the others.

    A record therefore touches one teacher alone, and one record more moves nobody else; parts of exactly equal size
    would shift with it.

    Example:
        >>> parts = assign_teachers(1000, 10, Randomness.seeded(1))
        >>> sum(len(part) for part in parts)
        1000
    """
    check_count("records", records)
    check_count("teachers", teachers)
    words = (randomness or Randomness()).words("sampling", records)
    teacher_of = words % np.uint64(teachers)
    return [np.flatnonzero(teacher_of == number) for number in range(teachers)]


def count_votes(votes: ArrayLike, classes: int) -> Counts:
    """[queries, classes] from the teachers' labels [teachers, queries].

    Example:
        >>> count_votes([[0, 2], [0, 1], [1, 2]], classes=3).tolist()
        [[2, 1, 0], [0, 1, 2]]
    """
    labels = np.asarray(votes)
    if labels.ndim != 2 or labels.size == 0 or not np.issubdtype(labels.dtype, np.integer):
        raise InputError(f"votes must be whole numbers [teachers, queries], found shape {list(labels.shape)}")
    if labels.min() < 0 or labels.max() >= classes:
        raise InputError(f"votes must lie between 0 and {classes - 1}, found {labels.min()} to {labels.max()}")
    return np.asarray((labels[:, :, None] == np.arange(classes)).sum(axis=0))
