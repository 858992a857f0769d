"""Losses of a few records, computed early in a step and once more at its end: they must be the same.

Hidden state (a counter, a file, the environment) that one call of the losses leaves to the next shows in them: what a
record gives must not depend on what was computed before. In a single call there is nobody to leave it to.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tacit.errors import LossesError
from tacit.gradients.computing import Computing
from tacit.gradients.units import Part
from tacit.isolation import SplitError, count_records, take_records
from tacit.randomness import RecordChance

_RECORDS = 2


class Again:
    """What some records gave, and how to ask them again."""

    def __init__(self) -> None:
        self._ask: Callable[[], list[Any]] | None = None
        self._answers: list[Any] = []

    @property
    def is_noted(self) -> bool:
        return self._ask is not None

    def note(self, computing: Computing, part: Part, chance: RecordChance, *, alone: bool) -> None:
        """Compute the losses of some records of the part, chosen by chance, unless that was done for others."""
        if self.is_noted:
            return
        seeds = chance.take(part.rows[: count_records(part.batches[0])])
        chosen = np.argsort(seeds.seeds)[:_RECORDS]  # their order is nobody's but chance's
        batch, seeds = take_records(part.batches[0], torch.from_numpy(chosen)), seeds.take(chosen)
        some = np.arange(len(chosen))

        def ask() -> list[Any]:
            found = SplitError if alone else computing.losses_of(batch, seeds, some, alone=False)
            if found is not SplitError:
                return [found]
            return [computing.losses_of(batch, seeds, some[[i]], alone=alone) for i in range(len(some))]

        self._ask, self._answers = ask, ask()

    def compare(self) -> None:
        """Refuse losses that are not what they were earlier in the same step."""
        if self._ask is not None and self._answers != self._ask():
            raise LossesError(
                "the losses of the same records changed within one step: something outlives a call (a counter, a "
                "cache, a file, a setting), by which one record could change the others; compute each loss from its "
                "record and the parameters alone"
            )
