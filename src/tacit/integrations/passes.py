"""What other people's loops take for a loader: passes of private samples, all out of one run."""

import math
from collections.abc import Callable, Generator, Iterator

from tacit.sampling import SamplingPolicy
from tacit.training import Sample


def steps_a_pass(sampling: SamplingPolicy) -> int:
    """In which as many records are drawn as there are, on average; from the plan, never from the data."""
    return max(1, math.ceil(sampling.implied_size / sampling.denominator))


class Passes:
    """Each iteration goes on where the one before ended; the run begins with the first of them.

    Args:
        draw: begins the run, and gives its samples.
    """

    def __init__(self, sampling: SamplingPolicy, draw: Callable[[], Generator[Sample, None, None]]) -> None:
        self._length, self._draw = steps_a_pass(sampling), draw
        self._samples: Generator[Sample, None, None] | None = None

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Sample]:
        if self._samples is None:
            self._samples = self._draw()
        for _ in range(len(self)):
            found = next(self._samples, None)
            if found is None:
                return
            yield found

    def close(self) -> None:
        """End the run: what was charged ahead and not begun is given back."""
        if self._samples is not None:
            self._samples.close()
            self._samples = None
